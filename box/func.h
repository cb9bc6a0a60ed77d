/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's device functions by their numbers: the number in a piece of work selects the collective,
 * algorithm, protocol, reduction and type that a kernel runs. */
#ifndef HARP_BOX_FUNC_H
#define HARP_BOX_FUNC_H

#include "number.h"
#include "reduce.h"

enum box_collective {
  BOX_NONE, /* unknown */
  BOX_SEND_RECV,
  BOX_ALL_GATHER,
  BOX_ALL_GATHER_V,
  BOX_BROADCAST,
  BOX_ALL_REDUCE,
  BOX_REDUCE,
  BOX_REDUCE_SCATTER,
  BOX_NOP
};
enum box_algorithm { BOX_TREE, BOX_RING, BOX_OTHER };
enum box_protocol { BOX_LL, BOX_LL128, BOX_SIMPLE };

struct box_func {
  enum box_collective collective;
  enum box_algorithm algorithm;
  enum box_protocol protocol;
  enum box_reduction reduction;
  enum box_type type; /* BOX_TYPE_COUNT: bytes */
  bool has_argument;  /* the reduction's argument is this one, not the work's */
  uint64_t argument;
};

/* Finds all functions of the loaded library. Returns 0, or -1 after it has logged that none are known. */
int box_funcs_load(void) HARP_MUST_CHECK;

/* Returns function `number`; ends the process if it is unknown. */
const struct box_func *box_func_at(uint64_t number);

/* Describes a function for an error. */
const char *box_func_text(const struct box_func *func, char *out, size_t room);

static inline size_t box_func_element_bytes(const struct box_func *func) {
  return func->type == BOX_TYPE_COUNT ? 1 : box_types[func->type].bytes;
}

/* Returns whether a function is one of those that reduce. */
static inline bool box_func_reduces(const struct box_func *func) {
  return func->collective == BOX_ALL_REDUCE || func->collective == BOX_REDUCE ||
         func->collective == BOX_REDUCE_SCATTER;
}

#endif
