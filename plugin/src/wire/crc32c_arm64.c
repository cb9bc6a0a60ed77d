/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C with the aarch64 CRC32 instructions, joined by PMULL. Called through crc32c.c's choice, from any
 * thread; no state.
 *
 * crc32cx takes eight bytes per cycle and answers after two or three, so the checksum runs three chains over
 * three adjacent thirds and a multiplication moves the first two over what follows them (crc32c_kernel.h,
 * "joining"). The copy has to ascend and keeps to one chain. The instructions stand in assembly, each naming
 * its extension: no compiler flag, no target attribute (gcc and clang spell them differently) and no
 * instruction of these outside this file. */
#include "wire/crc32c_kernel.h"

#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <string.h>

enum {
  HWCAP_BIT_PMULL = 1 << 4, /* Linux, Documentation/arch/arm64/elf_hwcaps.rst */
  HWCAP_BIT_CRC32 = 1 << 7,
  CHAINS = 3,
  CHAINED_MIN_BYTES = CHAINS * HARP_CRC32C_JOIN_BYTES,
  CHAIN_UNITS_MAX = (HARP_CRC32C_JOIN_COUNT - 1) / 2, /* the first chain moves over two others */
};

static inline uint32_t crc8(uint32_t state, uint64_t v) {
  __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(v));
  return state;
}

static inline uint32_t crc4(uint32_t state, uint32_t v) {
  __asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(state) : "r"(v));
  return state;
}

static inline uint32_t crc1(uint32_t state, uint32_t v) {
  __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"(v));
  return state;
}

static inline uint64_t load8(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

/* Returns a qword that a chain from 0 turns into `state` advanced by `units` join units. */
static inline uint64_t advance(uint32_t state, size_t units) {
  uint64_t product;
  __asm__(".arch_extension crypto\n\t"
          "fmov d0, %1\n\t"
          "fmov d1, %2\n\t"
          "pmull v0.1q, v0.1d, v1.1d\n\t"
          "fmov %0, d0"
          : "=r"(product)
          : "r"((uint64_t)state), "r"((uint64_t)harp_crc32c_join[units])
          : "v0", "v1");
  return product;
}

static uint32_t arm64_crc(uint32_t seed, const void *data, size_t bytes) {
  const uint8_t *src = data;
  uint32_t a = ~seed;

  while (bytes >= CHAINED_MIN_BYTES) {
    size_t units = HARP_MIN(bytes / CHAINED_MIN_BYTES, (size_t)CHAIN_UNITS_MAX);
    size_t chain_bytes = units * HARP_CRC32C_JOIN_BYTES;
    const uint8_t *end = src + chain_bytes;
    uint32_t b = 0, c = 0;

    for (; src < end; src += 8) {
      a = crc8(a, load8(src));
      b = crc8(b, load8(src + chain_bytes));
      c = crc8(c, load8(src + 2 * chain_bytes));
    }
    a = crc8(0, advance(a, 2 * units) ^ advance(b, units)) ^ c;
    src += 2 * chain_bytes;
    bytes -= CHAINS * chain_bytes;
  }
  for (; bytes >= 8; src += 8, bytes -= 8) a = crc8(a, load8(src));
  if (bytes & 4) {
    uint32_t v;
    memcpy(&v, src, 4);
    a = crc4(a, v);
    src += 4;
  }
  for (bytes &= 3; bytes; src++, bytes--) a = crc1(a, *src);
  return ~a;
}

static uint32_t arm64_copy(uint32_t seed, void *to, const void *from, size_t bytes) {
  const uint8_t *src = from;
  uint8_t *dst = to;
  uint32_t state = ~seed;

  for (; bytes >= 8; src += 8, dst += 8, bytes -= 8) {
    uint64_t v = load8(src);
    HARP_CRC32C_PIN("r", v);
    memcpy(dst, &v, 8);
    state = crc8(state, v);
  }
  for (; bytes; src++, dst++, bytes--) {
    uint32_t v = *src;
    HARP_CRC32C_PIN("r", v);
    *dst = (uint8_t)v;
    state = crc1(state, v);
  }
  return ~state;
}

/* Every server CPU with CRC32 has PMULL too; one without gets the portable kernel rather than a third
 * variant. */
static bool arm64_supported(uint64_t hwcap) {
  return (hwcap & HWCAP_BIT_CRC32) && (hwcap & HWCAP_BIT_PMULL);
}

const struct harp_crc32c_kernel harp_crc32c_arm64 = {
    .id = HARP_CRC32C_ARM64,
    .name = "arm64",
    .supported = arm64_supported,
    .crc = arm64_crc,
    .copy = arm64_copy,
};
#else
const struct harp_crc32c_kernel harp_crc32c_arm64 = {.id = HARP_CRC32C_ARM64, .name = "arm64"};
#endif
