/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock and this process's CPU time. */
#ifndef HARP_BENCH_CLOCK_H
#define HARP_BENCH_CLOCK_H

#include "base/base.h"

#include <sys/resource.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in nanoseconds. */
static inline harp_ns harp_clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (harp_ns)t.tv_sec * 1000000000u + (harp_ns)t.tv_nsec;
}

/* Returns the user and system time of all threads of this process, in nanoseconds. */
static inline harp_ns harp_clock_cpu_ns(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return ((harp_ns)r.ru_utime.tv_sec + (harp_ns)r.ru_stime.tv_sec) * 1000000000u +
         ((harp_ns)r.ru_utime.tv_usec + (harp_ns)r.ru_stime.tv_usec) * 1000u;
}

#endif
