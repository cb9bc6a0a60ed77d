/* SPDX-License-Identifier: Apache-2.0 */
/* See error.h. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int harp_error_set(struct harp_error *error, int rc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(error->text, sizeof error->text, fmt, ap);
  va_end(ap);
  return rc;
}

const char *harp_error_quote(const char *value, char out[HARP_QUOTE_BYTES]) {
  size_t n = 0;
  for (; value[n] && n < HARP_QUOTE_BYTES - 4; n++)
    out[n] = value[n] >= ' ' && value[n] <= '~' ? value[n] : '?';
  out[n] = 0;
  if (value[n]) memcpy(out + n, "...", 4);
  return out;
}
