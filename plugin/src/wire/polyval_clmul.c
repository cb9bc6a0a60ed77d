/* SPDX-License-Identifier: Apache-2.0 */
/* POLYVAL with PCLMULQDQ. Called through polyval.c's choice, from any thread; no state. */
#include "wire/polyval_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "wire/cpu_x86.h"

#define CLMUL        __attribute__((target("sse4.2,pclmul")))
#define CLMUL_INLINE __attribute__((target("sse4.2,pclmul"), always_inline)) static inline

CLMUL_INLINE __m128i load(const uint8_t *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Returns the sum of all products, divided by x^128. */
CLMUL_INLINE __m128i reduce(__m128i low, __m128i middle, __m128i high) {
  const __m128i modulus = _mm_cvtsi64_si128((long long)HARP_POLYVAL_MODULUS);
  low = _mm_xor_si128(low, _mm_slli_si128(middle, 8));
  high = _mm_xor_si128(high, _mm_srli_si128(middle, 8));
  low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, modulus, 0x00));
  low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, modulus, 0x00));
  return _mm_xor_si128(high, low);
}

/* Returns the hash continued with `count` blocks, whose powers begin at `powers`. */
CLMUL_INLINE __m128i fold(__m128i sum, const uint8_t *powers, const uint8_t *src, unsigned count) {
  __m128i low = _mm_setzero_si128(), middle = low, high = low;
  for (unsigned i = 0; i < count; i++) {
    __m128i x = _mm_xor_si128(load(src + (size_t)i * HARP_POLYVAL_BYTES), sum);
    __m128i h = load(powers + (size_t)i * HARP_POLYVAL_BYTES);
    sum = _mm_setzero_si128();
    low = _mm_xor_si128(low, _mm_clmulepi64_si128(x, h, 0x00));
    high = _mm_xor_si128(high, _mm_clmulepi64_si128(x, h, 0x11));
    middle = _mm_xor_si128(middle, _mm_clmulepi64_si128(x, h, 0x01));
    middle = _mm_xor_si128(middle, _mm_clmulepi64_si128(x, h, 0x10));
  }
  return reduce(low, middle, high);
}

CLMUL static void clmul_add(const struct harp_polyval_key *key, uint8_t *sum, const void *data,
                            size_t bytes) {
  const uint8_t *src = data;
  __m128i acc = load(sum);
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
  _mm_storeu_si128((__m128i *)(void *)sum, acc);
}

static bool clmul_supported(uint64_t hwcap) {
  (void)hwcap;
  return harp_x86_features() & HARP_X86_SSE42;
}

const struct harp_polyval_kernel harp_polyval_clmul = {
    .id = HARP_POLYVAL_CLMUL, .name = "clmul", .supported = clmul_supported, .add = clmul_add};

#else
const struct harp_polyval_kernel harp_polyval_clmul = {.id = HARP_POLYVAL_CLMUL, .name = "clmul"};
#endif
