/* SPDX-License-Identifier: Apache-2.0 */
/* Wrapping 32-bit sequence numbers, RFC 1982 comparison: a is before b when b - a, taken modulo 2^32, is
 * positive as a signed number. Valid while compared values lie within 2^31 of each other. Pure functions. */
#ifndef HARP_SEQ_H
#define HARP_SEQ_H

#include "base/base.h"

static inline bool harp_seq_before(uint32_t a, uint32_t b) {
  return (int32_t)(a - b) < 0;
}
static inline bool harp_seq_after(uint32_t a, uint32_t b) {
  return (int32_t)(a - b) > 0;
}

/* Widens a 32-bit number from the wire to the 64-bit one closest to `near` (as ESP's extended numbers do). */
static inline uint64_t harp_seq_widen(uint32_t low, uint64_t near) {
  return near + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)near);
}

#endif
