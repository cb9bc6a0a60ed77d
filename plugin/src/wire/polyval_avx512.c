/* SPDX-License-Identifier: Apache-2.0 */
/* POLYVAL with AVX-512 and VPCLMULQDQ: a zmm register holds four blocks, a round takes sixteen. Called
 * through polyval.c's choice, from any thread; no state. Leaves the upper halves of the vector registers
 * clear. */
#include "wire/polyval_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "wire/cpu_x86.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,vpclmulqdq,avx2,pclmul")))
#define AVX512_INLINE                                                                                        \
  __attribute__((target("avx512f,avx512bw,vpclmulqdq,avx2,pclmul"), always_inline)) static inline

enum { VECTOR_BYTES = 64, XOR3 = 0x96 /* vpternlog: the parity of three bits */ };

/* Sums of products, a lane for each fourth block. */
struct sums {
  __m512i low, middle, high;
};

AVX512_INLINE void add_products(struct sums *s, __m512i x, __m512i h) {
  s->low = _mm512_xor_si512(s->low, _mm512_clmulepi64_epi128(x, h, 0x00));
  s->high = _mm512_xor_si512(s->high, _mm512_clmulepi64_epi128(x, h, 0x11));
  s->middle = _mm512_ternarylogic_epi64(s->middle, _mm512_clmulepi64_epi128(x, h, 0x01),
                                        _mm512_clmulepi64_epi128(x, h, 0x10), XOR3);
}

/* Returns the sum of the four lanes. */
AVX512_INLINE __m128i join(__m512i v) {
  __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Returns the sum of all products, divided by x^128, in the first lane; the others are zero. */
AVX512_INLINE __m512i reduce(const struct sums *s) {
  const __m128i modulus = _mm_cvtsi64_si128((long long)HARP_POLYVAL_MODULUS);
  __m128i low = join(s->low), middle = join(s->middle), high = join(s->high);
  low = _mm_xor_si128(low, _mm_slli_si128(middle, 8));
  high = _mm_xor_si128(high, _mm_srli_si128(middle, 8));
  low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, modulus, 0x00));
  low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, modulus, 0x00));
  return _mm512_zextsi128_si512(_mm_xor_si128(high, low));
}

/* Returns the hash continued with a round. */
AVX512_INLINE __m512i fold_round(__m512i sum, const uint8_t *powers, const uint8_t *src) {
  struct sums s = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t at = 0; at < HARP_POLYVAL_ROUND_BYTES; at += VECTOR_BYTES) {
    __m512i x = _mm512_loadu_si512(src + at);
    add_products(&s, at ? x : _mm512_xor_si512(x, sum), _mm512_loadu_si512(powers + at));
  }
  return reduce(&s);
}

/* Returns a mask of the first `bytes` bytes of a vector. */
AVX512_INLINE __mmask64 first_bytes(size_t bytes) {
  return bytes >= VECTOR_BYTES ? ~0ull : (1ull << bytes) - 1;
}

/* Returns the hash continued with fewer bytes than a round. */
AVX512_INLINE __m512i fold_last(__m512i sum, const struct harp_polyval_key *key, const uint8_t *src,
                                size_t bytes) {
  struct sums s = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  size_t whole = harp_align_up(bytes, HARP_POLYVAL_BYTES);
  const uint8_t *powers = key->powers[HARP_POLYVAL_POWERS - whole / HARP_POLYVAL_BYTES];
  for (size_t at = 0; at < bytes; at += VECTOR_BYTES) {
    __m512i x = _mm512_maskz_loadu_epi8(first_bytes(bytes - at), src + at);
    add_products(&s, _mm512_xor_si512(x, sum), _mm512_maskz_loadu_epi8(first_bytes(whole - at), powers + at));
    sum = _mm512_setzero_si512();
  }
  return reduce(&s);
}

AVX512 static void avx512_add(const struct harp_polyval_key *key, uint8_t *sum, const void *data,
                              size_t bytes) {
  const uint8_t *src = data;
  __m512i acc = _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)sum));
  for (; bytes >= HARP_POLYVAL_ROUND_BYTES;
       bytes -= HARP_POLYVAL_ROUND_BYTES, src += HARP_POLYVAL_ROUND_BYTES)
    acc = fold_round(acc, key->powers[0], src);
  if (bytes) acc = fold_last(acc, key, src, bytes);
  _mm_storeu_si128((__m128i *)(void *)sum, _mm512_castsi512_si128(acc));
  _mm256_zeroupper();
}

static bool avx512_supported(uint64_t hwcap) {
  (void)hwcap;
  return harp_x86_features() & HARP_X86_AVX512;
}

const struct harp_polyval_kernel harp_polyval_avx512 = {
    .id = HARP_POLYVAL_AVX512, .name = "avx512", .supported = avx512_supported, .add = avx512_add};

#else
const struct harp_polyval_kernel harp_polyval_avx512 = {.id = HARP_POLYVAL_AVX512, .name = "avx512"};
#endif
