/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of harp-nccl. */
#ifndef HARP_BOX_OPTIONS_H
#define HARP_BOX_OPTIONS_H

#include "library.h"
#include "number.h"

enum { BOX_RANKS_MAX = 64, BOX_COMMS_MAX = 16, BOX_SIZES_MAX = 256, BOX_NONE_KILLED = -1 };

enum box_op {
  BOX_OP_ALLREDUCE,
  BOX_OP_ALLGATHER,
  BOX_OP_REDUCESCATTER,
  BOX_OP_BROADCAST,
  BOX_OP_REDUCE,
  BOX_OP_SENDRECV,
  BOX_OP_ALLTOALL,
  BOX_OP_COUNT
};
extern const char *const box_op_names[BOX_OP_COUNT];

/* In the order of ncclRedOp_t. */
enum box_redop {
  BOX_REDOP_SUM,
  BOX_REDOP_PROD,
  BOX_REDOP_MAX,
  BOX_REDOP_MIN,
  BOX_REDOP_AVG,
  BOX_REDOP_COUNT
};
extern const char *const box_redop_names[BOX_REDOP_COUNT];

struct box_options {
  const char *libraries[BOX_LIBRARIES_MAX];
  int library_count;
  char *plan; /* NULL: the sizes, timed */
  int ranks;
  char *namespaces[BOX_RANKS_MAX]; /* the namespaces; rank r has number r modulo their count */
  int namespace_count;
  int cores[BOX_RANKS_MAX]; /* rank r has number r modulo their count; none: ranks are not pinned */
  int core_count;
  enum box_op op;
  enum box_type type;
  enum box_redop redop;
  size_t sizes[BOX_SIZES_MAX];
  int size_count;
  bool is_step;                   /* the sizes are the buckets of a training step, in their order */
  double ready_ms[BOX_SIZES_MAX]; /* the time when each bucket is ready, since the step began */
  double compute_ms;              /* the least time of a step */
  int iterations;                 /* 0 with time_s 0: nothing is timed */
  double time_s;                  /* instead of a count, if not 0 */
  double settle_s;                /* before all that is timed */
  int warmup, checked_rounds, communicators, cycles, root;
  bool check, json;
  int nap_us; /* 0: NCCL's threads poll without sleep, but for those of a plan */
  int killed_rank, kill_ms;
  double patience_s, timeout_s;
};

/* Reads the command line. Returns 0, 1 when help was printed, -1 after it has logged what is wrong. */
int box_options_parse(struct box_options *options, int argc, char **argv) HARP_MUST_CHECK;

/* Return whether an operation divides its elements among the ranks, and the elements of each part. */
bool box_op_is_divided(enum box_op op);
size_t box_op_count(const struct box_options *options, enum box_op op, int ranks, size_t bytes);

#endif
