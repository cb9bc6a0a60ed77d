/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams: documented bytes, every field there and back, what is dropped and why, and what the CRC
 * notices. */
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/packets.h"
#include "wire/crc32c.h"

enum { PROBE_BYTES = 1024 };

static struct harp_packet an_ack(uint32_t ranges) {
  struct harp_packet p = {
      .type = HARP_PACKET_ACK,
      .path = 15,
      .token = 0xfedcba9876543210,
      .ack = {.echo_time = 1,
              .echo_delay = 2,
              .time = 0x41424344,
              .window_bytes = 3 << 10,
              .range_count = ranges,
              .credit_count = ranges / 2,
              .ce_bytes = 0xf1f2f3f4},
  };
  for (uint32_t i = 0; i < ranges; i++) {
    p.ack.ranges[i].begin = 1000 - 10 * i;
    p.ack.ranges[i].end = 1005 - 10 * i;
  }
  for (uint32_t i = 0; i < ranges / 2; i++)
    p.ack.credits[i] = (struct harp_credit){(uint16_t)(i * 999), 0xfffffff0 + i};
  return p;
}

/* Puts the right CRC into bytes made by hand. */
static void fix_crc(uint8_t *wire, size_t bytes) {
  struct harp_be32 crc = harp_to_be32(harp_crc32c(harp_packet_seed(PACKET_SEED, PACKET_NUMBER),
                                                  wire + HARP_CRC_FROM_BYTE, bytes - HARP_CRC_FROM_BYTE));
  memcpy(wire, &crc, sizeof crc);
}

static void test_data_has_the_documented_bytes(void **state) {
  static const uint8_t payload[3] = {'a', 'b', 'c'};
  uint8_t expected[HARP_DATA_HEADER_BYTES + 3] = {
      0,    0,    0,    0,    1,    1,    1,    5,    0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
      0xff, 0xff, 0xff, 0xfe, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34,
      0,    0,    0x05, 0x00, 0,    0,    0x05, 0x03, 0,    3,    0x07, 0x89, 'a',  'b',  'c'};
  uint8_t wire[HARP_PACKET_MAX_BYTES];
  struct harp_packet p = data_packet(3);
  (void)state;
  harp_packet_encode_data(wire, &p, PACKET_NUMBER, PACKET_SEED, payload);
  fix_crc(expected, sizeof expected);
  assert_memory_equal(wire, expected, sizeof expected);
}

static void test_ack_has_the_documented_bytes(void **state) {
  uint8_t expected[HARP_ACK_HEADER_BYTES + 2 * HARP_ACK_RANGE_BYTES + HARP_ACK_CREDIT_BYTES] = {
      0,    0,    0,    0,    1,    3,    0,    15,   0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10, 0xff,
      0xff, 0xff, 0xfe, 0,    0,    0,    1,    0,    0,    0,    2,    0x41, 0x42, 0x43, 0x44, /* header */
      0,    3,    2,    1,    0xf1, 0xf2, 0xf3, 0xf4, 0,    0,    0x03, 0xe8, 0,    0,    0x03, 0xed, 0,
      0,    0x03, 0xde, 0,    0,    0x03, 0xe3, /* ranges */
      0xff, 0xff, 0xff, 0xf0, 0,    0,    0,    0};
  uint8_t wire[HARP_ACK_MAX_BYTES];
  struct harp_packet p = an_ack(2);
  (void)state;
  assert_int_equal(harp_packet_encode_ack(wire, &p, PACKET_NUMBER, PACKET_SEED), sizeof expected);
  fix_crc(expected, sizeof expected);
  assert_memory_equal(wire, expected, sizeof expected);
}

static void test_data_comes_back_at_any_alignment(void **state) {
  static uint8_t payload[HARP_PACKET_MAX_PAYLOAD_BYTES], buffer[HARP_PACKET_MAX_BYTES + 8];
  static const uint32_t lengths[] = {0,
                                     1,
                                     HARP_LINE_BYTES - 1,
                                     HARP_LINE_BYTES,
                                     HARP_LINE_BYTES + 1,
                                     11 * HARP_LINE_BYTES,
                                     HARP_PACKET_MAX_PAYLOAD_BYTES};
  struct harp_packet q;
  (void)state;
  for (size_t i = 0; i < sizeof payload; i++) payload[i] = (uint8_t)(i * 7 + 1);
  for (size_t i = 0; i < HARP_ARRAY_COUNT(lengths); i++) {
    for (size_t shift = 0; shift < 8; shift += 3) {
      uint8_t *wire = buffer + shift;
      struct harp_packet p = data_packet(lengths[i]);
      if (!lengths[i]) p.data.offset = p.data.size = 0; /* an empty message */
      harp_packet_encode_data(wire, &p, PACKET_NUMBER, PACKET_SEED, lengths[i] ? payload : NULL);
      size_t bytes = HARP_DATA_HEADER_BYTES + lengths[i];
      assert_int_equal(harp_packet_decode(wire, bytes, &q), HARP_DROP_NONE);
      assert_int_equal(q.type, p.type);
      assert_int_equal(q.flags, p.flags);
      assert_int_equal(q.path, p.path);
      assert_true(q.token == p.token);
      assert_int_equal(q.number, (uint32_t)PACKET_NUMBER);
      assert_int_equal(q.data.time, p.data.time);
      assert_int_equal(q.data.message, p.data.message);
      assert_int_equal(q.data.line, p.data.line);
      assert_int_equal(q.data.offset, p.data.offset);
      assert_int_equal(q.data.size, p.data.size);
      assert_int_equal(q.data.length, p.data.length);
      assert_ptr_equal(q.data.payload, wire + HARP_DATA_HEADER_BYTES);
      assert_memory_equal(q.data.payload, payload, lengths[i]);
      assert_true(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER));
    }
  }
}

static void test_probe_comes_back(void **state) {
  static uint8_t wire[HARP_PACKET_MAX_BYTES];
  struct harp_packet p = {.type = HARP_PACKET_PROBE, .path = 1, .data = {.time = 9, .length = PROBE_BYTES}},
                     q;
  (void)state;
  memset(wire, 0xee, sizeof wire);
  harp_packet_encode_probe(wire, &p, PACKET_NUMBER, PACKET_SEED);
  assert_int_equal(harp_packet_decode(wire, HARP_DATA_HEADER_BYTES + PROBE_BYTES, &q), HARP_DROP_NONE);
  assert_int_equal(q.type, HARP_PACKET_PROBE);
  assert_int_equal(q.data.time, 9);
  assert_int_equal(q.data.length, PROBE_BYTES);
  assert_true(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER));
  assert_int_equal(wire[HARP_DATA_HEADER_BYTES], 0);
  assert_int_equal(wire[HARP_DATA_HEADER_BYTES + 1023], 0);
  assert_int_equal(wire[HARP_DATA_HEADER_BYTES + PROBE_BYTES], 0xee);
}

static void test_acks_of_any_size_come_back(void **state) {
  uint8_t wire[HARP_ACK_MAX_BYTES];
  struct harp_packet q;
  (void)state;
  for (uint32_t n = 0; n <= HARP_RANGES_MAX; n++) {
    struct harp_packet p = an_ack(n);
    size_t bytes = harp_packet_encode_ack(wire, &p, PACKET_NUMBER, PACKET_SEED);
    assert_int_equal(bytes, HARP_ACK_HEADER_BYTES + n * HARP_ACK_RANGE_BYTES + n / 2 * HARP_ACK_CREDIT_BYTES);
    assert_int_equal(harp_packet_decode(wire, bytes, &q), HARP_DROP_NONE);
    assert_memory_equal(&q.ack, &p.ack,
                        offsetof(struct harp_packet, ack.ranges[n]) - offsetof(struct harp_packet, ack));
    for (uint32_t i = 0; i < n / 2; i++) {
      assert_int_equal(q.ack.credits[i].stream, p.ack.credits[i].stream);
      assert_int_equal(q.ack.credits[i].posted, p.ack.credits[i].posted);
    }
    assert_true(q.token == p.token);
    assert_true(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER));
    for (size_t cut = 0; cut < bytes; cut++)
      assert_int_equal(harp_packet_decode(wire, cut, &q), HARP_DROP_SHORT);
  }
}

static void test_cut_data_is_short(void **state) {
  uint8_t wire[HARP_PACKET_MAX_BYTES], payload[200] = {0};
  struct harp_packet p = data_packet(200), q;
  (void)state;
  harp_packet_encode_data(wire, &p, PACKET_NUMBER, PACKET_SEED, payload);
  for (size_t cut = 0; cut < HARP_DATA_HEADER_BYTES + 200; cut++)
    assert_int_equal(harp_packet_decode(wire, cut, &q), HARP_DROP_SHORT);
}

/* Behind a short packet inside a superframe lies padding up to the segment size: not part of the packet. */
static void test_bytes_behind_the_packet_are_ignored(void **state) {
  uint8_t wire[HARP_PACKET_MAX_BYTES], payload[200] = {0};
  struct harp_packet p = data_packet(200), q;
  (void)state;
  memset(wire, 0xdd, sizeof wire);
  harp_packet_encode_data(wire, &p, PACKET_NUMBER, PACKET_SEED, payload);
  assert_int_equal(harp_packet_decode(wire, sizeof wire, &q), HARP_DROP_NONE);
  assert_int_equal(q.data.length, 200);
  assert_int_equal(harp_packet_crc_bytes(&q), HARP_DATA_HEADER_BYTES + 200 - HARP_CRC_FROM_BYTE);
  assert_true(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER));
  p = an_ack(2);
  memset(wire, 0xdd, sizeof wire);
  harp_packet_encode_ack(wire, &p, PACKET_NUMBER, PACKET_SEED);
  assert_int_equal(harp_packet_decode(wire, sizeof wire, &q), HARP_DROP_NONE);
  assert_int_equal(harp_packet_crc_bytes(&q), HARP_ACK_HEADER_BYTES + 2 * HARP_ACK_RANGE_BYTES +
                                                  HARP_ACK_CREDIT_BYTES - HARP_CRC_FROM_BYTE);
  assert_true(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER));
}

static enum harp_drop decode_with(struct harp_packet *p) {
  static uint8_t wire[UINT16_MAX];
  struct harp_wire_data h = {
      .prefix = {.version = HARP_WIRE_VERSION, .type = (uint8_t)p->type},
      .offset = harp_to_be32(p->data.offset),
      .size = harp_to_be32(p->data.size),
      .length = harp_to_be16((uint16_t)p->data.length),
  };
  struct harp_packet q;
  memcpy(wire, &h, sizeof h);
  return harp_packet_decode(wire, sizeof wire, &q);
}

static void test_fields_out_of_range_are_dropped(void **state) {
  static const struct {
    uint32_t offset, size, length;
    enum harp_drop drop;
  } cases[] = {
      {0, 0, 0, HARP_DROP_NONE},
      {0, 1, 1, HARP_DROP_NONE},
      {128, 256, 128, HARP_DROP_NONE},
      {128, 129, 1, HARP_DROP_NONE},
      {0, HARP_PACKET_MAX_PAYLOAD_BYTES, HARP_PACKET_MAX_PAYLOAD_BYTES, HARP_DROP_NONE},
      {0xffffff80, 0xffffffff, 127, HARP_DROP_NONE},
      {1, 128, 127, HARP_DROP_FIELD}, /* not at a line */
      {64, 256, 128, HARP_DROP_FIELD},
      {0, 256, 127, HARP_DROP_FIELD}, /* ends within a line that is not the message's last */
      {0, 127, 128, HARP_DROP_FIELD}, /* beyond the message */
      {256, 256, 1, HARP_DROP_FIELD},
      {0xffffff80, 128, 256, HARP_DROP_FIELD}, /* end wraps at 32 bits */
      {0, 1, 0, HARP_DROP_FIELD},              /* nothing of something */
      {128, 128, 0, HARP_DROP_FIELD},
      {0, UINT32_MAX, HARP_PACKET_MAX_PAYLOAD_BYTES + HARP_LINE_BYTES, HARP_DROP_FIELD},
  };
  (void)state;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    struct harp_packet p = {
        .type = HARP_PACKET_DATA,
        .data = {.offset = cases[i].offset, .size = cases[i].size, .length = cases[i].length},
    };
    assert_int_equal(decode_with(&p), cases[i].drop);
  }
  struct harp_packet probe = {.type = HARP_PACKET_PROBE,
                              .data = {.length = HARP_PACKET_MAX_PAYLOAD_BYTES + 1}};
  assert_int_equal(decode_with(&probe), HARP_DROP_FIELD);
}

static void test_other_versions_and_types_are_dropped(void **state) {
  uint8_t wire[HARP_ACK_MAX_BYTES];
  struct harp_packet p = an_ack(1), q;
  (void)state;
  size_t bytes = harp_packet_encode_ack(wire, &p, PACKET_NUMBER, PACKET_SEED);
  for (unsigned v = 0; v < 256; v++) {
    wire[offsetof(struct harp_wire_prefix, version)] = (uint8_t)v;
    assert_int_equal(harp_packet_decode(wire, bytes, &q),
                     v == HARP_WIRE_VERSION ? HARP_DROP_NONE : HARP_DROP_VERSION);
  }
  wire[offsetof(struct harp_wire_prefix, version)] = HARP_WIRE_VERSION;
  for (unsigned t = 0; t < 256; t++) {
    wire[offsetof(struct harp_wire_prefix, type)] = (uint8_t)t;
    bool known = t >= HARP_PACKET_DATA && t <= HARP_PACKET_ACK;
    if (!known) assert_int_equal(harp_packet_decode(wire, bytes, &q), HARP_DROP_TYPE);
  }
  wire[offsetof(struct harp_wire_prefix, type)] = HARP_PACKET_ACK;
  wire[offsetof(struct harp_wire_ack, range_count)] = HARP_RANGES_MAX + 1;
  assert_int_equal(harp_packet_decode(wire, bytes, &q), HARP_DROP_FIELD);
}

static void test_crc_notices_every_changed_bit(void **state) {
  uint8_t wire[HARP_PACKET_MAX_BYTES], payload[130];
  struct harp_packet p = data_packet(sizeof payload), q;
  const size_t bytes = HARP_DATA_HEADER_BYTES + sizeof payload;
  (void)state;
  memset(payload, 0xa5, sizeof payload);
  harp_packet_encode_data(wire, &p, PACKET_NUMBER, PACKET_SEED, payload);
  for (size_t bit = 0; bit < bytes * 8; bit++) {
    wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
    if (harp_packet_decode(wire, sizeof wire, &q) == HARP_DROP_NONE)
      assert_false(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER));
    wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  assert_int_equal(harp_packet_decode(wire, bytes, &q), HARP_DROP_NONE);
  assert_true(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER));
}

static void test_crc_covers_seed_and_upper_half_of_the_number(void **state) {
  uint8_t wire[HARP_ACK_MAX_BYTES];
  struct harp_packet p = an_ack(0), q;
  (void)state;
  size_t bytes = harp_packet_encode_ack(wire, &p, PACKET_NUMBER, PACKET_SEED);
  assert_int_equal(harp_packet_decode(wire, bytes, &q), HARP_DROP_NONE);
  assert_true(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER));
  assert_false(harp_packet_crc_ok(wire, &q, PACKET_SEED ^ 1, PACKET_NUMBER));
  assert_false(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER + (1ull << 32)));
  assert_false(harp_packet_crc_ok(wire, &q, PACKET_SEED, PACKET_NUMBER - (1ull << 32)));
}

static void test_lines_and_ticks(void **state) {
  (void)state;
  assert_int_equal(harp_lines_of(0), 1);
  assert_int_equal(harp_lines_of(1), 1);
  assert_int_equal(harp_lines_of(128), 1);
  assert_int_equal(harp_lines_of(129), 2);
  assert_int_equal(harp_lines_of(1u << 30), 1u << 23);
  assert_int_equal(harp_ticks_from_ns(127), 1);
  assert_int_equal(harp_ticks_from_ns(64ull << 32), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_data_has_the_documented_bytes),
      cmocka_unit_test(test_ack_has_the_documented_bytes),
      cmocka_unit_test(test_data_comes_back_at_any_alignment),
      cmocka_unit_test(test_probe_comes_back),
      cmocka_unit_test(test_acks_of_any_size_come_back),
      cmocka_unit_test(test_cut_data_is_short),
      cmocka_unit_test(test_bytes_behind_the_packet_are_ignored),
      cmocka_unit_test(test_fields_out_of_range_are_dropped),
      cmocka_unit_test(test_other_versions_and_types_are_dropped),
      cmocka_unit_test(test_crc_notices_every_changed_bit),
      cmocka_unit_test(test_crc_covers_seed_and_upper_half_of_the_number),
      cmocka_unit_test(test_lines_and_ticks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
