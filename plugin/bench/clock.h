/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock and this process's CPU time. */
#ifndef HARP_BENCH_CLOCK_H
#define HARP_BENCH_CLOCK_H

#include <sys/resource.h>

#include "base/clock.h"

/* Returns the user and system time of all threads of this process, in nanoseconds. */
static inline harp_ns harp_clock_cpu_ns(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return ((harp_ns)r.ru_utime.tv_sec + (harp_ns)r.ru_stime.tv_sec) * HARP_SEC(1) +
         ((harp_ns)r.ru_utime.tv_usec + (harp_ns)r.ru_stime.tv_usec) * HARP_US(1);
}

#endif
