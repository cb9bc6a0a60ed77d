/* SPDX-License-Identifier: Apache-2.0 */
/* Cores: how many there are, which ones this process may use, and pinning the calling thread.
 *
 * Owns no state. Called by engine/ when it starts a thread, and by config.c for the notation of core lists.
 * Any thread. Must not touch the affinity of a thread of NCCL or of the trainer: only a thread of ours pins
 * itself. */
#ifndef HARP_HOST_CPU_H
#define HARP_HOST_CPU_H

#include "base/base.h"

enum {
  HARP_CPU_MAX = 4096, /* core numbers lie below this */
};

/* Returns how many cores the calling thread may run on, at least 1. */
unsigned harp_cpu_allowed_count(void);

/* Fills `cores` with the numbers of the cores the calling thread may run on, ascending, at most `max` of
 * them. Returns how many there are (which may exceed `max`), or -errno. */
int harp_cpu_allowed(uint16_t *cores, unsigned max);

/* Moves the cores to which a thread of this process can be pinned to the front, each lot in its order.
 * Returns how many they are. A thread tries it and ends, because the caller's own affinity says nothing of
 * what the process may use; where none can be had, all count as usable. */
unsigned harp_cpu_sort_usable(uint16_t *cores, unsigned count);

/* Pins the calling thread to `count` cores. Returns 0 or -errno: -EINVAL when none of them exists or the
 * cpuset of this container forbids them all, or when `count` is 0. */
HARP_MUST_CHECK int harp_cpu_pin_self(const uint16_t *cores, unsigned count);

/* Fills in for how long, since it began, the calling thread was ready to run and waited for a core. Returns
 * 0, or -errno where the kernel does not tell. */
HARP_MUST_CHECK int harp_cpu_delay_ns(harp_ns *delay_ns);

#endif
