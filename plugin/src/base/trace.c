/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trace.h"

#include <stdio.h>

int harp_trace_format(const struct harp_trace_entry *e, char *text, size_t text_bytes) {
  static const char *const formats[] = {
#define X(name, format) format,
      HARP_EVENTS(X)
#undef X
  };
  if ((unsigned)e->event >= HARP_EVENT_COUNT) return snprintf(text, text_bytes, "unknown event");
  int n = snprintf(text, text_bytes, "[%9llu.%03llu us] ", (unsigned long long)(e->at_ns / 1000),
                   (unsigned long long)(e->at_ns % 1000));
  if (n < 0 || (size_t)n >= text_bytes) return n;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
  return n + snprintf(text + n, text_bytes - (size_t)n, formats[e->event], (unsigned long long)e->arg[0],
                      (unsigned long long)e->arg[1], (unsigned long long)e->arg[2],
                      (unsigned long long)e->arg[3]);
#pragma GCC diagnostic pop
}
