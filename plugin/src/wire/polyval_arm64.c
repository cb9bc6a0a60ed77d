/* SPDX-License-Identifier: Apache-2.0 */
/* POLYVAL with PMULL. Called through polyval.c's choice, from any thread; no state. The instructions stand in
 * assembly for the reasons that crc32c_arm64.c gives. */
#include "wire/polyval_kernel.h"

#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_neon.h>
#include <string.h>

enum { HWCAP_BIT_PMULL = 1 << 4 /* Linux, Documentation/arch/arm64/elf_hwcaps.rst */ };

/* Returns the product of the lower halves. */
static inline uint64x2_t multiply_low(uint64x2_t a, uint64x2_t b) {
  uint64x2_t product;
  __asm__(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(product) : "w"(a), "w"(b));
  return product;
}

/* Returns the product of the upper halves. */
static inline uint64x2_t multiply_high(uint64x2_t a, uint64x2_t b) {
  uint64x2_t product;
  __asm__(".arch_extension aes\n\tpmull2 %0.1q, %1.2d, %2.2d" : "=w"(product) : "w"(a), "w"(b));
  return product;
}

static inline uint64x2_t load(const uint8_t *p) {
  return vreinterpretq_u64_u8(vld1q_u8(p));
}

static inline uint64x2_t swap_halves(uint64x2_t v) {
  return vextq_u64(v, v, 1);
}

/* Returns the sum of all products, divided by x^128. */
static inline uint64x2_t reduce(uint64x2_t low, uint64x2_t middle, uint64x2_t high) {
  const uint64x2_t zero = vdupq_n_u64(0), modulus = vdupq_n_u64(HARP_POLYVAL_MODULUS);
  low = veorq_u64(low, vextq_u64(zero, middle, 1));
  high = veorq_u64(high, vextq_u64(middle, zero, 1));
  low = veorq_u64(swap_halves(low), multiply_low(low, modulus));
  low = veorq_u64(swap_halves(low), multiply_low(low, modulus));
  return veorq_u64(high, low);
}

/* Returns the hash continued with `count` blocks, whose powers begin at `powers`. */
static inline uint64x2_t fold(uint64x2_t sum, const uint8_t *powers, const uint8_t *src, unsigned count) {
  uint64x2_t low = vdupq_n_u64(0), middle = low, high = low;
  for (unsigned i = 0; i < count; i++) {
    uint64x2_t x = veorq_u64(load(src + (size_t)i * HARP_POLYVAL_BYTES), sum);
    uint64x2_t h = load(powers + (size_t)i * HARP_POLYVAL_BYTES), swapped = swap_halves(h);
    sum = vdupq_n_u64(0);
    low = veorq_u64(low, multiply_low(x, h));
    high = veorq_u64(high, multiply_high(x, h));
    middle = veorq_u64(middle, veorq_u64(multiply_low(x, swapped), multiply_high(x, swapped)));
  }
  return reduce(low, middle, high);
}

static void arm64_add(const struct harp_polyval_key *key, uint8_t *sum, const void *data, size_t bytes) {
  const uint8_t *src = data;
  uint64x2_t acc = load(sum);
  for (; bytes >= HARP_POLYVAL_ROUND_BYTES;
       bytes -= HARP_POLYVAL_ROUND_BYTES, src += HARP_POLYVAL_ROUND_BYTES)
    acc = fold(acc, key->powers[0], src, HARP_POLYVAL_POWERS);
  if (bytes) {
    uint8_t last[HARP_POLYVAL_ROUND_BYTES];
    unsigned count = (unsigned)(bytes + HARP_POLYVAL_BYTES - 1) / HARP_POLYVAL_BYTES;
    memcpy(last, src, bytes);
    memset(last + bytes, 0, count * HARP_POLYVAL_BYTES - bytes);
    acc = fold(acc, key->powers[HARP_POLYVAL_POWERS - count], last, count);
  }
  vst1q_u8(sum, vreinterpretq_u8_u64(acc));
}

static bool arm64_supported(uint64_t hwcap) {
  return hwcap & HWCAP_BIT_PMULL;
}

const struct harp_polyval_kernel harp_polyval_arm64 = {
    .id = HARP_POLYVAL_ARM64, .name = "arm64", .supported = arm64_supported, .add = arm64_add};

#else
const struct harp_polyval_kernel harp_polyval_arm64 = {.id = HARP_POLYVAL_ARM64, .name = "arm64"};
#endif
