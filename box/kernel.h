/* SPDX-License-Identifier: Apache-2.0 */
/* A launched kernel of NCCL: reads the work that the host code queued, and does it on the CPU, with one fiber
 * for each thread block. Each block has a channel of the communicator. */
#ifndef HARP_BOX_KERNEL_H
#define HARP_BOX_KERNEL_H

#include "fiber.h"
#include "func.h"

struct box_kernel {
  const char *name, *arguments;
  char *comm;            /* the device's communicator */
  const char *work_head; /* up to 2.21: the list of work */
  struct box_fibers fibers;
  int rank, ranks;
};

struct box_channel {
  struct box_kernel *kernel;
  int block, number;
  char *channel;     /* the device's structure */
  char *works;       /* 2.22 and later: the pieces of work of one batch, one after the other */
  size_t work_bytes; /* the bytes of a piece */
  size_t work_count, work_room;
};

/* Returns whether a kernel of this name can be run. */
bool box_kernel_is_known(const char *name);

/* Runs it to its end, or until the communicator is aborted. */
void box_kernel_run(const char *name, const char *arguments, unsigned blocks);

#endif
