/* SPDX-License-Identifier: Apache-2.0 */
/* One finished sentence about what is wrong with the configuration, for the caller to log as its one WARN.
 *
 * Owns nothing: the text is the caller's buffer. Used by the readers of the configuration only. */
#ifndef HARP_HOST_ERROR_H
#define HARP_HOST_ERROR_H

#include "base/base.h"

struct harp_error {
  char *text;
  size_t bytes;
};

enum { HARP_QUOTE_BYTES = 72 };

/* Writes the sentence and returns rc, so that a caller can `return harp_error_set(...)`. A text that is too
 * long ends early. */
int harp_error_set(const struct harp_error *error, int rc, const char *fmt, ...) HARP_PRINTF(3, 4);

/* Copies a value that came from a file or a variable so that it can stand in a log line: control characters
 * and bytes above 126 become '?', a long value ends in "...". Returns `out`. */
const char *harp_error_quote(const char *value, char out[HARP_QUOTE_BYTES]);

#endif
