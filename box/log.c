/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

static void HARP_PRINTF(1, 0) write_line(const char *fmt, va_list ap) {
  char line[LINE_BYTES];
  int head = snprintf(line, sizeof line, "harp-nccl: ");
  int rest = vsnprintf(line + head, sizeof line - (size_t)head - 1, fmt, ap);
  size_t length = HARP_MIN((size_t)(head + HARP_MAX(rest, 0)), sizeof line - 2);
  line[length++] = '\n';
  if (write(STDERR_FILENO, line, length) < 0) return;
}

void box_log(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  write_line(fmt, ap);
  va_end(ap);
}

void box_die(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  write_line(fmt, ap);
  va_end(ap);
  _exit(BOX_EXIT_LOAD);
}

void *box_new(size_t bytes) {
  void *p = calloc(1, bytes ? bytes : 1);
  if (!p) box_die("no memory for %zu bytes", bytes);
  return p;
}

void *box_grow(void *p, size_t bytes) {
  void *grown = realloc(p, bytes);
  if (!grown) box_die("no memory for %zu bytes", bytes);
  return grown;
}
