/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C with SSE4.2 and PCLMULQDQ. Called through crc32c.c's choice, from any thread; no state.
 *
 * Checksum alone: the crc32 instruction takes eight bytes per cycle but answers after three, so three chains
 * run over three adjacent thirds of the data; a multiplication moves the first two over what follows them
 * (crc32c_kernel.h, "joining"). The multiplier is another unit of the processor, and takes eight bytes per
 * cycle as well: where there is enough data, a part is folded while the chains run over what follows it.
 * Copy: three chains would store in three places at once where stores have to ascend, so it folds four
 * accumulators of 16 bytes forward by 64 bytes per round; it takes as many
 * cycles. */
#include "wire/crc32c_kernel.h"

#if defined(__x86_64__)
#include "wire/crc32c_x86.h"

#define SSE42        __attribute__((target("pclmul," HARP_X86_TARGET_CRC32)))
#define SSE42_INLINE __attribute__((target("pclmul," HARP_X86_TARGET_CRC32), always_inline)) static inline

enum {
  CHAINS = 3,
  CHAINED_MIN_BYTES = CHAINS * HARP_CRC32C_JOIN_BYTES, /* below, one chain is as fast */
  CHAIN_UNITS_MAX = (HARP_CRC32C_JOIN_COUNT - 1) / 2,  /* the first chain moves over two others */
  FOLD_BYTES = 16,
  ROUND_BYTES = 4 * FOLD_BYTES,
  FOLDED_MIN_BYTES = 2 * ROUND_BYTES,
  /* Folding and chains together. In a round each chain takes three quadwords, so that both units have as much
   * to do; the last chain's end must be within reach of a join. */
  MIXED_ROUNDS = 24,
  MIXED_FOLDED_BYTES = MIXED_ROUNDS * ROUND_BYTES,
  MIXED_STEP_BYTES = 24,
  MIXED_CHAIN_BYTES = MIXED_ROUNDS * MIXED_STEP_BYTES,
  MIXED_CHAIN_UNITS = MIXED_CHAIN_BYTES / HARP_CRC32C_JOIN_BYTES,
  MIXED_BYTES = MIXED_FOLDED_BYTES + CHAINS * MIXED_CHAIN_BYTES,
  /* Reads at four places hide the order from the processor's own prefetching: of data that is not in L2 a
   * checksum takes 2.5 times as long without (8.8 instead of 22.3 GB/s, tests/bench/crc_bench.c). */
  PREFETCH_BYTES = 2 * MIXED_BYTES,
  PREFETCH_STEP_BYTES = MIXED_BYTES / MIXED_ROUNDS,
};

_Static_assert(MIXED_CHAIN_BYTES % HARP_CRC32C_JOIN_BYTES == 0 &&
                   CHAINS * MIXED_CHAIN_UNITS < HARP_CRC32C_JOIN_COUNT,
               "the folded part moves over three chains");

SSE42_INLINE __m128i fold(__m128i acc, __m128i row, __m128i next) {
  return _mm_xor_si128(
      _mm_xor_si128(_mm_clmulepi64_si128(acc, row, 0x00), _mm_clmulepi64_si128(acc, row, 0x11)), next);
}

SSE42_INLINE __m128i load16(const uint8_t *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Returns the state that the last of four accumulators is worth with the others before it. */
SSE42_INLINE uint64_t state_of(__m128i a, __m128i b, __m128i c, __m128i d) {
  d = fold(a, harp_x86_fold_row(3), fold(b, harp_x86_fold_row(2), fold(c, harp_x86_fold_row(1), d)));
  return harp_x86_reduce(d);
}

/* Advances three chains over a quadword each. */
SSE42_INLINE void step(uint64_t chains[CHAINS], const uint8_t *src) {
  for (unsigned i = 0; i < CHAINS; i++)
    chains[i] = _mm_crc32_u64(chains[i], harp_x86_load_8(src + i * MIXED_CHAIN_BYTES));
}

/* Advances a state over MIXED_BYTES. */
SSE42_INLINE uint64_t mixed(uint64_t state, const uint8_t *src) {
  const __m128i row = harp_x86_fold_row(4);
  const uint8_t *chained = src + MIXED_FOLDED_BYTES, *end = chained - ROUND_BYTES;
  __m128i a = _mm_xor_si128(load16(src), _mm_cvtsi64_si128((long long)state));
  __m128i b = load16(src + 16), c = load16(src + 32), d = load16(src + 48);
  uint64_t chains[CHAINS] = {0};
  const char *ahead = (const char *)src + PREFETCH_BYTES;

  while (src < end) {
    src += ROUND_BYTES;
    _mm_prefetch(ahead, _MM_HINT_T0);
    _mm_prefetch(ahead + 64, _MM_HINT_T0);
    ahead += PREFETCH_STEP_BYTES;
    a = fold(a, row, load16(src));
    step(chains, chained);
    b = fold(b, row, load16(src + 16));
    step(chains, chained + 8);
    c = fold(c, row, load16(src + 32));
    d = fold(d, row, load16(src + 48));
    step(chains, chained + 16);
    chained += MIXED_STEP_BYTES;
  }
  for (unsigned at = 0; at < MIXED_STEP_BYTES; at += 8) step(chains, chained + at);
  return _mm_crc32_u64(0, harp_x86_advance(state_of(a, b, c, d), 3 * MIXED_CHAIN_UNITS) ^
                              harp_x86_advance(chains[0], 2 * MIXED_CHAIN_UNITS) ^
                              harp_x86_advance(chains[1], MIXED_CHAIN_UNITS)) ^
         chains[2];
}

SSE42 static uint32_t sse42_crc(uint32_t seed, const void *data, size_t bytes) {
  const uint8_t *src = data;
  uint64_t a = (uint32_t)~seed;

  for (; bytes >= MIXED_BYTES; bytes -= MIXED_BYTES, src += MIXED_BYTES) a = mixed(a, src);
  while (bytes >= CHAINED_MIN_BYTES) {
    size_t units = HARP_MIN(bytes / CHAINED_MIN_BYTES, (size_t)CHAIN_UNITS_MAX);
    size_t chain_bytes = units * HARP_CRC32C_JOIN_BYTES;
    const uint8_t *end = src + chain_bytes;
    uint64_t b = 0, c = 0;

    while (src < end) {
      a = _mm_crc32_u64(a, harp_x86_load_8(src));
      b = _mm_crc32_u64(b, harp_x86_load_8(src + chain_bytes));
      c = _mm_crc32_u64(c, harp_x86_load_8(src + 2 * chain_bytes));
      a = _mm_crc32_u64(a, harp_x86_load_8(src + 8));
      b = _mm_crc32_u64(b, harp_x86_load_8(src + chain_bytes + 8));
      c = _mm_crc32_u64(c, harp_x86_load_8(src + 2 * chain_bytes + 8));
      src += 16;
    }
    a = _mm_crc32_u64(0, harp_x86_advance(a, 2 * units) ^ harp_x86_advance(b, units)) ^ c;
    src += 2 * chain_bytes;
    bytes -= CHAINS * chain_bytes;
  }
  return ~harp_x86_crc_short((uint32_t)a, false, NULL, src, bytes);
}

SSE42_INLINE __m128i move(uint8_t *dst, const uint8_t *src) {
  __m128i v = _mm_loadu_si128((const __m128i *)(const void *)src);
  HARP_CRC32C_PIN("x", v);
  _mm_storeu_si128((__m128i *)(void *)dst, v);
  return v;
}

SSE42 static uint32_t sse42_copy(uint32_t seed, void *to, const void *from, size_t bytes) {
  const uint8_t *src = from;
  uint8_t *dst = to;
  uint64_t state = (uint32_t)~seed;

  if (bytes >= FOLDED_MIN_BYTES) {
    const __m128i row = harp_x86_fold_row(4);
    __m128i a = _mm_xor_si128(move(dst, src), _mm_cvtsi64_si128((long long)state));
    __m128i b = move(dst + 16, src + 16);
    __m128i c = move(dst + 32, src + 32);
    __m128i d = move(dst + 48, src + 48);

    for (;;) {
      src += ROUND_BYTES;
      dst += ROUND_BYTES;
      bytes -= ROUND_BYTES;
      if (bytes < ROUND_BYTES) break;
      a = fold(a, row, move(dst, src));
      b = fold(b, row, move(dst + 16, src + 16));
      c = fold(c, row, move(dst + 32, src + 32));
      d = fold(d, row, move(dst + 48, src + 48));
    }
    state = state_of(a, b, c, d);
  }
  return ~harp_x86_crc_short((uint32_t)state, true, dst, src, bytes);
}

static bool sse42_supported(uint64_t hwcap) {
  (void)hwcap;
  return harp_x86_features() & HARP_X86_SSE42;
}

const struct harp_crc32c_kernel harp_crc32c_sse42 = {
    .id = HARP_CRC32C_SSE42,
    .name = "sse42",
    .supported = sse42_supported,
    .crc = sse42_crc,
    .copy = sse42_copy,
};
#else
const struct harp_crc32c_kernel harp_crc32c_sse42 = {.id = HARP_CRC32C_SSE42, .name = "sse42"};
#endif
