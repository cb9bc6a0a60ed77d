/* SPDX-License-Identifier: Apache-2.0 */
/* The reductions of NCCL's kernels on arrays of each type, on the CPU. */
#ifndef HARP_BOX_REDUCE_H
#define HARP_BOX_REDUCE_H

#include "number.h"

/* As NCCL's device functions are named. Min and max are one: its argument selects which. */
enum box_reduction {
  BOX_COPY,
  BOX_SUM,
  BOX_PROD,
  BOX_MIN_MAX,
  BOX_PRE_MUL_SUM,  /* each input times the argument */
  BOX_SUM_POST_DIV, /* the sum of integers divided by the argument */
  BOX_REDUCTION_COUNT
};

/* out[i] = a[i] with b[i]; out may be a or b. `argument` of BOX_MIN_MAX: for integers what makes the order
 * that of unsigned integers, with the lesser chosen, by exclusive or; for others 1 for the greater, 0 for the
 * lesser. */
typedef void box_combine(void *out, const void *a, const void *b, size_t count, uint64_t argument);

/* out[i] = in[i], changed by the argument. */
typedef void box_change(void *out, const void *in, size_t count, uint64_t argument);

struct box_reducer {
  box_combine *combine[BOX_REDUCTION_COUNT];
  box_change *before; /* what BOX_PRE_MUL_SUM does first: the argument holds a number of the type */
  box_change *after;  /* what BOX_SUM_POST_DIV does last: twice the divisor, and 1 for signed integers */
};

/* Returns the functions for a type. */
const struct box_reducer *box_reducer_of(enum box_type type);

#endif
