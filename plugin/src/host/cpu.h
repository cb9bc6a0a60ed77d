/* SPDX-License-Identifier: Apache-2.0 */
/* The cores that a thread can be pinned to, and the pinning of the calling thread.
 *
 * No state; any thread. Called by engine/ and net/ when they start a thread. Only threads of HARP are pinned,
 * never one of NCCL or the host process. */
#ifndef HARP_HOST_CPU_H
#define HARP_HOST_CPU_H

#include "base/base.h"

enum {
  HARP_CPU_MAX = 4096, /* core numbers lie below this */
};

/* Moves the cores to which a thread can be pinned to the front, otherwise in unchanged order. Returns their
 * number. Tries each in a temporary thread, because the caller's affinity may be narrower than the process's;
 * without that thread all count as usable. Blocks until it has ended. */
unsigned harp_cpu_sort_usable(uint16_t *cores, unsigned count);

/* Pins the calling thread to `count` cores. Returns 0 or -errno: -EINVAL when none of them exists or the
 * cpuset of this container forbids them all, or when `count` is 0. */
HARP_MUST_CHECK int harp_cpu_pin_self(const uint16_t *cores, unsigned count);

/* Reads how long the calling thread has waited for a core since it started (runnable, not running). Returns
 * 0, or -errno when the kernel has no such statistics. */
HARP_MUST_CHECK int harp_cpu_delay_ns(harp_ns *delay_ns);

#endif
