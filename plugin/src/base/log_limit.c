/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_limit.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"

void harp_log_limit_init(struct harp_log_limit *l, uint64_t *count) {
  *l = (struct harp_log_limit){.count = count};
}

/* Returns whether one more line may be written now; counts it if not. */
static bool take_line(struct harp_log_limit *l, harp_ns now) {
  HARP_ASSERT(l->count && l->used <= HARP_LOG_BURST);
  harp_ns back = now > l->since_ns ? (now - l->since_ns) / HARP_LOG_INTERVAL_NS : 0;
  l->since_ns += back * HARP_LOG_INTERVAL_NS;
  l->used -= (uint32_t)HARP_MIN(back, l->used);
  if (!l->used) l->since_ns = now; /* nothing is missing until this line */
  if (l->used == HARP_LOG_BURST) {
    l->left_out++;
    (*l->count)++;
    return false;
  }
  l->used++;
  return true;
}

void harp_log_limited(struct harp_log_limit *l, harp_ns now, enum harp_log_level level, const char *file,
                      int line, const char *fmt, ...) {
  char text[HARP_LOG_LINE_BYTES];
  va_list ap;
  if (!take_line(l, now)) return;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (l->left_out)
    harp_log(level, file, line, "%s (%u lines like this were left out)", text, l->left_out);
  else
    harp_log(level, file, line, "%s", text);
  l->left_out = 0;
}
