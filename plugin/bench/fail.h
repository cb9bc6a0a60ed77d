/* SPDX-License-Identifier: Apache-2.0 */
/* How a part of harp-perf fails: it records one line and an exit code and returns -1, which everybody passes
 * up to main. Also the flag that SIGINT and SIGTERM set. Used by the one thread of the process only. */
#ifndef HARP_BENCH_FAIL_H
#define HARP_BENCH_FAIL_H

#include "base/base.h"

/* Exit codes of the process. */
enum harp_exit {
  HARP_EXIT_OK = 0,
  HARP_EXIT_WRONG = 1,        /* at least one message arrived wrong */
  HARP_EXIT_USAGE = 2,        /* options or environment */
  HARP_EXIT_PLUGIN = 3,       /* the plugin failed, broke the ABI's rules or made no progress */
  HARP_EXIT_PEER = 4,         /* another rank failed, left or never came */
  HARP_EXIT_SYSTEM = 5,       /* this machine: memory, a file, a socket */
  HARP_EXIT_INTERRUPTED = 130 /* SIGINT or SIGTERM */
};
enum { HARP_FAIL_TEXT_BYTES = 2048 };

/* Records the text and code, unless an earlier failure is recorded already; returns -1. */
int harp_fail(enum harp_exit code, const char *fmt, ...) HARP_PRINTF(2, 3);

/* Return what was recorded: "" and HARP_EXIT_OK when nothing was. */
const char *harp_fail_text(void);
enum harp_exit harp_fail_code(void);

/* Installs handlers that only set a flag; a second signal ends the process at once. */
void harp_interrupt_init(void);

/* Returns the signal that came, or 0. */
int harp_interrupt_signal(void);

/* Records an interruption as a failure and returns -1 when a signal came, else 0. */
int harp_interrupt_check(void);

#endif
