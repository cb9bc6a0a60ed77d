/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a run share, in memory that was mapped before they were forked. */
#ifndef HARP_BOX_SHARED_H
#define HARP_BOX_SHARED_H

#include "nccl.h"
#include "options.h"

#include <stdatomic.h>

struct box_shared {
  atomic_int arrived; /* at barriers, all ranks, since the start */
  atomic_bool failed; /* a rank has failed: no rank waits any longer */
  atomic_int started; /* ranks that repeat the operation until one is killed */
  atomic_int id_cycle[BOX_COMMS_MAX];
  struct box_nccl_id ids[BOX_COMMS_MAX];
  int iterations; /* that rank 0 has chosen */
  double time_us[BOX_RANKS_MAX];
  uint64_t wrong[BOX_RANKS_MAX];
};

#endif
