/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C by folding with AVX2 and VPCLMULQDQ, for CPUs that have no AVX-512 (Zen 3, Alder Lake). Called
 * through crc32c.c's choice, from any thread; no state.
 *
 * As crc32c_avx512.c, with two accumulators of 16 bytes per register: four registers take 128 bytes a round.
 * At the end the eight lanes move onto the last one in one step. What is left below 128 bytes goes through
 * the crc32 instruction. Leaves the upper halves of the vector registers clear. */
#include "wire/crc32c_kernel.h"

#if defined(__x86_64__)
#include "wire/crc32c_x86.h"

#define AVX2 __attribute__((target("avx2,vpclmulqdq,pclmul," HARP_X86_TARGET_CRC32)))
#define AVX2_INLINE                                                                                          \
  __attribute__((target("avx2,vpclmulqdq,pclmul," HARP_X86_TARGET_CRC32), always_inline)) static inline

enum {
  BLOCK_BYTES = 32,
  ROUND_BYTES = 4 * BLOCK_BYTES, /* below, one chain of crc32 instructions is as fast */
  ALIGNED_MIN_BYTES = 512,       /* copies from here on align their stores */
};

AVX2_INLINE __m256i load(const void *p) {
  return _mm256_loadu_si256(p);
}

AVX2_INLINE __m256i fold(__m256i acc, __m256i row, __m256i next) {
  return _mm256_xor_si256(
      _mm256_xor_si256(_mm256_clmulepi64_epi128(acc, row, 0x00), _mm256_clmulepi64_epi128(acc, row, 0x11)),
      next);
}

/* Loads one block, and stores it at dst if `copy`. */
AVX2_INLINE __m256i take(bool copy, uint8_t *dst, const uint8_t *src) {
  __m256i v = load(src);
  if (copy) {
    HARP_CRC32C_PIN("x", v);
    _mm256_storeu_si256((__m256i *)(void *)dst, v);
  }
  return v;
}

/* Both functions: `copy` is a compile-time constant; without it dst is not used. */
AVX2_INLINE uint32_t run(uint32_t seed, bool copy, uint8_t *dst, const uint8_t *src, size_t bytes) {
  const __m256i row = _mm256_broadcastsi128_si256(
      _mm_load_si128((const __m128i *)(const void *)harp_crc32c_fold[HARP_CRC32C_FOLD_ROW(8)]));
  const uint64_t(*last_rows)[2] = harp_crc32c_fold + HARP_CRC32C_FOLD_ROW(7);
  uint64_t state = (uint32_t)~seed;
  __m256i a, b, c, d;
  __m128i last;

  if (bytes < ROUND_BYTES) return ~harp_x86_crc_short((uint32_t)state, copy, dst, src, bytes);

  if (copy && bytes >= ALIGNED_MIN_BYTES) { /* stores that straddle cache lines cost a third of the speed */
    size_t head_bytes = -(uintptr_t)dst % BLOCK_BYTES;
    state = harp_x86_crc_short((uint32_t)state, copy, dst, src, head_bytes);
    src += head_bytes;
    dst += head_bytes;
    bytes -= head_bytes;
  }
#define TAKE(n) take(copy, copy ? dst + (n)*BLOCK_BYTES : NULL, src + (n)*BLOCK_BYTES)
  a = _mm256_xor_si256(TAKE(0), _mm256_zextsi128_si256(_mm_cvtsi64_si128((long long)state)));
  b = TAKE(1);
  c = TAKE(2);
  d = TAKE(3);
  for (;;) {
    src += ROUND_BYTES;
    dst = copy ? dst + ROUND_BYTES : NULL;
    bytes -= ROUND_BYTES;
    if (bytes < ROUND_BYTES) break;
    a = fold(a, row, TAKE(0));
    b = fold(b, row, TAKE(1));
    c = fold(c, row, TAKE(2));
    d = fold(d, row, TAKE(3));
  }
#undef TAKE
  last = _mm256_extracti128_si256(d, 1); /* the lane whose distance, and row, is 0: it stays */
  d = fold(c, load(last_rows[4]), fold(d, load(last_rows[6]), _mm256_setzero_si256()));
  d = fold(a, load(last_rows[0]), fold(b, load(last_rows[2]), d));
  last = _mm_xor_si128(last, _mm_xor_si128(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1)));
  state = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last));
  state = _mm_crc32_u64(state, (uint64_t)_mm_extract_epi64(last, 1));
  _mm256_zeroupper();
  return ~harp_x86_crc_short((uint32_t)state, copy, dst, src, bytes);
}

AVX2 static uint32_t avx2_crc(uint32_t seed, const void *data, size_t bytes) {
  return run(seed, false, NULL, data, bytes);
}

AVX2 static uint32_t avx2_copy(uint32_t seed, void *dst, const void *src, size_t bytes) {
  return run(seed, true, dst, src, bytes);
}

static bool avx2_supported(uint64_t hwcap) {
  (void)hwcap;
  return harp_x86_features() & HARP_X86_AVX2;
}

const struct harp_crc32c_kernel harp_crc32c_avx2 = {
    .id = HARP_CRC32C_AVX2,
    .name = "avx2",
    .supported = avx2_supported,
    .crc = avx2_crc,
    .copy = avx2_copy,
};
#else
const struct harp_crc32c_kernel harp_crc32c_avx2 = {.id = HARP_CRC32C_AVX2, .name = "avx2"};
#endif
