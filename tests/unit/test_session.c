/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's dispatch: direction, path, checksum, state; and its life cycle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/bring_up.h"
#include "proto/session.h"
#include "wire/record.h"

static struct harp_session tx, rx;
static struct harp_sender *sender;
static struct harp_receiver *receiver;
static struct harp_counters tx_counters, rx_counters;
static struct harp_placement place;
static uint8_t staging[HARP_STAGING_BYTES], buffer[16 << 10], wire[HARP_PACKET_MAX_BYTES + HARP_MAC_BYTES];
enum { SEED = 77, ACK_SEED = 99 };

static const struct harp_receiver_config rc = {.path_count = 1, .stream_max = 1, .first_number = 50};
static struct harp_tx_stream tx_stream;
static struct harp_rx_stream rx_stream;

static const struct harp_sender_config sc = {.path_count = 1,
                                             .paths = {{.lines_max = 8}},
                                             .window_bytes = 1 << 20,
                                             .cc = &harp_cc_target,
                                             .stream_max = 1,
                                             .first_number = 50};

static int init(void **state) {
  (void)state;
  struct harp_tx_stream_config ts = {.id = 0};
  struct harp_rx_stream_config rs = {.staging = staging};
  struct harp_session_keys tx_keys = {1, 2, SEED, ACK_SEED}, rx_keys = {2, 1, ACK_SEED, SEED};
  sender = malloc(harp_sender_bytes(&sc));
  receiver = malloc(harp_receiver_bytes(&rc));
  assert_true(sender && receiver);
  memset(&tx_counters, 0, sizeof tx_counters);
  memset(&rx_counters, 0, sizeof rx_counters);
  harp_sender_init(sender, &sc, NULL, &tx_counters, 0);
  bring_up(sender, 0);
  harp_receiver_init(receiver, &rc, NULL, &rx_counters);
  harp_sender_open(sender, &tx_stream, &ts);
  harp_receiver_open(receiver, &rx_stream, &rs);
  harp_session_init(&tx, &tx_keys, sender, NULL);
  harp_session_init(&rx, &rx_keys, NULL, receiver);
  return 0;
}

static int fini(void **state) {
  (void)state;
  free(sender);
  free(receiver);
  return 0;
}

/* Encodes a packet of 100 bytes as the sender would and feeds it to `to`. */
static enum harp_drop data_to(struct harp_session *to, uint8_t path, uint64_t number, uint32_t seed) {
  static const uint8_t payload[100] = "payload";
  struct harp_packet f = {.type = HARP_PACKET_DATA,
                          .path = path,
                          .token = 1,
                          .data = {.size = 100, .length = 100}},
                     p;
  harp_packet_encode_data(wire, &f, number, seed, payload);
  assert_int_equal(harp_packet_decode(wire, HARP_DATA_HEADER_BYTES + 100, &p), HARP_DROP_NONE);
  return harp_session_on_packet(to, wire, HARP_DATA_HEADER_BYTES + 100, &p, &place, HARP_US(1));
}

static void test_a_good_packet_is_taken(void **state) {
  (void)state;
  assert_int_equal(data_to(&rx, 0, 50, SEED), HARP_DROP_NONE);
  assert_int_equal(place.count, 1);
  assert_int_equal(rx_counters.drops[HARP_DROP_NONE], 1);
}

static void test_a_bad_packet_is_counted_and_changes_nothing(void **state) {
  (void)state;
  static uint8_t before[1 << 16];
  assert_true(harp_receiver_bytes(&rc) <= sizeof before);
  memcpy(before, receiver, harp_receiver_bytes(&rc));
  assert_int_equal(data_to(&rx, 0, 50, SEED + 1), HARP_DROP_CRC);
  /* the number has another turn */
  assert_int_equal(data_to(&rx, 0, 50 + (1ull << 32), SEED), HARP_DROP_CRC);
  assert_int_equal(data_to(&rx, 1, 50, SEED), HARP_DROP_PATH);
  assert_int_equal(data_to(&rx, 255, 50, SEED), HARP_DROP_PATH);
  assert_int_equal(place.count, 0);
  assert_int_equal(rx_counters.drops[HARP_DROP_CRC], 2);
  assert_int_equal(rx_counters.drops[HARP_DROP_PATH], 2);
  assert_memory_equal(before, receiver, harp_receiver_bytes(&rc));
}

/* It acknowledges packets that were never sent, or is nonsense: whichever, its reason is counted. */
static void test_an_impossible_acknowledgement_is_counted(void **state) {
  (void)state;
  enum { FIRST = 50, FAR = 1000 };
  static const struct {
    uint32_t begin, end;
    enum harp_drop drop;
  } cases[] = {{FIRST + FAR, FIRST + FAR + 1, HARP_DROP_STALE_ACK}, {FIRST, FIRST, HARP_DROP_FIELD}};
  uint64_t used = tx_counters.rx_acks;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    struct harp_packet f = {.type = HARP_PACKET_ACK, .token = 2}, p;
    f.ack.range_count = 1;
    f.ack.ranges[0].begin = cases[i].begin;
    f.ack.ranges[0].end = cases[i].end;
    size_t bytes = harp_packet_encode_ack(wire, &f, i, ACK_SEED);
    assert_int_equal(harp_packet_decode(wire, bytes, &p), HARP_DROP_NONE);
    assert_int_equal(harp_session_on_packet(&tx, wire, (uint32_t)bytes, &p, &place, HARP_US(1)),
                     cases[i].drop);
    assert_int_equal(tx_counters.drops[cases[i].drop], 1);
  }
  assert_int_equal(tx_counters.rx_acks, used);
}

/* Feeds the session an acknowledgement of so many packets from the first one on. */
static enum harp_drop ack_to(struct harp_session *to, uint64_t number, uint32_t count) {
  struct harp_packet f = {.type = HARP_PACKET_ACK, .token = 2}, p;
  f.ack.range_count = count > 0;
  f.ack.ranges[0].begin = 50;
  f.ack.ranges[0].end = 50 + count;
  size_t bytes = harp_packet_encode_ack(wire, &f, number, ACK_SEED);
  assert_int_equal(harp_packet_decode(wire, bytes, &p), HARP_DROP_NONE);
  return harp_session_on_packet(to, wire, (uint32_t)bytes, &p, &place, HARP_US(1));
}

/* Only an acknowledgement of something that the session sent there proves that packets arrive on a path. */
static void test_an_acknowledgement_proves_the_path(void **state) {
  (void)state;
  struct harp_session_keys keys = {1, 2, SEED, ACK_SEED};
  struct harp_session both;
  struct harp_tx_run run;
  harp_sender_init(sender, &sc, NULL, &tx_counters, 0);
  receiver->unproved = 1;
  harp_session_init(&both, &keys, sender, receiver);
  assert_int_equal(ack_to(&both, 50, 0), HARP_DROP_NONE);
  assert_int_equal(ack_to(&both, 51, 1), HARP_DROP_STALE_ACK);
  assert_true(harp_receiver_is_unproved(receiver, 0));
  assert_true(send_next(sender, 1, &run, 0));
  assert_int_equal(ack_to(&both, 52, 1), HARP_DROP_NONE);
  assert_false(harp_receiver_is_unproved(receiver, 0));
}

/* ---- a payload that is copied in the pass that verifies it ---- */

enum { PART_BYTES = 24 * HARP_LINE_BYTES, PARTS = 4 };

/* Posts a receive for a message of PARTS packets, filled with 0xAA. */
static void post_receive(bool is_watched) {
  const uint8_t *early;
  memset(buffer, 0xAA, sizeof buffer);
  assert_int_equal(harp_receiver_post(receiver, &rx_stream, buffer, PARTS * PART_BYTES, is_watched, buffer,
                                      &place, &early, 0),
                   0);
}

/* Feeds one packet of that message, whose payload is `fill`, with a MAC where the sender has these. */
static enum harp_drop part(unsigned i, uint64_t number, uint8_t fill, uint32_t seed) {
  uint8_t payload[PART_BYTES];
  memset(payload, fill, sizeof payload);
  struct harp_packet f = {.type = HARP_PACKET_DATA,
                          .token = 1,
                          .data = {.line = i * (PART_BYTES / HARP_LINE_BYTES),
                                   .offset = i * PART_BYTES,
                                   .size = PARTS * PART_BYTES,
                                   .length = PART_BYTES}},
                     p;
  harp_packet_encode_data(wire, &f, number, seed, payload);
  uint32_t bytes = harp_session_seal(&tx, wire, HARP_DATA_HEADER_BYTES + PART_BYTES, number);
  assert_int_equal(harp_packet_decode(wire, bytes, &p), HARP_DROP_NONE);
  return harp_session_on_packet(&rx, wire, bytes, &p, &place, HARP_US(1));
}

/* Returns whether the i-th part of the buffer is full of a byte. */
static bool holds(unsigned i, uint8_t fill) {
  for (unsigned k = 0; k < PART_BYTES; k++)
    if (buffer[i * PART_BYTES + k] != fill) return false;
  return true;
}

static void test_a_payload_is_copied_while_it_is_verified(void **state) {
  (void)state;
  post_receive(false);
  assert_int_equal(part(0, 50, 1, SEED), HARP_DROP_NONE);
  assert_false(place.is_placed); /* what begins a message is verified first */
  assert_int_equal(part(1, 51, 2, SEED), HARP_DROP_NONE);
  assert_true(place.is_placed && holds(1, 2));
  assert_int_equal(part(2, 52, 3, SEED + 1), HARP_DROP_CRC);
  assert_int_equal(part(2, 52, 4, SEED), HARP_DROP_NONE);
  assert_true(place.is_placed && holds(2, 4));
}

static void test_what_has_arrived_is_not_overwritten_by_unverified_bytes(void **state) {
  (void)state;
  post_receive(false);
  assert_int_equal(part(0, 50, 1, SEED), HARP_DROP_NONE);
  assert_int_equal(part(1, 51, 2, SEED), HARP_DROP_NONE);
  assert_int_equal(part(3, 53, 3, SEED), HARP_DROP_NONE); /* before the one that it follows */
  assert_true(place.is_placed && holds(3, 3));
  assert_int_equal(part(1, 54, 9, SEED + 1), HARP_DROP_CRC);
  assert_int_equal(part(3, 55, 9, SEED + 1), HARP_DROP_CRC);
  assert_true(holds(1, 2) && holds(3, 3));
  assert_int_equal(part(2, 52, 4, SEED), HARP_DROP_NONE);
  assert_true(place.is_placed);
}

static void test_nothing_unverified_goes_where_somebody_reads(void **state) {
  (void)state;
  post_receive(true);
  assert_int_equal(part(0, 50, 1, SEED), HARP_DROP_NONE);
  assert_int_equal(part(1, 51, 9, SEED + 1), HARP_DROP_CRC);
  assert_true(holds(1, 0xAA));
  assert_int_equal(part(1, 51, 2, SEED), HARP_DROP_NONE);
  assert_false(place.is_placed);
}

static void test_nothing_unverified_goes_where_a_record_may_be_read(void **state) {
  (void)state;
  post_receive(false);
  assert_int_equal(part(0, 50, 1, SEED), HARP_DROP_NONE);
  rx.reading = (struct harp_records *)buffer; /* any: it is not looked into */
  assert_int_equal(part(1, 51, 9, SEED + 1), HARP_DROP_CRC);
  assert_true(holds(1, 0xAA));
}

static void test_directions_are_kept(void **state) {
  (void)state;
  struct harp_packet f = {.type = HARP_PACKET_ACK, .token = 1}, p;
  size_t bytes = harp_packet_encode_ack(wire, &f, 50, SEED);
  assert_int_equal(harp_packet_decode(wire, bytes, &p), HARP_DROP_NONE);
  assert_int_equal(harp_session_on_packet(&rx, wire, (uint32_t)bytes, &p, &place, 0), HARP_DROP_DIRECTION);
  assert_int_equal(data_to(&tx, 0, 50, ACK_SEED), HARP_DROP_DIRECTION);

  struct harp_record record = {.packet = {.type = HARP_PACKET_DATA, .token = 2}};
  uint64_t number;
  assert_int_equal(harp_session_on_head(&tx, 0, wire, &record, &number), HARP_DROP_DIRECTION);
}

/* ---- MACs ---- */

static const struct harp_session_macs tx_macs = {.is_on = true, .tx = {{1}, {2}}, .rx = {{3}, {4}}},
                                      rx_macs = {.is_on = true, .tx = {{3}, {4}}, .rx = {{1}, {2}}};

static void use_macs(void) {
  harp_session_use_macs(&tx, &tx_macs);
  harp_session_use_macs(&rx, &rx_macs);
}

/* Feeds `bytes` of the packet in `wire` to the session. */
static enum harp_drop feed(struct harp_session *to, uint32_t bytes) {
  struct harp_packet p;
  assert_int_equal(harp_packet_decode(wire, bytes, &p), HARP_DROP_NONE);
  return harp_session_on_packet(to, wire, bytes, &p, &place, HARP_US(1));
}

/* As who sees the traffic can make it: he computes the CRC's seed from another packet. */
static void test_a_packet_needs_its_mac(void **state) {
  enum { LENGTH = 100, BYTES = HARP_DATA_HEADER_BYTES + LENGTH };
  static const uint8_t payload[LENGTH] = "payload", forged[LENGTH] = "forged";
  struct harp_packet f = {.type = HARP_PACKET_DATA, .token = 1, .data = {.size = LENGTH, .length = LENGTH}};
  (void)state;
  use_macs();
  assert_int_equal(data_to(&rx, 0, 50, SEED), HARP_DROP_MAC); /* there is none */
  harp_packet_encode_data(wire, &f, 50, SEED, payload);
  uint32_t bytes = harp_session_seal(&tx, wire, BYTES, 50);
  assert_int_equal(bytes, BYTES + HARP_MAC_BYTES);
  assert_int_equal(feed(&rx, bytes - 1), HARP_DROP_MAC);
  harp_packet_encode_data(wire, &f, 50, SEED, forged);
  assert_int_equal(feed(&rx, bytes), HARP_DROP_MAC);
  f.flags = HARP_FLAG_SETTLED;
  harp_packet_encode_data(wire, &f, 50, SEED, payload);
  assert_int_equal(feed(&rx, bytes), HARP_DROP_MAC);
  f.flags = 0;
  harp_packet_encode_data(wire, &f, 51, SEED, payload);
  assert_int_equal(feed(&rx, bytes), HARP_DROP_MAC);
  harp_packet_encode_data(wire, &f, 50, SEED, payload);
  assert_int_equal(feed(&rx, bytes + 3), HARP_DROP_NONE); /* with padding behind it */
  assert_int_equal(feed(&rx, bytes), HARP_DROP_REPLAY);
  assert_int_equal(rx_counters.drops[HARP_DROP_MAC], 5);
}

static void test_an_acknowledgement_needs_its_mac(void **state) {
  struct harp_packet f = {.type = HARP_PACKET_ACK, .token = 2};
  struct harp_tx_run run;
  (void)state;
  use_macs();
  assert_int_equal(harp_sender_post(sender, &tx_stream, buffer, 100, NULL, true, 0), 0);
  assert_true(send_next(sender, 1, &run, 0));
  assert_int_equal(ack_to(&tx, 50, 1), HARP_DROP_MAC);
  f.ack.range_count = 1;
  f.ack.ranges[0].begin = 50, f.ack.ranges[0].end = 51;
  uint32_t bytes = (uint32_t)harp_packet_encode_ack(wire, &f, 50, ACK_SEED);
  bytes = harp_session_seal(&rx, wire, bytes, 50);
  f.ack.ranges[0].end = 52;
  (void)harp_packet_encode_ack(wire, &f, 50, ACK_SEED);
  assert_int_equal(feed(&tx, bytes), HARP_DROP_MAC);
  f.ack.ranges[0].end = 51;
  (void)harp_packet_encode_ack(wire, &f, 50, ACK_SEED);
  assert_int_equal(feed(&tx, bytes), HARP_DROP_NONE);
}

static void test_nothing_is_copied_before_its_mac_is_right(void **state) {
  (void)state;
  use_macs();
  post_receive(false);
  assert_int_equal(part(0, 50, 1, SEED), HARP_DROP_NONE);
  tx.has_macs = false;
  assert_int_equal(part(1, 51, 2, SEED), HARP_DROP_MAC);
  assert_true(holds(1, 0xAA));
}

static void test_life_goes_one_way(void **state) {
  (void)state;
  harp_session_fail(&rx, HARP_ERR_REMOTE, 1);
  assert_int_equal(rx.state, HARP_SESSION_FAILED);
  assert_int_equal(data_to(&rx, 0, 50, SEED), HARP_DROP_CLOSED);
  harp_session_fail(&rx, HARP_ERR_SYSTEM, 3); /* the first reason stays */
  assert_int_equal(rx.status, HARP_ERR_REMOTE);
  harp_session_close(&rx, 4);
  assert_int_equal(rx.state, HARP_SESSION_CLOSED);
  harp_session_close(&rx, 5);
  harp_session_fail(&rx, HARP_ERR_SYSTEM, 6);
  assert_int_equal(rx.state, HARP_SESSION_CLOSED);
  assert_int_equal(rx.status, HARP_ERR_REMOTE);
  harp_session_close(&tx, 7);
  assert_int_equal(tx.state, HARP_SESSION_CLOSED);
}

static void test_a_closed_sender_runs_no_timer(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(sender, &tx_stream, buffer, 100, NULL, true, 0), 0);
  assert_true(send_next(sender, 1, &run, 0));
  assert_true(harp_sender_choose(sender, 0).deadline_ns != HARP_NEVER);
  harp_session_close(&tx, 1);
  harp_session_on_timeout(&tx, HARP_SEC(100));
  assert_int_equal(tx_counters.probe_timeouts, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_good_packet_is_taken, init, fini),
      cmocka_unit_test_setup_teardown(test_a_bad_packet_is_counted_and_changes_nothing, init, fini),
      cmocka_unit_test_setup_teardown(test_an_impossible_acknowledgement_is_counted, init, fini),
      cmocka_unit_test_setup_teardown(test_an_acknowledgement_proves_the_path, init, fini),
      cmocka_unit_test_setup_teardown(test_a_payload_is_copied_while_it_is_verified, init, fini),
      cmocka_unit_test_setup_teardown(test_what_has_arrived_is_not_overwritten_by_unverified_bytes, init,
                                      fini),
      cmocka_unit_test_setup_teardown(test_nothing_unverified_goes_where_somebody_reads, init, fini),
      cmocka_unit_test_setup_teardown(test_nothing_unverified_goes_where_a_record_may_be_read, init, fini),
      cmocka_unit_test_setup_teardown(test_directions_are_kept, init, fini),
      cmocka_unit_test_setup_teardown(test_a_packet_needs_its_mac, init, fini),
      cmocka_unit_test_setup_teardown(test_an_acknowledgement_needs_its_mac, init, fini),
      cmocka_unit_test_setup_teardown(test_nothing_is_copied_before_its_mac_is_right, init, fini),
      cmocka_unit_test_setup_teardown(test_life_goes_one_way, init, fini),
      cmocka_unit_test_setup_teardown(test_a_closed_sender_runs_no_timer, init, fini),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
