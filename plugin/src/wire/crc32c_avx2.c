/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C by folding with AVX2 and VPCLMULQDQ, for CPUs that have no AVX-512 (Zen 3, Alder Lake). Called
 * through crc32c.c's choice, from any thread; no state.
 *
 * As crc32c_avx512.c, with two accumulators of 16 bytes per register: four registers take 128 bytes a round.
 * At the end the eight lanes move onto the last one in one step. What is left below 128 bytes goes through
 * the crc32 instruction. Leaves the upper halves of the vector registers clear.
 *
 * The multiplier takes eight bytes a cycle on Zen 3, and the crc32 instruction, in another unit, as many. So
 * a checksum without a copy folds a part while chains of crc32 run over what follows it, as in
 * crc32c_sse42.c, but with twice as much in a register. */
#include "wire/crc32c_kernel.h"

#if defined(__x86_64__)
#include "wire/crc32c_x86.h"

#define AVX2 __attribute__((target("avx2,vpclmulqdq,pclmul," HARP_X86_TARGET_CRC32)))
#define AVX2_INLINE                                                                                          \
  __attribute__((target("avx2,vpclmulqdq,pclmul," HARP_X86_TARGET_CRC32), always_inline)) static inline

enum {
  BLOCK_BYTES = 32,
  ROUND_BYTES = 4 * BLOCK_BYTES, /* below, one chain of crc32 instructions is as fast */
  ALIGNED_MIN_BYTES = 512,       /* longer copies align their stores */
  /* Folding and chains together. In a round each chain takes five quadwords, so that both units have as much
   * to do; the last chain's end must be within reach of a join. */
  CHAINS = 3,
  MIXED_ROUNDS = 16,
  MIXED_FOLDED_BYTES = MIXED_ROUNDS * ROUND_BYTES,
  MIXED_STEP_BYTES = 40,
  MIXED_CHAIN_BYTES = MIXED_ROUNDS * MIXED_STEP_BYTES,
  MIXED_CHAIN_UNITS = MIXED_CHAIN_BYTES / HARP_CRC32C_JOIN_BYTES,
  MIXED_BYTES = MIXED_FOLDED_BYTES + CHAINS * MIXED_CHAIN_BYTES,
  /* As in crc32c_sse42.c: the processor finds no order in reads at four places. */
  PREFETCH_BYTES = 2 * MIXED_BYTES,
  PREFETCH_STEP_BYTES = MIXED_BYTES / MIXED_ROUNDS,
};

_Static_assert(MIXED_CHAIN_BYTES % HARP_CRC32C_JOIN_BYTES == 0 &&
                   CHAINS * MIXED_CHAIN_UNITS < HARP_CRC32C_JOIN_COUNT,
               "the folded part moves over three chains");

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

AVX2_INLINE __m256i row_of(size_t distance) {
  return _mm256_broadcastsi128_si256(harp_x86_fold_row(distance));
}

/* Returns the state that the last lane of four registers is worth with the lanes before it. */
AVX2_INLINE uint64_t state_of(__m256i a, __m256i b, __m256i c, __m256i d) {
  const uint64_t(*rows)[2] = harp_crc32c_fold + HARP_CRC32C_FOLD_ROW(7);
  __m128i last = _mm256_extracti128_si256(d, 1); /* the lane whose distance, and row, is 0: it stays */
  d = fold(c, load(rows[4]), fold(d, load(rows[6]), _mm256_setzero_si256()));
  d = fold(a, load(rows[0]), fold(b, load(rows[2]), d));
  last = _mm_xor_si128(last, _mm_xor_si128(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1)));
  return harp_x86_reduce(last);
}

/* Advances three chains over a quadword each. */
AVX2_INLINE void step(uint64_t chains[CHAINS], const uint8_t *src) {
  for (unsigned i = 0; i < CHAINS; i++)
    chains[i] = _mm_crc32_u64(chains[i], harp_x86_load_8(src + i * MIXED_CHAIN_BYTES));
}

/* Advances a state over MIXED_BYTES. */
AVX2_INLINE uint64_t mixed(uint64_t state, const uint8_t *src) {
  const __m256i row = row_of(8);
  const uint8_t *chained = src + MIXED_FOLDED_BYTES, *end = chained - ROUND_BYTES;
  __m256i a = _mm256_xor_si256(load(src), _mm256_zextsi128_si256(_mm_cvtsi64_si128((long long)state)));
  __m256i b = load(src + BLOCK_BYTES), c = load(src + 2 * BLOCK_BYTES), d = load(src + 3 * BLOCK_BYTES);
  uint64_t chains[CHAINS] = {0};
  const char *ahead = (const char *)src + PREFETCH_BYTES;

  while (src < end) {
    src += ROUND_BYTES;
    for (unsigned i = 0; i < PREFETCH_STEP_BYTES; i += HARP_CACHE_LINE) _mm_prefetch(ahead + i, _MM_HINT_T0);
    ahead += PREFETCH_STEP_BYTES;
    a = fold(a, row, load(src));
    step(chains, chained);
    step(chains, chained + 8);
    b = fold(b, row, load(src + BLOCK_BYTES));
    step(chains, chained + 16);
    c = fold(c, row, load(src + 2 * BLOCK_BYTES));
    step(chains, chained + 24);
    d = fold(d, row, load(src + 3 * BLOCK_BYTES));
    step(chains, chained + 32);
    chained += MIXED_STEP_BYTES;
  }
  for (unsigned at = 0; at < MIXED_STEP_BYTES; at += 8) step(chains, chained + at);
  return _mm_crc32_u64(0, harp_x86_advance(state_of(a, b, c, d), 3 * MIXED_CHAIN_UNITS) ^
                              harp_x86_advance(chains[0], 2 * MIXED_CHAIN_UNITS) ^
                              harp_x86_advance(chains[1], MIXED_CHAIN_UNITS)) ^
         chains[2];
}

/* Both functions: `copy` is a compile-time constant; without it dst is not used. */
AVX2_INLINE uint32_t run(uint32_t seed, bool copy, uint8_t *dst, const uint8_t *src, size_t bytes) {
  const __m256i row = row_of(8);
  uint64_t state = (uint32_t)~seed;
  __m256i a, b, c, d;

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
  state = state_of(a, b, c, d);
  _mm256_zeroupper();
  return ~harp_x86_crc_short((uint32_t)state, copy, dst, src, bytes);
}

/* It is not inline: short inputs would pay for its registers. */
AVX2 static __attribute__((noinline)) uint32_t crc_long(uint32_t seed, const uint8_t *src, size_t bytes) {
  uint64_t state = (uint32_t)~seed;
  for (; bytes >= MIXED_BYTES; bytes -= MIXED_BYTES, src += MIXED_BYTES) state = mixed(state, src);
  _mm256_zeroupper();
  return run(~(uint32_t)state, false, NULL, src, bytes);
}

AVX2 static uint32_t avx2_crc(uint32_t seed, const void *data, size_t bytes) {
  return bytes < MIXED_BYTES ? run(seed, false, NULL, data, bytes) : crc_long(seed, data, bytes);
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
