/* SPDX-License-Identifier: Apache-2.0 */
/* POLYVAL by integer multiplications, for any CPU of either byte order. Called through polyval.c's choice,
 * from any thread; no state.
 *
 * A product over GF(2) is an integer product without carries. Where only each fourth bit of both factors may
 * be set, the columns of the integer product are four bits apart and none adds up more than eight ones, so
 * that a carry does not reach the next column, and the lowest bit of each is the product's
 * (https://www.bearssl.org/constanttime.html, GHASH). A table would be as quick, but its addresses would tell
 * the key. */
#include "wire/polyval_kernel.h"

#include <string.h>

#include "base/endian.h"

/* Returns the product of two polynomials of 32 bits. */
static uint64_t multiply32(uint32_t a, uint32_t b) {
  const uint64_t each_fourth = 0x1111111111111111;
  uint64_t x[4], y[4], product = 0;
  for (unsigned i = 0; i < 4; i++) {
    x[i] = a & (uint32_t)(each_fourth << i);
    y[i] = b & (uint32_t)(each_fourth << i);
  }
  for (unsigned i = 0; i < 4; i++) {
    uint64_t columns = 0;
    for (unsigned k = 0; k < 4; k++) columns ^= x[k] * y[(i - k) % 4];
    product |= columns & each_fourth << i;
  }
  return product;
}

/* Returns the lower half of the product of two polynomials of 64 bits, by Karatsuba's method. */
static uint64_t multiply64(uint64_t a, uint64_t b, uint64_t *high) {
  uint64_t low = multiply32((uint32_t)a, (uint32_t)b);
  uint64_t top = multiply32((uint32_t)(a >> 32), (uint32_t)(b >> 32));
  uint64_t middle = multiply32((uint32_t)(a ^ a >> 32), (uint32_t)(b ^ b >> 32)) ^ low ^ top;
  *high = top ^ middle >> 32;
  return low ^ middle << 32;
}

void harp_polyval_dot(const uint8_t *a, const uint8_t *b, uint8_t *out) {
  uint64_t a0 = harp_load_le64(a), a1 = harp_load_le64(a + 8), b0 = harp_load_le64(b),
           b1 = harp_load_le64(b + 8);
  uint64_t low_high, high_high, middle_high, folded_high;
  uint64_t low = multiply64(a0, b0, &low_high), high = multiply64(a1, b1, &high_high);
  uint64_t middle = multiply64(a0 ^ a1, b0 ^ b1, &middle_high) ^ low ^ high;
  middle_high ^= low_high ^ high_high;
  /* high_high : high ^ middle_high : low_high ^ middle : low is the product, which is divided by x^128. */
  high ^= middle_high;
  low_high ^= middle;
  for (unsigned i = 0; i < 2; i++) {
    uint64_t folded = multiply64(low, HARP_POLYVAL_MODULUS, &folded_high);
    folded ^= low_high;
    low_high = low ^ folded_high;
    low = folded;
  }
  harp_store_le64(out, high ^ low);
  harp_store_le64(out + 8, high_high ^ low_high);
}

static void portable_add(const struct harp_polyval_key *key, uint8_t *sum, const void *data, size_t bytes) {
  const uint8_t *at = data;
  while (bytes) {
    size_t n = HARP_MIN(bytes, (size_t)HARP_POLYVAL_BYTES);
    for (size_t i = 0; i < n; i++) sum[i] ^= at[i];
    harp_polyval_dot(sum, key->powers[HARP_POLYVAL_POWERS - 1], sum);
    at += n;
    bytes -= n;
  }
}

static bool portable_supported(uint64_t hwcap) {
  (void)hwcap;
  return true;
}

const struct harp_polyval_kernel harp_polyval_portable = {
    .id = HARP_POLYVAL_PORTABLE, .name = "portable", .supported = portable_supported, .add = portable_add};
