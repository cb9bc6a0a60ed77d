/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C by folding with AVX-512 and VPCLMULQDQ. Called through crc32c.c's choice, from any thread; no state.
 *
 * Long inputs are cut into braids (`braid`), the rest is folded as follows. A zmm register holds four 16-byte
 * accumulators; four of them take 256 bytes a round, each multiplied 256 bytes forward and XORed with what
 * stands there (crc32c_kernel.h, "folding"). Blocks of 64 bytes that are left over go into the registers in
 * turn, whose order thereby rotates. At the end all sixteen lanes move onto the last one in one step, each by
 * its own distance, and two crc32 instructions reduce it. The rest below 64 bytes, and all of a short input,
 * go through the crc32 instruction. Leaves the upper halves of the vector registers clear, so that SSE code
 * after it pays nothing. */
#include "wire/crc32c_kernel.h"

#if defined(__x86_64__)
#include "wire/crc32c_x86.h"

#define AVX512                                                                                               \
  __attribute__((target("avx512f,avx512bw,avx512vbmi2,vpclmulqdq,avx2,pclmul," HARP_X86_TARGET_CRC32)))
#define AVX512_INLINE                                                                                        \
  __attribute__((target("avx512f,avx512bw,avx512vbmi2,vpclmulqdq,avx2,pclmul," HARP_X86_TARGET_CRC32),       \
                 always_inline)) static inline

enum {
  BLOCK_BYTES = 64,
  ROUND_BYTES = 4 * BLOCK_BYTES,
  CHAIN_STEP_BYTES = 40, /* what each chain of a braid takes beside a round */
  BRAID_ROUND_BYTES = ROUND_BYTES + HARP_CRC32C_BRAID_CHAINS * CHAIN_STEP_BYTES,
  BRAID_ROUNDS = HARP_CRC32C_BRAID_CHAIN_BYTES / CHAIN_STEP_BYTES,
  FOLDED_MIN_BYTES = 2 * BLOCK_BYTES, /* below, one chain of crc32 instructions is as fast */
  ALIGNED_MIN_BYTES = 512,            /* copies from here on align their stores */
  XOR3 = 0x96,                        /* vpternlog: the parity of three bits */
  LAST_LANE = 0xc0,                   /* mask of qwords */
};

AVX512_INLINE __m512i fold(__m512i acc, __m512i row, __m512i next) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(acc, row, 0x00),
                                   _mm512_clmulepi64_epi128(acc, row, 0x11), next, XOR3);
}

/* Loads one block, and stores it at dst if `copy`. */
AVX512_INLINE __m512i take(bool copy, uint8_t *dst, const uint8_t *src) {
  __m512i v = _mm512_loadu_si512(src);
  if (copy) {
    HARP_CRC32C_PIN("v", v);
    _mm512_storeu_si512(dst, v);
  }
  return v;
}

/* Returns the sixteen lanes of a, b, c, d (in the order of the message) moved onto the last one. */
AVX512_INLINE __m128i collapse(__m512i a, __m512i b, __m512i c, __m512i d) {
  const uint64_t(*rows)[2] = harp_crc32c_fold;
  /* The last lane's distance is 0: it stays as it is. */
  __m512i sum = _mm512_maskz_mov_epi64(LAST_LANE, d);
  __m256i half;

  sum = fold(a, _mm512_load_si512(rows[0]), sum);
  sum = fold(b, _mm512_load_si512(rows[4]), sum);
  sum = fold(c, _mm512_load_si512(rows[8]), sum);
  sum = fold(d, _mm512_load_si512(rows[12]), sum);
  half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Returns `state` advanced by the quadwords whose X is `multiplier`. */
AVX512_INLINE uint64_t advance(uint64_t state, uint32_t multiplier) {
  __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state), _mm_cvtsi32_si128((int)multiplier), 0);
  return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Returns a chain's state advanced over CHAIN_STEP_BYTES bytes. */
AVX512_INLINE uint64_t chain_step(uint64_t chain, const uint8_t *src) {
  chain = _mm_crc32_u64(chain, harp_x86_load_8(src));
  chain = _mm_crc32_u64(chain, harp_x86_load_8(src + 8));
  chain = _mm_crc32_u64(chain, harp_x86_load_8(src + 16));
  chain = _mm_crc32_u64(chain, harp_x86_load_8(src + 24));
  return _mm_crc32_u64(chain, harp_x86_load_8(src + 32));
}

/* Asks for the lines of what a braid takes in a round; src may lie behind the input. */
AVX512_INLINE void prefetch_round(const uint8_t *src) {
  for (size_t at = 0; at < BRAID_ROUND_BYTES; at += BLOCK_BYTES)
    _mm_prefetch((const char *)src + at, _MM_HINT_T0);
}

/* Returns `state` advanced over the HARP_CRC32C_BRAID_BYTES bytes at src. Folding is bound by the multiplier
 * (Zen 5: one product of a zmm in two cycles, 16 bytes a cycle), which leaves the unit of the crc32
 * instruction idle. So beside each round of folding three chains of crc32 instructions take what stands
 * behind the folded part: 22 bytes a cycle. All four begin with a state of 0 and are joined at the end, so
 * that the next braid need not wait for it. Each is too short for the processor's own prefetch, so a round
 * asks for a part of the next braid (80 instead of 65 GB/s from memory). */
AVX512_INLINE uint64_t braid(uint64_t state, const uint8_t *src) {
  enum { CHAIN_BYTES = HARP_CRC32C_BRAID_CHAIN_BYTES };
  const __m512i row = _mm512_broadcast_i32x4(harp_x86_fold_row(16));
  const uint8_t *behind = src + (size_t)BRAID_ROUNDS * ROUND_BYTES, *ahead = src + HARP_CRC32C_BRAID_BYTES;
  __m512i a = _mm512_loadu_si512(src), b = _mm512_loadu_si512(src + BLOCK_BYTES);
  __m512i c = _mm512_loadu_si512(src + 2 * BLOCK_BYTES), d = _mm512_loadu_si512(src + 3 * BLOCK_BYTES);
  uint64_t first = chain_step(0, behind), second = chain_step(0, behind + CHAIN_BYTES);
  uint64_t third = chain_step(0, behind + 2 * CHAIN_BYTES), joined;

  for (unsigned round = 1; round < BRAID_ROUNDS; round++) {
    src += ROUND_BYTES;
    behind += CHAIN_STEP_BYTES;
    a = fold(a, row, _mm512_loadu_si512(src));
    b = fold(b, row, _mm512_loadu_si512(src + BLOCK_BYTES));
    c = fold(c, row, _mm512_loadu_si512(src + 2 * BLOCK_BYTES));
    d = fold(d, row, _mm512_loadu_si512(src + 3 * BLOCK_BYTES));
    prefetch_round(ahead);
    ahead += BRAID_ROUND_BYTES;
    first = chain_step(first, behind);
    second = chain_step(second, behind + CHAIN_BYTES);
    third = chain_step(third, behind + 2 * CHAIN_BYTES);
  }
  joined = harp_x86_reduce(collapse(a, b, c, d));
  joined = advance(joined, harp_crc32c_braid[0]) ^ first;
  joined = advance(joined, harp_crc32c_braid[0]) ^ second;
  joined = advance(joined, harp_crc32c_braid[0]) ^ third;
  _mm256_zeroupper();
  return advance(state, harp_crc32c_braid[1]) ^ joined;
}

/* Takes the first `bytes` bytes (1..63; 64 can be read) as a block of their own, as if zeros stood before
 * them: moved to the end of the block with the preset XORed in. Of a preset that reaches beyond them the rest
 * is left in *preset. */
AVX512_INLINE __m512i take_head(uint8_t *dst, const uint8_t *src, size_t bytes, uint64_t *preset) {
  const __mmask64 low = (1ull << bytes) - 1, high = ~0ull << (BLOCK_BYTES - bytes);
  __m512i v = _mm512_maskz_loadu_epi8(low, src);

  HARP_CRC32C_PIN("v", v);
  _mm512_mask_storeu_epi8(dst, low, v);
  v = _mm512_xor_si512(v, _mm512_zextsi128_si512(_mm_cvtsi64_si128((long long)*preset)));
  *preset >>= 8 * HARP_MIN(bytes, (size_t)4);
  return _mm512_maskz_expand_epi8(high, v);
}

/* Both functions: `copy` is a compile-time constant; without it dst is not used. */
AVX512_INLINE uint32_t run(uint32_t seed, bool copy, uint8_t *dst, const uint8_t *src, size_t bytes) {
  uint64_t state = (uint32_t)~seed;
  __m512i a, b, c, d;
  __m128i last;

  if (!copy)
    for (; bytes >= HARP_CRC32C_BRAID_BYTES; bytes -= HARP_CRC32C_BRAID_BYTES, src += HARP_CRC32C_BRAID_BYTES)
      state = braid(state, src);
  if (bytes < FOLDED_MIN_BYTES) return ~harp_x86_crc_short((uint32_t)state, copy, dst, src, bytes);

#define TAKE(n)   take(copy, copy ? dst + (n)*BLOCK_BYTES : NULL, src + (n)*BLOCK_BYTES)
#define PRESET(v) _mm512_xor_si512(v, _mm512_zextsi128_si512(_mm_cvtsi64_si128((long long)state)))
#define SKIP(n)   (src += (n), dst = copy ? dst + (n) : NULL, bytes -= (size_t)(n))
  if (bytes < ROUND_BYTES) {
    /* Two or three blocks: as if zeros stood before them. */
    a = PRESET(TAKE(0));
    b = TAKE(1);
    if (bytes < 3 * BLOCK_BYTES) {
      last = collapse(_mm512_setzero_si512(), _mm512_setzero_si512(), a, b);
      SKIP(2 * BLOCK_BYTES);
    } else {
      last = collapse(_mm512_setzero_si512(), a, b, TAKE(2));
      SKIP(3 * BLOCK_BYTES);
    }
  } else {
    const __m512i row = _mm512_broadcast_i32x4(
        _mm_load_si128((const __m128i *)(const void *)harp_crc32c_fold[HARP_CRC32C_FOLD_ROW(16)]));
    size_t head_bytes = copy ? -(uintptr_t)dst % BLOCK_BYTES : 0;

    /* Stores that straddle cache lines cost a third of the speed, loads that do nothing: align dst. */
    if (bytes >= ALIGNED_MIN_BYTES && head_bytes) {
      a = take_head(dst, src, head_bytes, &state);
      SKIP(head_bytes);
      b = PRESET(TAKE(0));
      c = TAKE(1);
      d = TAKE(2);
      SKIP(3 * BLOCK_BYTES);
    } else {
      a = PRESET(TAKE(0));
      b = TAKE(1);
      c = TAKE(2);
      d = TAKE(3);
      SKIP(4 * BLOCK_BYTES);
    }
    for (; bytes >= ROUND_BYTES; SKIP(ROUND_BYTES)) {
      a = fold(a, row, TAKE(0));
      b = fold(b, row, TAKE(1));
      c = fold(c, row, TAKE(2));
      d = fold(d, row, TAKE(3));
    }
    switch (bytes / BLOCK_BYTES) {
    case 0:
      last = collapse(a, b, c, d);
      break;
    case 1:
      a = fold(a, row, TAKE(0));
      last = collapse(b, c, d, a);
      SKIP(1 * BLOCK_BYTES);
      break;
    case 2:
      a = fold(a, row, TAKE(0));
      b = fold(b, row, TAKE(1));
      last = collapse(c, d, a, b);
      SKIP(2 * BLOCK_BYTES);
      break;
    default:
      a = fold(a, row, TAKE(0));
      b = fold(b, row, TAKE(1));
      c = fold(c, row, TAKE(2));
      last = collapse(d, a, b, c);
      SKIP(3 * BLOCK_BYTES);
      break;
    }
  }
#undef TAKE
#undef PRESET
#undef SKIP
  state = harp_x86_reduce(last);
  _mm256_zeroupper();
  return ~harp_x86_crc_short((uint32_t)state, copy, dst, src, bytes);
}

AVX512 static uint32_t avx512_crc(uint32_t seed, const void *data, size_t bytes) {
  return run(seed, false, NULL, data, bytes);
}

AVX512 static uint32_t avx512_copy(uint32_t seed, void *dst, const void *src, size_t bytes) {
  return run(seed, true, dst, src, bytes);
}

static bool avx512_supported(uint64_t hwcap) {
  (void)hwcap;
  return harp_x86_features() & HARP_X86_AVX512;
}

const struct harp_crc32c_kernel harp_crc32c_avx512 = {
    .id = HARP_CRC32C_AVX512,
    .name = "avx512",
    .supported = avx512_supported,
    .crc = avx512_crc,
    .copy = avx512_copy,
};
#else
const struct harp_crc32c_kernel harp_crc32c_avx512 = {.id = HARP_CRC32C_AVX512, .name = "avx512"};
#endif
