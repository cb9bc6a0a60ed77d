/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4: a keyed hash for short inputs, for tokens and proofs of a shared secret (Aumasson and
 * Bernstein, "SipHash: a fast short-input PRF", 2012). Pure functions of their arguments; any thread. Not for
 * payloads: about a byte per cycle. */
#ifndef HARP_SIPHASH_H
#define HARP_SIPHASH_H

#include "base/base.h"

enum {
  HARP_SIPHASH_KEY_BYTES = 16,
  HARP_SIPHASH128_BYTES = 16,
};

/* Returns the 64-bit SipHash-2-4 of `bytes` bytes at `data` under the 128-bit `key`. The paper's output
 * string is this number, least significant byte first. Neither pointer is kept; data may be NULL when bytes
 * is 0. */
uint64_t harp_siphash(const uint8_t key[HARP_SIPHASH_KEY_BYTES], const void *data, size_t bytes);

/* Computes the 128-bit variant (its authors' reference code, 2012) into `out`, which may overlap neither
 * input. Its first half is not harp_siphash of the same input. */
void harp_siphash128(const uint8_t key[HARP_SIPHASH_KEY_BYTES], const void *data, size_t bytes,
                     uint8_t out[HARP_SIPHASH128_BYTES]);

#endif
