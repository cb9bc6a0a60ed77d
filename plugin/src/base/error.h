/* SPDX-License-Identifier: Apache-2.0 */
/* Why something failed: one finished sentence, made by the function that knows the cause, logged by the
 * caller that ends the attempt. A plain value, owned by that caller; used by one thread at a time. */
#ifndef HARP_BASE_ERROR_H
#define HARP_BASE_ERROR_H

#include "base/base.h"

enum {
  HARP_ERROR_BYTES = 640, /* the bytes of a sentence: it may name a file, a value and what was expected */
  HARP_QUOTE_BYTES = 72,  /* the bytes of a quoted value, with "..." where it is cut off */
};

/* `text` is set only by a function that fails. */
struct harp_error {
  char text[HARP_ERROR_BYTES];
};

/* Sets the sentence, cut off where it is too long. Returns rc, so that a caller can
 * `return harp_error_set(...)`. */
int harp_error_set(struct harp_error *error, int rc, const char *fmt, ...) HARP_PRINTF(3, 4);

/* Copies a value from a file or a variable into `out` for use in a log line: control characters and bytes
 * above 126 become '?', a long value ends in "...". Returns `out`. */
const char *harp_error_quote(const char *value, char out[HARP_QUOTE_BYTES]);

#endif
