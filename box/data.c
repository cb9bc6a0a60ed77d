/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks send: for reductions small whole numbers, whose results are exact in every type; else bytes.
 * They follow from rank, position and seed, so that every rank can compute what it has to receive. */
#include "operation.h"

#include <math.h>
#include <string.h>

enum { UNTOUCHED = 0xee, GUARD_BYTES = 64 };

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static bool reduces(const struct box_operation *o) {
  return o->op == BOX_OP_ALLREDUCE || o->op == BOX_OP_REDUCESCATTER || o->op == BOX_OP_REDUCE;
}

static double value(const struct box_options *o, int rank, size_t index, uint64_t seed) {
  const struct box_type_info *type = &box_types[o->type];
  uint64_t random = mix(((uint64_t)index + 1) * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)rank << 48) + seed);
  uint64_t range = type->bytes == 1 ? 4 : 32;
  bool compared = o->redop == BOX_REDOP_MAX || o->redop == BOX_REDOP_MIN;
  if (o->redop == BOX_REDOP_PROD) return 1 + (double)(random & 1);
  return (double)(random % range) - (compared && type->is_signed ? (double)range / 2 : 0);
}

static double reduced(const struct box_operation *op, size_t index, uint64_t seed) {
  const struct box_options *o = op->options;
  double result = value(o, 0, index, seed);
  for (int rank = 1; rank < op->ranks; rank++) {
    double next = value(o, rank, index, seed);
    switch (o->redop) {
    case BOX_REDOP_PROD:
      result *= next;
      break;
    case BOX_REDOP_MAX:
      result = fmax(result, next);
      break;
    case BOX_REDOP_MIN:
      result = fmin(result, next);
      break;
    default:
      result += next;
      break;
    }
  }
  if (o->redop != BOX_REDOP_AVG) return result;
  result /= op->ranks;
  return box_types[o->type].is_integer ? trunc(result) : result;
}

static uint64_t verify_reduced(const struct box_operation *op, const char *received, size_t first,
                               uint64_t seed) {
  const struct box_options *o = op->options;
  double tolerance = o->redop == BOX_REDOP_AVG ? box_types[o->type].tolerance : 0;
  uint64_t wrong = 0;
  for (size_t i = 0; i < op->receive_elements; i++) {
    double expected = reduced(op, first + i, seed), is = box_number_read(o->type, received, i);
    wrong += !(fabs(is - expected) <= tolerance * fmax(fabs(expected), 1));
  }
  return wrong;
}

static char byte_of(int rank, size_t index, uint64_t seed) {
  return (char)((index * 131 + (index >> 8) * 7 + (uint64_t)rank * 29 + seed * 17) >> 1);
}

/* Compares `bytes` with those that a rank sent, from its byte `first` on. Returns the wrong elements. */
static uint64_t verify_bytes(const struct box_operation *op, const char *received, int rank, size_t first,
                             size_t bytes, uint64_t seed) {
  size_t element = box_types[op->options->type].bytes;
  uint64_t wrong = 0;
  for (size_t at = 0; at < bytes; at += element) {
    bool right = true;
    for (size_t i = at; i < at + element; i++) right &= received[i] == byte_of(rank, first + i, seed);
    wrong += !right;
  }
  return wrong;
}

void box_operation_fill(const struct box_operation *op, const struct box_buffers *b, uint64_t seed) {
  const struct box_options *o = op->options;
  size_t element = box_types[o->type].bytes;
  if (reduces(op))
    for (size_t i = 0; i < op->send_elements; i++)
      box_number_write(o->type, b->send, i, value(o, op->rank, i, seed));
  else
    for (size_t i = 0; i < op->send_elements * element; i++) b->send[i] = byte_of(op->rank, i, seed);
  memset(b->receive, UNTOUCHED, op->receive_elements * element + GUARD_BYTES);
}

uint64_t box_operation_verify(const struct box_operation *op, const struct box_buffers *b, uint64_t seed) {
  const struct box_options *o = op->options;
  size_t part = op->count * box_types[o->type].bytes;
  int previous = (op->rank + op->ranks - 1) % op->ranks;
  uint64_t wrong = 0;
  switch (op->op) {
  case BOX_OP_ALLREDUCE:
    wrong = verify_reduced(op, b->receive, 0, seed);
    break;
  case BOX_OP_REDUCESCATTER:
    wrong = verify_reduced(op, b->receive, (size_t)op->rank * op->count, seed);
    break;
  case BOX_OP_REDUCE:
    return op->rank == op->root ? verify_reduced(op, b->receive, 0, seed) : 0;
  case BOX_OP_BROADCAST:
    wrong = verify_bytes(op, b->receive, op->root, 0, part, seed);
    break;
  case BOX_OP_SENDRECV:
    wrong = verify_bytes(op, b->receive, previous, 0, part, seed);
    break;
  default:
    for (int rank = 0; rank < op->ranks; rank++) {
      size_t first = op->op == BOX_OP_ALLTOALL ? (size_t)op->rank * part : 0;
      wrong += verify_bytes(op, b->receive + (size_t)rank * part, rank, first, part, seed);
    }
  }
  const char *behind = b->receive + op->receive_elements * box_types[o->type].bytes;
  for (int i = 0; i < GUARD_BYTES; i++) wrong += behind[i] != (char)UNTOUCHED;
  return wrong;
}
