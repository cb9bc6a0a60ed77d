/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs have in common whose processes stand for ranks: each has a number, logs what the plugin
 * says, and ends when it cannot go on. A program includes this once and defines on_log. */
#ifndef HARP_TESTS_RANK_H
#define HARP_TESTS_RANK_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nccl/abi.h"

enum { LOG_BYTES = 1024 };

static int number; /* the number of this process */

/* Takes a line of the plugin's log; any thread. */
static void on_log(enum harp_nccl_log_level level, const char *text);

static inline double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((format(printf, 1, 2))) static inline _Noreturn void die(const char *form, ...) {
  va_list arguments;
  va_start(arguments, form);
  fprintf(stderr, "process %d: ", number);
  (void)vfprintf(stderr, form, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static inline void log_line(enum harp_nccl_log_level level, unsigned long flags, const char *where, int line,
                            const char *form, ...) {
  char text[LOG_BYTES];
  va_list arguments;
  (void)flags, (void)where, (void)line;
  va_start(arguments, form);
  (void)vsnprintf(text, sizeof text, form, arguments);
  va_end(arguments);
  on_log(level, text);
}

#endif
