/* SPDX-License-Identifier: Apache-2.0 */
#include "fail.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum harp_exit fail_code;
static char fail_text[HARP_FAIL_TEXT_BYTES];
static volatile sig_atomic_t interrupt_signal, run_end;

int harp_fail(enum harp_exit code, const char *fmt, ...) {
  if (fail_code) return -1;
  fail_code = code;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(fail_text, sizeof fail_text, fmt, ap);
  va_end(ap);
  return -1;
}

const char *harp_fail_text(void) {
  return fail_text;
}
enum harp_exit harp_fail_code(void) {
  return fail_code;
}

static void on_signal(int signal_number) {
  if (interrupt_signal) _exit(HARP_EXIT_INTERRUPTED);
  interrupt_signal = signal_number;
}

static void on_run_end(int signal_number) {
  (void)signal_number;
  run_end = 1;
}

void harp_interrupt_init(void) {
  struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART: poll and waitpid must return */
  sigaction(SIGINT, &sa, NULL);
  sigaction(SIGTERM, &sa, NULL);
  sa.sa_handler = on_run_end;
  sigaction(SIGUSR1, &sa, NULL);
  signal(SIGPIPE, SIG_IGN); /* a reader of our table that left, or a peer: seen as EPIPE */
}

int harp_interrupt_signal(void) {
  return interrupt_signal;
}

int harp_interrupt_check(void) {
  if (!interrupt_signal) return 0;
  return harp_fail(HARP_EXIT_INTERRUPTED, "interrupted by %s", strsignal(interrupt_signal));
}

bool harp_interrupt_ends_run(void) {
  return run_end;
}
