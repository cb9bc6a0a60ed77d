/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock. */
#ifndef HARP_BOX_CLOCK_H
#define HARP_BOX_CLOCK_H

#include <time.h>

/* Returns CLOCK_MONOTONIC in seconds. */
static inline double box_clock_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
