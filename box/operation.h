/* SPDX-License-Identifier: Apache-2.0 */
/* An operation of NCCL on one rank: its buffers, the call, the expected result. */
#ifndef HARP_BOX_OPERATION_H
#define HARP_BOX_OPERATION_H

#include "nccl.h"
#include "options.h"

struct box_buffers {
  char *send, *receive;
  void *stream;
};

/* One size of an operation of a communicator, on this rank. */
struct box_operation {
  const struct box_options *options;
  enum box_op op;
  int rank, ranks, root; /* this rank, the number of ranks, and the root, in the communicator */
  size_t bytes, count;   /* as nccl-tests counts them */
  size_t send_elements, receive_elements;
};

/* Returns an operation in a communicator of so many ranks. */
struct box_operation box_operation_of(const struct box_options *options, enum box_op op, int rank, int ranks,
                                      size_t bytes);

/* Allocate the buffers for sizes up to `bytes`, and free them, which does not wait for the stream. */
void box_buffers_take(struct box_buffers *buffers, size_t bytes);
void box_buffers_give(struct box_buffers *buffers);

/* Queues the operation. Returns NCCL's result. */
int box_operation_start(const struct box_operation *op, box_comm comm, const struct box_buffers *buffers);

/* Returns the factor from the algorithm bandwidth to the bus bandwidth, as in nccl-tests. */
double box_operation_bus_factor(const struct box_options *options);

/* Fills the send buffer from `seed`, and the receive buffer with something else. */
void box_operation_fill(const struct box_operation *op, const struct box_buffers *buffers, uint64_t seed);

/* Returns how many elements of the result are wrong, including those behind its end. */
uint64_t box_operation_verify(const struct box_operation *op, const struct box_buffers *buffers,
                              uint64_t seed);

#endif
