/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C on any CPU: slicing-by-8. Called through crc32c.c's choice, from any thread; no state.
 *
 * Eight bytes at a time: the state is XORed into the first four, and each byte is then looked up in the table
 * of its distance from the end of the eight. table[s][b] is the state that byte b leaves when s bytes of
 * zeros follow.
 *
 * The tables are linear in b, so eight powers of x each determine them: bit i of a byte stands for x^(7-i),
 * and x^(7-i) followed by s bytes of zeros leaves x^(7-i) * x^(8s) * x^32 mod P. The 64 powers x^32..x^95 are
 * enumeration constants, each worked out from the one before by the compiler. */
#include "wire/crc32c_kernel.h"

#include <string.h>

#include "base/endian.h"

#define REFLECTED_P 0x82f63b78u
/* Multiplies a reflected 32-bit remainder by x, mod P. */
#define BY_X(v) (((uint32_t)(v) >> 1) ^ (((uint32_t)(v)&1u) ? REFLECTED_P : 0u))
#define BYTE_POWERS(s, z)                                                                                    \
  X7_##s = BY_X(z), X6_##s = BY_X(X7_##s), X5_##s = BY_X(X6_##s), X4_##s = BY_X(X5_##s),                     \
  X3_##s = BY_X(X4_##s), X2_##s = BY_X(X3_##s), X1_##s = BY_X(X2_##s), X0_##s = BY_X(X1_##s)

/* Xi_s: bit i of a byte, s bytes before the end. The reflected 1 is x^31; the first step makes it x^32. */
enum {
  BYTE_POWERS(0, 1u),
  BYTE_POWERS(1, X0_0),
  BYTE_POWERS(2, X0_1),
  BYTE_POWERS(3, X0_2),
  BYTE_POWERS(4, X0_3),
  BYTE_POWERS(5, X0_4),
  BYTE_POWERS(6, X0_5),
  BYTE_POWERS(7, X0_6),
};

#define BIT(b, i, s) (((b) >> (i)) & 1u ? (uint32_t)X##i##_##s : 0u)
#define E1(s, b)                                                                                             \
  (BIT(b, 0, s) ^ BIT(b, 1, s) ^ BIT(b, 2, s) ^ BIT(b, 3, s) ^ BIT(b, 4, s) ^ BIT(b, 5, s) ^ BIT(b, 6, s) ^  \
   BIT(b, 7, s))
#define E4(s, b)  E1(s, b), E1(s, (b) + 1), E1(s, (b) + 2), E1(s, (b) + 3)
#define E16(s, b) E4(s, b), E4(s, (b) + 4), E4(s, (b) + 8), E4(s, (b) + 12)
#define E64(s, b) E16(s, b), E16(s, (b) + 16), E16(s, (b) + 32), E16(s, (b) + 48)
#define E256(s)                                                                                              \
  { E64(s, 0), E64(s, 64), E64(s, 128), E64(s, 192) }

HARP_CACHE_ALIGNED static const uint32_t table[8][256] = {E256(0), E256(1), E256(2), E256(3),
                                                          E256(4), E256(5), E256(6), E256(7)};

static uint32_t step8(uint32_t state, uint64_t le) {
  uint64_t v = le ^ state;

  return table[7][v & 0xff] ^ table[6][(v >> 8) & 0xff] ^ table[5][(v >> 16) & 0xff] ^
         table[4][(v >> 24) & 0xff] ^ table[3][(v >> 32) & 0xff] ^ table[2][(v >> 40) & 0xff] ^
         table[1][(v >> 48) & 0xff] ^ table[0][v >> 56];
}

static uint32_t step1(uint32_t state, uint8_t byte) {
  return (state >> 8) ^ table[0][(state ^ byte) & 0xff];
}

static uint32_t portable_crc(uint32_t seed, const void *data, size_t bytes) {
  const uint8_t *src = data;
  uint32_t state = ~seed;

  for (; bytes >= 8; src += 8, bytes -= 8) state = step8(state, harp_load_le64(src));
  for (; bytes; src++, bytes--) state = step1(state, *src);
  return ~state;
}

static uint32_t portable_copy(uint32_t seed, void *to, const void *from, size_t bytes) {
  const uint8_t *src = from;
  uint8_t *dst = to;
  uint32_t state = ~seed;

  for (; bytes >= 8; src += 8, dst += 8, bytes -= 8) {
    uint64_t v;
    memcpy(&v, src, 8);
    HARP_CRC32C_PIN("r", v);
    memcpy(dst, &v, 8);
    state = step8(state, harp_load_le64(&v));
  }
  for (; bytes; src++, dst++, bytes--) {
    uint32_t v = *src;
    HARP_CRC32C_PIN("r", v);
    *dst = (uint8_t)v;
    state = step1(state, (uint8_t)v);
  }
  return ~state;
}

static bool portable_supported(uint64_t hwcap) {
  (void)hwcap;
  return true;
}

const struct harp_crc32c_kernel harp_crc32c_portable = {
    .id = HARP_CRC32C_PORTABLE,
    .name = "portable",
    .supported = portable_supported,
    .crc = portable_crc,
    .copy = portable_copy,
};
