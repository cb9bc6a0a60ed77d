/* SPDX-License-Identifier: Apache-2.0 */
/* What the x86-64 kernels share: the crc32 instruction over short runs and tails. Internal to the crc32c
 * files; any thread; no state. */
#ifndef HARP_CRC32C_X86_H
#define HARP_CRC32C_X86_H

#include "wire/cpu_x86.h"
#include "wire/crc32c_kernel.h"

#include <immintrin.h>
#include <string.h>

/* The target attribute of the crc32 instruction: part of SSE4.2 for gcc, a feature of its own for clang
 * since 14. */
#if defined(__clang__) && __clang_major__ >= 14
#define HARP_X86_TARGET_CRC32 "sse4.2,crc32"
#else
#define HARP_X86_TARGET_CRC32 "sse4.2"
#endif

#define HARP_X86_FOLDING __attribute__((target("pclmul," HARP_X86_TARGET_CRC32), always_inline)) static inline

HARP_X86_FOLDING uint64_t harp_x86_load_8(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

/* Returns the multipliers that move an accumulator forward by `distance` accumulators. */
HARP_X86_FOLDING __m128i harp_x86_fold_row(size_t distance) {
  return _mm_load_si128((const __m128i *)(const void *)harp_crc32c_fold[HARP_CRC32C_FOLD_ROW(distance)]);
}

/* Returns the state that an accumulator is worth. */
HARP_X86_FOLDING uint64_t harp_x86_reduce(__m128i acc) {
  uint64_t state = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(acc));
  return _mm_crc32_u64(state, (uint64_t)_mm_extract_epi64(acc, 1));
}

/* Returns a qword that a crc32 chain from 0 turns into `state` advanced by `units` join units. */
HARP_X86_FOLDING uint64_t harp_x86_advance(uint64_t state, size_t units) {
  __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state),
                                         _mm_cvtsi64_si128((long long)harp_crc32c_join[units]), 0);
  return (uint64_t)_mm_cvtsi128_si64(product);
}

/* Advances a state over the eight bytes at src + at, and copies them to dst + at if `copy`, a compile-time
 * constant here and below; dst is not used otherwise. */
__attribute__((target(HARP_X86_TARGET_CRC32), always_inline)) static inline uint64_t
harp_x86_crc_8(uint64_t state, bool copy, uint8_t *dst, const uint8_t *src, size_t at) {
  uint64_t v;

  memcpy(&v, src + at, 8);
  if (copy) {
    HARP_CRC32C_PIN("r", v);
    memcpy(dst + at, &v, 8);
  }
  return _mm_crc32_u64(state, v);
}

/* Advances `state` over `bytes` bytes at src with one chain of crc32 instructions, and copies them to dst
 * unless that is NULL. The short way: three cycles for eight bytes and no start-up. A loop of single steps
 * was tried: its exit is mispredicted so often that a 44-byte header took twice as long. */
__attribute__((target(HARP_X86_TARGET_CRC32), always_inline)) static inline uint32_t
harp_x86_crc_short(uint32_t state, bool copy, uint8_t *dst, const uint8_t *src, size_t bytes) {
  uint64_t wide = state;

#define HARP_X86_STEP(n) (src += (n), dst = copy ? dst + (n) : NULL)
  for (; bytes >= 32; bytes -= 32) {
    wide = harp_x86_crc_8(wide, copy, dst, src, 0);
    wide = harp_x86_crc_8(wide, copy, dst, src, 8);
    wide = harp_x86_crc_8(wide, copy, dst, src, 16);
    wide = harp_x86_crc_8(wide, copy, dst, src, 24);
    HARP_X86_STEP(32);
  }
  if (bytes & 16) {
    wide = harp_x86_crc_8(wide, copy, dst, src, 0);
    wide = harp_x86_crc_8(wide, copy, dst, src, 8);
    HARP_X86_STEP(16);
  }
  if (bytes & 8) {
    wide = harp_x86_crc_8(wide, copy, dst, src, 0);
    HARP_X86_STEP(8);
  }
  state = (uint32_t)wide;
  if (bytes & 4) {
    uint32_t v;
    memcpy(&v, src, 4);
    if (copy) {
      HARP_CRC32C_PIN("r", v);
      memcpy(dst, &v, 4);
    }
    state = _mm_crc32_u32(state, v);
    HARP_X86_STEP(4);
  }
  if (bytes & 2) {
    uint16_t v;
    memcpy(&v, src, 2);
    if (copy) {
      HARP_CRC32C_PIN("r", v);
      memcpy(dst, &v, 2);
    }
    state = _mm_crc32_u16(state, v);
    HARP_X86_STEP(2);
  }
#undef HARP_X86_STEP
  if (bytes & 1) {
    uint32_t v = *src;
    if (copy) {
      HARP_CRC32C_PIN("r", v);
      *dst = (uint8_t)v;
    }
    state = _mm_crc32_u8(state, (uint8_t)v);
  }
  return state;
}

#endif
