/* SPDX-License-Identifier: Apache-2.0 */
#include "crash.h"

#include "log.h"

#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { FRAMES_MAX = 40 };

static void on_crash(int signal_number) {
  void *frames[FRAMES_MAX];
  int count = backtrace(frames, FRAMES_MAX);
  box_log("%s in process %d:", strsignal(signal_number), (int)getpid());
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
  raise(signal_number); /* with the default action, which SA_RESETHAND has restored */
}

void box_crash_init(void) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  void *frame[1];
  backtrace(frame, 1); /* loads what it needs, which a handler must not */
  for (size_t i = 0; i < HARP_ARRAY_COUNT(signals); i++) {
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_RESETHAND | SA_NODEFER};
    sigaction(signals[i], &action, NULL);
  }
}
