/* SPDX-License-Identifier: Apache-2.0 */
/* The place of this process among those of this host's job, as its launcher says.
 *
 * Cores, NIC queues and interfaces are divided by it. No state. Called by config.c at init. */
#ifndef HARP_HOST_LOCAL_H
#define HARP_HOST_LOCAL_H

#include "base/base.h"

struct harp_local {
  bool has_rank;
  unsigned rank;  /* its number among the job's processes on this host, below `count` where that is known */
  unsigned count; /* the number of these processes; 0: unknown */
  /* The number of processes that probably share an interface, at least 1: all of them, by count or number
   * of GPUs. */
  unsigned sharers;
};

/* Reads the environment, and where it does not tell the count, the number of GPUs below proc_root. */
struct harp_local harp_local_of_process(const char *const *environment, const char *proc_root);

#endif
