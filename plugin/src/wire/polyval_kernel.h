/* SPDX-License-Identifier: Apache-2.0 */
/* What the polyval_*.c kernels offer to polyval.c. Internal to the polyval files.
 *
 * Arithmetic of all kernels. A block read as a little-endian number is a polynomial over GF(2): bit i stands
 * for x^i. The field's modulus is P = x^128 + x^127 + x^126 + x^121 + 1. Products of up to
 * HARP_POLYVAL_POWERS blocks with their powers are added up before one reduction. Since P = 1 mod x^64,
 * adding (low 64 bits) * P clears those bits and leaves a multiple of x^64: A = a1 x^64 + a0 is x^64 times
 * a1 + a0 x^64 + a0 * (x^63 + x^62 + x^57). Doing so twice divides by x^128. */
#ifndef HARP_POLYVAL_KERNEL_H
#define HARP_POLYVAL_KERNEL_H

#include "wire/polyval.h"

enum { HARP_POLYVAL_ROUND_BYTES = HARP_POLYVAL_POWERS * HARP_POLYVAL_BYTES };
#define HARP_POLYVAL_MODULUS 0xc200000000000000u /* x^63 + x^62 + x^57 */

struct harp_polyval_kernel {
  enum harp_polyval_id id;
  const char *name;
  bool (*supported)(uint64_t hwcap); /* NULL: not on this architecture, and `add` is NULL too */
  void (*add)(const struct harp_polyval_key *key, uint8_t *sum, const void *data, size_t bytes);
};

#define HARP_POLYVAL_HIDDEN __attribute__((visibility("hidden")))
extern const struct harp_polyval_kernel harp_polyval_portable HARP_POLYVAL_HIDDEN;
extern const struct harp_polyval_kernel harp_polyval_clmul HARP_POLYVAL_HIDDEN;
extern const struct harp_polyval_kernel harp_polyval_avx512 HARP_POLYVAL_HIDDEN;
extern const struct harp_polyval_kernel harp_polyval_arm64 HARP_POLYVAL_HIDDEN;

/* Writes the product of two blocks, times x^-128, to `out`, which may be one of them. */
void harp_polyval_dot(const uint8_t *a, const uint8_t *b, uint8_t *out) HARP_POLYVAL_HIDDEN;

#endif
