/* SPDX-License-Identifier: Apache-2.0 */
/* POLYVAL, the universal hash of RFC 8452 (section 3): of blocks X_1 ... X_n of 16 bytes under a key H it is
 * X_1 H^n + ... + X_n H in GF(2^128), with a factor of x^-128 for each product. For two different inputs of n
 * blocks at most and any d, POLYVAL(a) + POLYVAL(b) = d under at most n of the 2^128 keys.
 *
 * Owns the choice of the kernel: one of the polyval_*.c files, picked once from what the CPU can do. The
 * choice is the only state here; every function may be called from any thread at any time. Nothing here
 * allocates, makes system calls or fails. None has branches or addresses that depend on keys or data. */
#ifndef HARP_POLYVAL_H
#define HARP_POLYVAL_H

#include "base/base.h"

enum {
  HARP_POLYVAL_BYTES = 16, /* the bytes of a block, of a key and of the hash */
  HARP_POLYVAL_POWERS = 16,
};

enum harp_polyval_id {
  HARP_POLYVAL_PORTABLE, /* integer multiplications, any CPU */
  HARP_POLYVAL_CLMUL,    /* PCLMULQDQ */
  HARP_POLYVAL_AVX512,   /* VPCLMULQDQ in zmm registers */
  HARP_POLYVAL_ARM64,    /* PMULL */
  HARP_POLYVAL_COUNT
};

struct harp_polyval_key {
  /* H^16, H^15, ... H, so that the last n are those for n blocks. */
  uint8_t powers[HARP_POLYVAL_POWERS][HARP_POLYVAL_BYTES];
};

/* Selects the fastest kernel that this CPU supports, as harp_crc32c_init does. */
void harp_polyval_init(uint64_t hwcap);

/* Selects kernel `id` until the next init or select, for tests and benchmarks. Returns false and changes
 * nothing when this CPU (by the hwcap of init) does not support it. */
bool harp_polyval_select(enum harp_polyval_id id);

/* Returns the static name of a kernel, such as "avx512". */
const char *harp_polyval_name(enum harp_polyval_id id);

void harp_polyval_key_init(struct harp_polyval_key *key, const uint8_t h[HARP_POLYVAL_BYTES]);

/* Continues the hash in `sum`, which begins as zeros, with `bytes` bytes of any alignment. The last block is
 * filled up with zeros, so that only the last call may have a part of one. */
void harp_polyval_add(const struct harp_polyval_key *key, uint8_t sum[HARP_POLYVAL_BYTES], const void *data,
                      size_t bytes);

#endif
