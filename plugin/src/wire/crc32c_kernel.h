/* SPDX-License-Identifier: Apache-2.0 */
/* What the crc32c_*.c kernels offer to crc32c.c, and what they share. Internal to the crc32c files.
 *
 * Arithmetic of all kernels. A string of bytes is a polynomial over GF(2): the first bit on the wire, which
 * is the low bit of the first byte, has the highest power. So in a register loaded little-endian the
 * polynomial is reflected: bit i of n stands for x^(n-1-i). With P = x^32 + 0x1EDC6F41, the "state" after
 * message M is M * x^32 mod P once the preset has been XORed into M's first four bytes; the checksum is the
 * complement of the state, the preset ~seed. */
#ifndef HARP_CRC32C_KERNEL_H
#define HARP_CRC32C_KERNEL_H

#include "base/base.h"
#include "wire/crc32c.h"

struct harp_crc32c_kernel {
  enum harp_crc32c_id id;
  const char *name;
  bool (*supported)(uint64_t hwcap); /* NULL: not on this architecture, and the two below are NULL too */
  uint32_t (*crc)(uint32_t seed, const void *data, size_t bytes);
  uint32_t (*copy)(uint32_t seed, void *dst, const void *src, size_t bytes);
};

#define HARP_CRC32C_HIDDEN __attribute__((visibility("hidden")))
extern const struct harp_crc32c_kernel harp_crc32c_portable HARP_CRC32C_HIDDEN;
extern const struct harp_crc32c_kernel harp_crc32c_sse42 HARP_CRC32C_HIDDEN;
extern const struct harp_crc32c_kernel harp_crc32c_avx2 HARP_CRC32C_HIDDEN;
extern const struct harp_crc32c_kernel harp_crc32c_avx512 HARP_CRC32C_HIDDEN;
extern const struct harp_crc32c_kernel harp_crc32c_arm64 HARP_CRC32C_HIDDEN;

/* Pins a loaded value, in a register of the class `how` names ("r", "x", "v"). The compiler can no longer
 * read memory a second time for it, nor move a later store before an earlier one across this point: what
 * makes copies read once and ascend. */
#define HARP_CRC32C_PIN(how, value) __asm__ volatile("" : "+" how(value) : : "memory")

/* The multipliers of all kernels: qword k (k = 1..256) advances a polynomial by k quadwords,
 *
 *   X(k) = x^(64k - 33) mod P, reflected into 32 bits.
 *
 * Why -33: a 32-bit value in the low half of a qword stands for its polynomial times x^32, and the carry-less
 * product of two reflected qwords stands for the polynomials' product times x (its bit i+j holds x^(126-i-j),
 * where a 128-bit register would hold x^(127-i-j)). Multiplying by X(k) thus advances by x^(64k-33) * x^32 *
 * x = x^(64k).
 *
 * Folding: a 16-byte accumulator A = H*x^64 + L, H its first quadword, is worth the same, mod P, as
 * H*X(2d+1) + L*X(2d) seen d accumulators (128d bits) later. The fold table holds the pairs {X(2d+1), X(2d)}
 * for d = 15 down to 1, then zeros in the place of d = 0 (the accumulator that need not move), then d = 16.
 * So one vector load at the right place yields the constants of a row of lanes, whether it moves by a
 * constant distance or collapses into the last lane.
 *
 * Joining chains: for a 32-bit state S, the product of S and X(k) is a qword worth S*x^(64k-32); the CRC
 * instruction, started from 0 on that qword, multiplies by x^32 and reduces: the state advanced by k
 * quadwords of zeros.
 *
 * tests/unit/test_crc32c.c recomputes every number bit by bit. The same in Python:
 *   def X(k):
 *     r = 1
 *     for _ in range(64 * k - 33):
 *       r = (r << 1) ^ (0x11EDC6F41 if r >> 31 else 0)
 *     return int(f"{r:032b}"[::-1], 2) */
enum {
  HARP_CRC32C_FOLD_ROWS = 17,
  HARP_CRC32C_JOIN_COUNT = 33,
  HARP_CRC32C_JOIN_BYTES = 64,
  HARP_CRC32C_BRAID_CHAINS = 3,
  HARP_CRC32C_BRAID_CHAIN_BYTES = 2040,
  HARP_CRC32C_BRAID_BYTES = 13056 + HARP_CRC32C_BRAID_CHAINS * HARP_CRC32C_BRAID_CHAIN_BYTES,
};
#define HARP_CRC32C_FOLD_ROW(d) ((d) == 16 ? 16 : 15 - (d))
extern const uint64_t harp_crc32c_fold[HARP_CRC32C_FOLD_ROWS][2] HARP_CRC32C_HIDDEN;
/* Entry m is X(8m): it advances a state by m * HARP_CRC32C_JOIN_BYTES bytes. Entry 0 is unused. */
extern const uint32_t harp_crc32c_join[HARP_CRC32C_JOIN_COUNT] HARP_CRC32C_HIDDEN;
/* X of a chain's quadwords and of a braid's (crc32c_avx512.c). */
extern const uint32_t harp_crc32c_braid[2] HARP_CRC32C_HIDDEN;

#endif
