/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic(harp_log_sink) log_sink;

void harp_log_set_sink(harp_log_sink sink) {
  atomic_store(&log_sink, sink);
}

static void write_to_stderr(enum harp_log_level level, const char *file, int line, const char *text) {
  char out[HARP_LOG_LINE_BYTES + 16];
  (void)file, (void)line;
  int n = level == HARP_LOG_WARN ? snprintf(out, sizeof out, "NET/HARP: %s\n", text) : 0;
  if (n > 0) (void)!write(STDERR_FILENO, out, (size_t)n);
}

void harp_log_in_child(void) {
  if (atomic_load(&log_sink)) atomic_store(&log_sink, write_to_stderr);
}

void harp_log(enum harp_log_level level, const char *file, int line, const char *fmt, ...) {
  harp_log_sink sink = atomic_load(&log_sink);
  if (!sink) return;
  char text[HARP_LOG_LINE_BYTES];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  sink(level, file, line, text);
}
