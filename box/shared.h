/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a run share, in memory that was mapped before they were forked. */
#ifndef HARP_BOX_SHARED_H
#define HARP_BOX_SHARED_H

#include "nccl.h"
#include "options.h"

#include <stdatomic.h>

enum { BOX_IDS_MAX = 1024 };

struct box_shared {
  atomic_int passed[BOX_RANKS_MAX]; /* barriers to which each rank has come, since the start */
  atomic_bool failed;               /* a rank has failed: no rank waits any longer */
  atomic_int started;               /* ranks that repeat the operation until one is killed */
  struct {
    atomic_int cycle; /* in which it was written */
    struct box_nccl_id id;
  } ids[BOX_IDS_MAX];
  int iterations; /* the number of iterations that rank 0 has chosen */
  double time_us[BOX_RANKS_MAX];
  uint64_t wrong[BOX_RANKS_MAX];

  /* The state of a plan: the step that each rank is in; ranks that a step kills, and those that are dead;
   * whether NCCL has shown an error to one. */
  atomic_int steps[BOX_RANKS_MAX];
  atomic_bool doomed[BOX_RANKS_MAX], dead[BOX_RANKS_MAX], loss_noticed;
};

/* A rank's view. */
struct box_member {
  struct box_shared *shared;
  int rank, ranks, passed; /* barriers */
};

/* Waits until all ranks that a plan has not killed are here, or one has failed. */
void box_shared_barrier(struct box_member *member);

/* Publish the id of a communicator for this cycle, and wait for it. */
void box_shared_publish(struct box_shared *shared, int slot, int cycle, const struct box_nccl_id *id);
struct box_nccl_id box_shared_id(struct box_shared *shared, int slot, int cycle);

/* Ends the process, and with it the run, if the result of a call of NCCL is an error. */
void box_shared_require(const struct box_member *member, const char *call, int result);

#endif
