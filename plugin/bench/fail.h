/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of harp-perf: the failing function records a line and an exit code and returns -1, which all callers
 * return up to main. Also the flags that SIGINT and SIGTERM, and SIGUSR1, set. Used by the process's only
 * thread. */
#ifndef HARP_BENCH_FAIL_H
#define HARP_BENCH_FAIL_H

#include "base/base.h"

/* Exit codes of the process. */
enum harp_exit {
  HARP_EXIT_OK = 0,
  HARP_EXIT_WRONG = 1,        /* at least one message arrived wrong */
  HARP_EXIT_USAGE = 2,        /* options or environment */
  HARP_EXIT_PLUGIN = 3,       /* the plugin failed, broke the ABI's rules or made no progress */
  HARP_EXIT_PEER = 4,         /* another rank failed, exited or never connected */
  HARP_EXIT_SYSTEM = 5,       /* this host: memory, a file, a socket */
  HARP_EXIT_INTERRUPTED = 130 /* SIGINT or SIGTERM */
};
enum { HARP_FAIL_TEXT_BYTES = 2048 };

/* Records the text and code unless an error is recorded already; returns -1. */
int harp_fail(enum harp_exit code, const char *fmt, ...) HARP_PRINTF(2, 3);

/* Return the recorded error; "" and HARP_EXIT_OK: none. */
const char *harp_fail_text(void);
enum harp_exit harp_fail_code(void);

/* Installs handlers that set flags; a second SIGINT or SIGTERM terminates the process. */
void harp_interrupt_init(void);

/* Returns the received signal, or 0. */
int harp_interrupt_signal(void);

/* Returns 0, or -1 with a recorded error when a signal was received. */
int harp_interrupt_check(void);

/* Returns whether SIGUSR1 was received: a timed run (timed_run.h) ends before its time. */
bool harp_interrupt_ends_run(void);

#endif
