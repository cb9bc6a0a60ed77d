/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4, 64 and 128 bits of output. See siphash.h.
 *
 * Four 64-bit words start as the key XORed with four constants. Each 8-byte word of input, little-endian, is
 * XORed into v3, stirred in by two rounds and XORed into v0; the last word holds what is left and, in its top
 * byte, the length modulo 256. Then a constant is XORed into v2, four rounds follow, and all words XORed
 * together are the hash. The 128-bit variant differs by a constant at the start and at the end, and draws its
 * second half after a constant in v1 and four rounds more. */
#include "wire/siphash.h"

#include <string.h>

#include "base/endian.h"

enum {
  ROUNDS_PER_WORD = 2,
  ROUNDS_AT_END = 4,
  WIDE_START = 0xee, /* into v1, 128 bits */
  WIDE_END = 0xee,   /* into v2, 128 bits, where the 64-bit variant has 0xff */
  NARROW_END = 0xff,
  WIDE_SECOND = 0xdd, /* into v1, before the second half */
};

struct sip {
  uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate_left(uint64_t v, unsigned bits) {
  return (v << bits) | (v >> (64 - bits));
}

static inline void run_rounds(struct sip *s, int rounds) {
  for (int i = 0; i < rounds; i++) {
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate_left(s->v1, 13) ^ s->v0;
    s->v3 = rotate_left(s->v3, 16) ^ s->v2;
    s->v0 = rotate_left(s->v0, 32) + s->v3;
    s->v2 += s->v1;
    s->v3 = rotate_left(s->v3, 21) ^ s->v0;
    s->v1 = rotate_left(s->v1, 17) ^ s->v2;
    s->v2 = rotate_left(s->v2, 32);
  }
}

static inline uint64_t finish_hash(struct sip *s) {
  run_rounds(s, ROUNDS_AT_END);
  return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

static inline void absorb_word(struct sip *s, uint64_t word) {
  s->v3 ^= word;
  run_rounds(s, ROUNDS_PER_WORD);
  s->v0 ^= word;
}

/* Returns the words after all input, before the end constant. `start` goes into v1. */
static struct sip digest_of(const uint8_t *key, const uint8_t *data, size_t bytes, uint64_t start) {
  const uint64_t k0 = harp_load_le64(key), k1 = harp_load_le64(key + 8);
  struct sip s = {
      /* "somepseudorandomlygeneratedbytes", big-endian */
      .v0 = k0 ^ 0x736f6d6570736575,
      .v1 = k1 ^ 0x646f72616e646f6d ^ start,
      .v2 = k0 ^ 0x6c7967656e657261,
      .v3 = k1 ^ 0x7465646279746573,
  };
  uint64_t last = (uint64_t)bytes << 56;

  for (; bytes >= 8; data += 8, bytes -= 8) absorb_word(&s, harp_load_le64(data));
  for (size_t i = 0; i < bytes; i++) last |= (uint64_t)data[i] << (8 * i);
  absorb_word(&s, last);
  return s;
}

uint64_t harp_siphash(const uint8_t key[HARP_SIPHASH_KEY_BYTES], const void *data, size_t bytes) {
  struct sip s = digest_of(key, data, bytes, 0);

  s.v2 ^= NARROW_END;
  return finish_hash(&s);
}

void harp_siphash128(const uint8_t key[HARP_SIPHASH_KEY_BYTES], const void *data, size_t bytes,
                     uint8_t out[HARP_SIPHASH128_BYTES]) {
  struct sip s = digest_of(key, data, bytes, WIDE_START);

  s.v2 ^= WIDE_END;
  harp_store_le64(out, finish_hash(&s));
  s.v1 ^= WIDE_SECOND;
  harp_store_le64(out + 8, finish_hash(&s));
}
