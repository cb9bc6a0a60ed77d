/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of records: every field there and back, what is refused and why, and what CRC and proof notice. */
#include "wire/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/packets.h"

static const uint8_t key[HARP_MAC_KEY_BYTES] = {1, 2, 3}, other_key[HARP_MAC_KEY_BYTES] = {1, 2, 4};

static void test_data_there_and_back(void **state) {
  uint8_t head[HARP_RECORD_HEAD_BYTES];
  struct harp_packet in = data_packet(HARP_RECORD_MAX_BYTES);
  struct harp_record out;
  (void)state;
  harp_record_encode(head, &in, in.data.length, 0xabad1dea, PACKET_NUMBER, PACKET_SEED);
  assert_int_equal(harp_record_decode(head, &out), HARP_DROP_NONE);
  assert_true(harp_record_head_ok(head, PACKET_SEED, PACKET_NUMBER));
  const struct harp_packet *p = &out.packet;
  assert_int_equal(p->type, in.type);
  assert_int_equal(p->flags, in.flags);
  assert_int_equal(p->path, in.path);
  assert_true(p->token == in.token && p->number == (uint32_t)PACKET_NUMBER);
  assert_true(p->data.time == in.data.time && p->data.message == in.data.message);
  assert_true(p->data.line == in.data.line && p->data.offset == in.data.offset);
  assert_true(p->data.size == in.data.size && p->data.length == in.data.length);
  assert_int_equal(p->data.stream, in.data.stream);
  assert_true(out.length == in.data.length && out.payload_crc == 0xabad1dea);
  assert_true(harp_record_payload_ok(&out, 0xabad1dea));
  assert_false(harp_record_payload_ok(&out, 0xabad1deb));
}

static void test_only_data_goes_without_a_crc(void **state) {
  (void)state;
  for (int type = HARP_PACKET_DATA; type <= HARP_PACKET_JOIN; type++) {
    struct harp_record record = {
        .packet = {.type = (enum harp_packet_type)type, .flags = HARP_FLAG_UNCHECKED}, .payload_crc = 7};
    assert_int_equal(harp_record_payload_ok(&record, 8), type == HARP_PACKET_DATA);
    record.packet.flags = (uint8_t)~HARP_FLAG_UNCHECKED;
    assert_false(harp_record_payload_ok(&record, 8));
  }
}

static void test_every_bit_of_a_head_counts(void **state) {
  uint8_t head[HARP_RECORD_HEAD_BYTES];
  struct harp_packet in = data_packet(4096);
  (void)state;
  harp_record_encode(head, &in, 4096, 7, PACKET_NUMBER, PACKET_SEED);
  for (unsigned bit = 0; bit < sizeof head * 8; bit++) {
    head[bit / 8] ^= (uint8_t)(1u << bit % 8);
    assert_false(harp_record_head_ok(head, PACKET_SEED, PACKET_NUMBER));
    head[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  assert_true(harp_record_head_ok(head, PACKET_SEED, PACKET_NUMBER));
  assert_false(harp_record_head_ok(head, PACKET_SEED + 1, PACKET_NUMBER));
  assert_false(harp_record_head_ok(head, PACKET_SEED, PACKET_NUMBER + (1ull << 32)));
}

static enum harp_drop decoded(const struct harp_packet *in, uint32_t length) {
  uint8_t head[HARP_RECORD_HEAD_BYTES];
  struct harp_record out;
  harp_record_encode(head, in, length, 0, PACKET_NUMBER, PACKET_SEED);
  return harp_record_decode(head, &out);
}

static void test_what_makes_no_sense_is_refused(void **state) {
  (void)state;
  struct harp_packet p = data_packet(HARP_RECORD_MAX_BYTES + HARP_LINE_BYTES);
  assert_int_equal(decoded(&p, HARP_RECORD_MAX_BYTES + HARP_LINE_BYTES), HARP_DROP_FIELD);
  assert_int_equal(decoded(&p, UINT32_MAX), HARP_DROP_FIELD);
  p = data_packet(4096);
  assert_int_equal(decoded(&p, 4096), HARP_DROP_NONE);
  assert_int_equal(decoded(&p, 4224), HARP_DROP_FIELD); /* beyond the message */
  assert_int_equal(decoded(&p, 4000), HARP_DROP_FIELD); /* a part of a line that is not the last */
  assert_int_equal(decoded(&p, 0), HARP_DROP_FIELD);
  p.data.offset = 1;
  assert_int_equal(decoded(&p, 4096), HARP_DROP_FIELD);
  p = (struct harp_packet){.type = HARP_PACKET_PROBE};
  assert_int_equal(decoded(&p, 0), HARP_DROP_NONE);
  assert_int_equal(decoded(&p, HARP_LINE_BYTES), HARP_DROP_FIELD);
  p.type = HARP_PACKET_ACK;
  assert_int_equal(decoded(&p, HARP_ACK_HEADER_BYTES), HARP_DROP_NONE);
  assert_int_equal(decoded(&p, HARP_ACK_HEADER_BYTES - 1), HARP_DROP_FIELD);
  assert_int_equal(decoded(&p, HARP_ACK_MAX_BYTES + HARP_MAC_BYTES), HARP_DROP_NONE);
  assert_int_equal(decoded(&p, HARP_ACK_MAX_BYTES + HARP_MAC_BYTES + 1), HARP_DROP_FIELD);
  p.type = HARP_PACKET_JOIN;
  assert_int_equal(decoded(&p, 0), HARP_DROP_NONE);
  assert_int_equal(decoded(&p, 1), HARP_DROP_FIELD);
  p.type = (enum harp_packet_type)5;
  assert_int_equal(decoded(&p, 0), HARP_DROP_TYPE);
}

static void test_another_version_is_refused(void **state) {
  uint8_t head[HARP_RECORD_HEAD_BYTES];
  struct harp_packet in = data_packet(HARP_LINE_BYTES);
  struct harp_record out;
  (void)state;
  harp_record_encode(head, &in, HARP_LINE_BYTES, 0, PACKET_NUMBER, PACKET_SEED);
  head[offsetof(struct harp_wire_prefix, version)]++;
  assert_int_equal(harp_record_decode(head, &out), HARP_DROP_VERSION);
}

static void test_a_join_proves_whose_it_is(void **state) {
  uint8_t head[HARP_RECORD_HEAD_BYTES];
  struct harp_record out;
  (void)state;
  harp_record_encode_join(head, 0x0123456789abcdef, 9, 77, PACKET_SEED, key);
  assert_int_equal(harp_record_decode(head, &out), HARP_DROP_NONE);
  assert_int_equal(out.packet.type, HARP_PACKET_JOIN);
  assert_true(out.packet.token == 0x0123456789abcdef && out.packet.path == 9 && out.packet.number == 77);
  assert_true(harp_record_join_ok(head, PACKET_SEED, key));
  assert_false(harp_record_join_ok(head, PACKET_SEED, other_key));
  assert_false(harp_record_join_ok(head, PACKET_SEED + 1, key));
  for (unsigned i = 0; i < sizeof head; i++) {
    head[i] ^= 1;
    assert_false(harp_record_join_ok(head, PACKET_SEED, key));
    head[i] ^= 1;
  }
}

/* The MAC is of each bit of the head but the CRC, which is of the MAC, too. */
static void test_the_mac_of_a_head(void **state) {
  static const struct harp_mac_secret secret = {.hash = {1}, .tag = {2}},
                                      other_secret = {.hash = {1}, .tag = {3}};
  enum { LENGTH = 4096, CHECKED_FROM_BIT = 8 * HARP_CRC_FROM_BYTE };
  const uint64_t payload_mac = 0x0123456789abcdef;
  uint8_t head[HARP_RECORD_HEAD_BYTES];
  struct harp_packet in = data_packet(LENGTH);
  struct harp_mac_key mac_key, other_mac_key;
  struct harp_record out;
  (void)state;
  harp_mac_key_init(&mac_key, &secret);
  harp_mac_key_init(&other_mac_key, &other_secret);
  harp_record_encode(head, &in, LENGTH, 7, PACKET_NUMBER, PACKET_SEED);
  assert_false(harp_record_is_authentic(head, &mac_key, PACKET_NUMBER));
  harp_record_seal(head, &mac_key, payload_mac, PACKET_NUMBER, PACKET_SEED);
  assert_true(harp_record_head_ok(head, PACKET_SEED, PACKET_NUMBER));
  assert_int_equal(harp_record_decode(head, &out), HARP_DROP_NONE);
  assert_true(out.payload_mac == payload_mac && out.packet.data.stream == in.data.stream);
  assert_true(harp_record_is_authentic(head, &mac_key, PACKET_NUMBER));
  assert_false(harp_record_is_authentic(head, &other_mac_key, PACKET_NUMBER));
  assert_false(harp_record_is_authentic(head, &mac_key, PACKET_NUMBER + (1ull << 32)));
  for (unsigned bit = CHECKED_FROM_BIT; bit < sizeof head * 8; bit++) {
    head[bit / 8] ^= (uint8_t)(1u << bit % 8);
    assert_false(harp_record_is_authentic(head, &mac_key, PACKET_NUMBER));
    head[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_data_there_and_back),
      cmocka_unit_test(test_only_data_goes_without_a_crc),
      cmocka_unit_test(test_every_bit_of_a_head_counts),
      cmocka_unit_test(test_what_makes_no_sense_is_refused),
      cmocka_unit_test(test_another_version_is_refused),
      cmocka_unit_test(test_the_mac_of_a_head),
      cmocka_unit_test(test_a_join_proves_whose_it_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
