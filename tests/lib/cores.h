/* SPDX-License-Identifier: Apache-2.0 */
/* The cores on which the calling thread may run. */
#ifndef TESTS_CORES_H
#define TESTS_CORES_H

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

/* Fills `cores` with their numbers, ascending, at most `max` of them. Returns how many there are. */
static inline unsigned cores_allowed(uint16_t *cores, unsigned max) {
  cpu_set_t set;
  unsigned count = 0;
  if (sched_getaffinity(0, sizeof set, &set)) abort();
  for (unsigned core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &set)) continue;
    if (count < max) cores[count] = (uint16_t)core;
    count++;
  }
  return count;
}

#endif
