/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of NCCL's kernels: one channel's share of one. */
#ifndef HARP_BOX_COLLECTIVE_H
#define HARP_BOX_COLLECTIVE_H

#include "kernel.h"

/* In elements. Up to 2.19 the channels take turns, round by round; later each has a part of the buffer. */
struct box_work {
  const char *in;
  char *out;
  int root;
  uint64_t argument;
  int64_t total; /* the count of a rank */
  int64_t offset, count, chunk;
  int64_t last_chunk; /* the last chunk of an incomplete round; 0: divided evenly */
  int turn, turns;    /* up to 2.19: of this channel, of all; turns 0 otherwise */
};

/* Runs it to its end; what is not emulated ends the process. */
void box_collective_run(struct box_channel *channel, const struct box_func *func,
                        const struct box_work *work);

/* Runs the broadcasts of a batch, each from another root, which share the ring. */
void box_collective_broadcasts(struct box_channel *channel, const struct box_func *func);

/* Returns the argument of a reduction, which the work holds or points to. */
uint64_t box_collective_argument(const struct box_func *func, uint64_t argument, bool is_pointer);

#endif
