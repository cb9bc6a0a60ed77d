/* SPDX-License-Identifier: Apache-2.0 */
/* The one clock of the product: nanoseconds of CLOCK_MONOTONIC.
 *
 * Owns no state. Read by engine/ once per pass and passed down as `now`; proto/ and io/ take time as a
 * parameter and must not include this. Any thread. */
#ifndef HARP_HOST_CLOCK_H
#define HARP_HOST_CLOCK_H

#include <time.h>

#include "base/base.h"

/* Returns nanoseconds of CLOCK_MONOTONIC; through the vDSO this is no system call. It cannot fail. */
static inline harp_ns harp_clock_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return HARP_SEC(now.tv_sec) + (harp_ns)now.tv_nsec;
}

#endif
