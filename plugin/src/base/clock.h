/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of the product: nanoseconds of CLOCK_MONOTONIC. No state; any thread. That of all hosts is read
 * in host/shared_clock.h.
 *
 * An engine reads it once per pass and passes it down as `now`. proto/ takes time as a parameter and must not
 * include this; io/ reads it while it opens and closes, and the xdp driver for its periodic checks. */
#ifndef HARP_CLOCK_H
#define HARP_CLOCK_H

#include <time.h>

#include "base/base.h"

/* Returns nanoseconds of CLOCK_MONOTONIC; through the vDSO this is no system call. It cannot fail. */
static inline harp_ns harp_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return HARP_SEC(now.tv_sec) + (harp_ns)now.tv_nsec;
}

#endif
