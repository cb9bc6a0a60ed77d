/* SPDX-License-Identifier: Apache-2.0 */
/* What the congestion control learns of bytes that the receiver reports as marked (ECN). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/bring_up.h"
#include "proto/send.h"

enum { FIRST_NUMBER = 100, PACKET_LINES = 8, PACKET_BYTES = HARP_DATA_HEADER_BYTES + 1024, PACKETS = 4 };

static struct harp_sender *s;
static struct harp_tx_stream st;
static struct harp_counters counters;
static const uint8_t data[PACKETS * 1024];

/* A congestion control that only records. */
static unsigned samples;
static uint32_t sample_ce_bytes;

static void recording_init(struct harp_cc *cc) {
  (void)cc;
}

static void recording_on_ack(struct harp_cc *cc, const struct harp_cc_sample *sample) {
  (void)cc;
  samples++;
  sample_ce_bytes = sample->ce_bytes;
}

static void recording_on_timeout(struct harp_cc *cc) {
  (void)cc;
}

static void recording_on_busy(struct harp_cc *cc, harp_ns idle_ns) {
  (void)cc, (void)idle_ns;
}

static const struct harp_cc_ops recording = {"recording", recording_init, recording_on_ack,
                                             recording_on_timeout, recording_on_busy};

/* A path that has sent PACKETS packets as ECN-capable. */
static int init(void **state) {
  (void)state;
  struct harp_sender_config c = {.first_number = FIRST_NUMBER - 1,
                                 .stream_max = 1,
                                 .path_count = 1,
                                 .paths = {{.lines_max = PACKET_LINES, .ecn = true}},
                                 .window_bytes = 4 << 20,
                                 .cc = &recording};
  static const struct harp_tx_stream_config stream = {0};
  struct harp_tx_run run;
  s = malloc(harp_sender_bytes(&c));
  assert_non_null(s);
  memset(&counters, 0, sizeof counters);
  harp_sender_init(s, &c, NULL, &counters, 0);
  harp_sender_open(s, &st, &stream);
  bring_up(s, 0);
  assert_int_equal(harp_sender_post(s, &st, data, sizeof data, NULL, true, HARP_US(1)), 0);
  struct harp_tx_choice choice = harp_sender_choose(s, HARP_US(1));
  assert_int_equal(choice.kind, HARP_TX_NEW);
  harp_sender_take(s, &choice, PACKETS, &run, HARP_US(1));
  assert_int_equal(run.count, PACKETS);
  assert_true(run.ect);
  samples = 0;
  return 0;
}

static int fini(void **state) {
  (void)state;
  harp_sender_check(s);
  free(s);
  return 0;
}

/* Feeds an acknowledgement of so many packets with a sum of marked bytes. `newer`: by how much its number is
 * above that of the newest one. */
static void acknowledge(uint32_t packets, uint32_t ce_bytes, int newer) {
  struct harp_packet p = {.type = HARP_PACKET_ACK,
                          .number = (uint32_t)s->paths[0].ack_next - 1 + (uint32_t)newer};
  p.ack.window_bytes = HARP_WINDOW_MAX_BYTES;
  p.ack.ce_bytes = ce_bytes;
  p.ack.range_count = 1;
  p.ack.ranges[0].begin = FIRST_NUMBER;
  p.ack.ranges[0].end = FIRST_NUMBER + packets;
  assert_int_equal(harp_sender_on_ack(s, &p, harp_sender_ack_number(s, &p), HARP_US(100)), HARP_DROP_NONE);
}

static void test_new_bytes_are_in_the_sample(void **state) {
  (void)state;
  acknowledge(1, 0, 1);
  assert_int_equal(sample_ce_bytes, 0);
  acknowledge(2, PACKET_BYTES, 1);
  assert_int_equal(sample_ce_bytes, PACKET_BYTES);
  acknowledge(3, PACKET_BYTES, 1);
  assert_int_equal(sample_ce_bytes, 0);
  acknowledge(4, 3 * PACKET_BYTES, 1);
  assert_int_equal(sample_ce_bytes, 2 * PACKET_BYTES);
  assert_int_equal(samples, 4);
  assert_int_equal(counters.ce_reported_bytes, 3 * PACKET_BYTES);
  assert_int_equal(counters.absurd_marks, 0);
}

/* An acknowledgement without anything new makes no sample; the next one has its bytes. */
static void test_no_report_is_lost(void **state) {
  (void)state;
  acknowledge(1, 0, 1);
  acknowledge(1, PACKET_BYTES, 1);
  assert_int_equal(samples, 1);
  acknowledge(2, 2 * PACKET_BYTES, 1);
  assert_int_equal(sample_ce_bytes, 2 * PACKET_BYTES);
}

/* One that another has overtaken is no contradiction. */
static void test_an_older_sum_does_not_count(void **state) {
  (void)state;
  acknowledge(2, 2 * PACKET_BYTES, 1);
  acknowledge(1, PACKET_BYTES, 0);
  acknowledge(3, 2 * PACKET_BYTES, 1);
  assert_int_equal(sample_ce_bytes, 0);
  assert_int_equal(counters.absurd_marks, 0);
}

static void test_absurd_sums_are_counted_and_ignored(void **state) {
  (void)state;
  acknowledge(1, PACKET_BYTES, 1);
  acknowledge(2, PACKET_BYTES - 1, 1);
  assert_int_equal(sample_ce_bytes, 0);
  acknowledge(3, 100 * PACKET_BYTES, 1);
  assert_int_equal(sample_ce_bytes, 0);
  assert_int_equal(counters.absurd_marks, 2);
  acknowledge(4, 2 * PACKET_BYTES, 1);
  assert_int_equal(sample_ce_bytes, PACKET_BYTES);
}

int main(void) {
#define TEST(test) cmocka_unit_test_setup_teardown(test, init, fini)
  const struct CMUnitTest tests[] = {
      TEST(test_new_bytes_are_in_the_sample),
      TEST(test_no_report_is_lost),
      TEST(test_an_older_sum_does_not_count),
      TEST(test_absurd_sums_are_counted_and_ignored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
