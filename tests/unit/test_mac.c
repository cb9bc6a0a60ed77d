/* SPDX-License-Identifier: Apache-2.0 */
/* POLYVAL: the published vector, every kernel against the definition bit by bit. MACs: a value computed
 * apart, pieces, and what each bit changes. */
#include "wire/mac.h"
#include "wire/packet.h"
#include "wire/polyval_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>

#include <cmocka.h>

enum { LONGEST_BYTES = 3 * HARP_POLYVAL_ROUND_BYTES + 40, NUMBER = 0x01020304 };

static uint8_t data[LONGEST_BYTES + 1];

/* Runs `check` once per kernel that this CPU has, and leaves the best one chosen. */
static void for_each_kernel(void (*check)(void)) {
  harp_polyval_init((uint64_t)getauxval(AT_HWCAP));
  for (unsigned k = 0; k < HARP_POLYVAL_COUNT; k++) {
    bool has = harp_polyval_select((enum harp_polyval_id)k);
    print_message("  %s%s\n", harp_polyval_name((enum harp_polyval_id)k), has ? "" : ": not here");
    if (has) check();
  }
  harp_polyval_init((uint64_t)getauxval(AT_HWCAP));
}

/* ---- POLYVAL ---- */

static unsigned bit_of(const uint8_t *block, unsigned i) {
  return block[i / 8] >> i % 8 & 1;
}

/* Divides a block by x: where its lowest bit is set, P (polyval_kernel.h) is added first. */
static void divide_by_x(uint8_t *block) {
  unsigned lowest = block[0] & 1;
  for (unsigned i = 0; i < 15; i++) block[i] = (uint8_t)(block[i] >> 1 | block[i + 1] << 7);
  block[15] >>= 1;
  if (lowest) block[15] ^= 0xe1; /* (P + 1) / x: x^127 + x^126 + x^125 + x^120 */
}

/* The product of two blocks times x^-128, from its definition: the sum of b x^(i - 128) for each bit i of
 * a. */
static void dot_by_bits(const uint8_t *a, const uint8_t *b, uint8_t *out) {
  uint8_t sum[16] = {0};
  for (unsigned i = 0; i < 128; i++) {
    for (unsigned k = 0; bit_of(a, i) && k < 16; k++) sum[k] ^= b[k];
    divide_by_x(sum);
  }
  memcpy(out, sum, 16);
}

static void polyval_by_bits(const uint8_t *h, const uint8_t *src, size_t bytes, uint8_t *sum) {
  memset(sum, 0, 16);
  for (size_t at = 0; at < bytes; at++) {
    sum[at % 16] ^= src[at];
    if (at % 16 == 15 || at + 1 == bytes) dot_by_bits(sum, h, sum);
  }
}

static const uint8_t rfc_h[16] = {0x25, 0x62, 0x93, 0x47, 0x58, 0x92, 0x42, 0x76,
                                  0x1d, 0x31, 0xf8, 0x26, 0xba, 0x4b, 0x75, 0x7b};

/* RFC 8452, appendix A. */
static void check_published(void) {
  static const uint8_t blocks[32] = {0x4f, 0x4f, 0x95, 0x66, 0x8c, 0x83, 0xdf, 0xb6, 0x40, 0x17, 0x62,
                                     0xbb, 0x2d, 0x01, 0xa2, 0x62, 0xd1, 0xa2, 0x4d, 0xdd, 0x27, 0x21,
                                     0xd0, 0x06, 0xbb, 0xe4, 0x5f, 0x20, 0xd3, 0xc9, 0xf3, 0x62};
  static const uint8_t polyval[16] = {0xf7, 0xa3, 0xb4, 0x7b, 0x84, 0x61, 0x19, 0xfa,
                                      0xe5, 0xb7, 0x86, 0x6c, 0xf5, 0xe5, 0xb7, 0x7e};
  static const uint8_t a[16] = {0x66, 0xe9, 0x4b, 0xd4, 0xef, 0x8a, 0x2c, 0x3b,
                                0x88, 0x4c, 0xfa, 0x59, 0xca, 0x34, 0x2b, 0x2e};
  static const uint8_t b[16] = {0xff};
  static const uint8_t dot[16] = {0xeb, 0xe5, 0x63, 0x40, 0x1e, 0x7e, 0x91, 0xea,
                                  0x3a, 0xd6, 0x42, 0x6b, 0x81, 0x40, 0xc3, 0x94};
  struct harp_polyval_key key;
  uint8_t sum[16] = {0}, product[16];
  harp_polyval_key_init(&key, rfc_h);
  harp_polyval_add(&key, sum, blocks, sizeof blocks);
  assert_memory_equal(sum, polyval, 16);
  harp_polyval_dot(a, b, product);
  assert_memory_equal(product, dot, 16);
}

static void test_published(void **state) {
  (void)state;
  for_each_kernel(check_published);
}

/* Every length up to beyond three rounds, at two alignments, each at once and in two calls. */
static void check_definition(void) {
  struct harp_polyval_key key;
  harp_polyval_key_init(&key, rfc_h);
  for (size_t bytes = 0; bytes <= LONGEST_BYTES; bytes++) {
    const uint8_t *src = data + bytes % 2;
    uint8_t expected[16], sum[16] = {0};
    polyval_by_bits(rfc_h, src, bytes, expected);
    harp_polyval_add(&key, sum, src, bytes);
    assert_memory_equal(sum, expected, 16);
    size_t first = bytes / 2 / 16 * 16;
    memset(sum, 0, sizeof sum);
    harp_polyval_add(&key, sum, src, first);
    harp_polyval_add(&key, sum, src + first, bytes - first);
    assert_memory_equal(sum, expected, 16);
  }
}

static void test_definition(void **state) {
  (void)state;
  for_each_kernel(check_definition);
}

/* ---- MACs ---- */

static const struct harp_mac_secret secret = {
    .hash = {0x25, 0x62, 0x93, 0x47, 0x58, 0x92, 0x42, 0x76, 0x1d, 0x31, 0xf8, 0x26, 0xba, 0x4b, 0x75, 0x7b},
    .tag = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

static uint64_t mac_in_pieces(const struct harp_mac_key *key, const uint8_t *src, uint32_t bytes,
                              uint32_t piece, struct harp_mac_nonce nonce) {
  struct harp_mac_state s = {0};
  for (uint32_t at = 0; at < bytes; at += piece) harp_mac_add(key, &s, src + at, HARP_MIN(piece, bytes - at));
  return harp_mac_end(key, &s, nonce);
}

static void check_pieces(void) {
  const struct harp_mac_nonce nonce = {NUMBER, 3, HARP_PACKET_DATA};
  struct harp_mac_key key;
  harp_mac_key_init(&key, &secret);
  for (uint32_t bytes = 0; bytes < LONGEST_BYTES; bytes += 7) {
    uint64_t whole = mac_in_pieces(&key, data, bytes, LONGEST_BYTES, nonce);
    for (uint32_t piece = 1; piece < 70; piece++)
      assert_int_equal(mac_in_pieces(&key, data, bytes, piece, nonce), whole);
  }
}

static void test_pieces(void **state) {
  (void)state;
  for_each_kernel(check_pieces);
}

/* A value that a program of its own computed, in Python, from wire.md. */
static void check_computed_apart(void) {
  const struct harp_mac_nonce nonce = {0x0000000501020304, 3, HARP_PACKET_DATA};
  struct harp_mac_key key;
  uint8_t bytes[100];
  harp_mac_key_init(&key, &secret);
  for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(7 * i);
  assert_true(mac_in_pieces(&key, bytes, sizeof bytes, sizeof bytes, nonce) == 0xb0a0845a5c6d57c9ull);
}

static void test_computed_apart(void **state) {
  (void)state;
  for_each_kernel(check_computed_apart);
}

/* No bit of a packet, its length or its nonce can change. */
static void test_every_bit_counts(void **state) {
  enum { BYTES = 100 };
  struct harp_mac_key key;
  uint8_t wire[BYTES + HARP_MAC_BYTES];
  (void)state;
  harp_mac_key_init(&key, &secret);
  memcpy(wire, data, BYTES);
  assert_int_equal(harp_mac_seal(&key, wire, BYTES, NUMBER), sizeof wire);
  assert_true(harp_mac_ok(&key, wire, BYTES, NUMBER));
  for (unsigned bit = 0; bit < 8 * sizeof wire; bit++) {
    wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_false(harp_mac_ok(&key, wire, BYTES, NUMBER));
    wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  for (unsigned bit = 0; bit < 64; bit++) assert_false(harp_mac_ok(&key, wire, BYTES, NUMBER ^ 1ull << bit));

  const struct harp_mac_nonce nonce = {NUMBER, 3, HARP_PACKET_DATA}, path = {NUMBER, 2, HARP_PACKET_DATA},
                              type = {NUMBER, 3, HARP_PACKET_ACK};
  const uint8_t zeros[32] = {0};
  uint64_t mac = mac_in_pieces(&key, zeros, 31, 31, nonce);
  assert_true(mac != mac_in_pieces(&key, zeros, 31, 31, path));
  assert_true(mac != mac_in_pieces(&key, zeros, 31, 31, type));
  assert_true(mac != mac_in_pieces(&key, zeros, 32, 32, nonce)); /* zeros fill the last block */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_published),        cmocka_unit_test(test_definition),
      cmocka_unit_test(test_pieces),           cmocka_unit_test(test_computed_apart),
      cmocka_unit_test(test_every_bit_counts),
  };
  for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 2654435761u >> 13);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
