/* SPDX-License-Identifier: Apache-2.0 */
/* Loss detection on one path: what is settled, lost, forgiven, given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/loss.h"

static struct harp_path p;
static struct harp_receive_window window = {.bytes = 4 << 20};
static struct harp_burst ring[HARP_FLIGHT_RECORDS_MAX];
static struct harp_tx_load load;
static struct harp_tx_stream st;
static struct harp_counters counters;
static struct harp_loss_result result;
enum { FIRST = 100, LINES = 8, PACKET = HARP_DATA_HEADER_BYTES + LINES * HARP_LINE_BYTES };

static int init(void **state) {
  (void)state;
  static const struct harp_path_config config = {.lines_max = LINES};
  window.inflight_bytes = 0;
  harp_path_init(&p, 0, FIRST, &config, &harp_cc_target, &window, ring, HARP_FLIGHT_RECORDS_MAX, 0);
  p.state = HARP_PATH_UP;
  harp_rtt_on_sample(&p.rtt, HARP_US(100));
  load = (struct harp_tx_load){0};
  harp_tx_stream_init(&st, &(struct harp_tx_stream_config){.id = 0}, &load, NULL, &counters);
  harp_tx_stream_on_credit(&st, 1);
  assert_int_equal(harp_tx_stream_post(&st, NULL, HARP_MESSAGE_MAX_BYTES, NULL, true, 0), 0);
  result = (struct harp_loss_result){0};
  return 0;
}

/* Sends `count` packets of LINES lines each; packet FIRST + i has the lines from LINES * i on. */
static void send(uint8_t count, harp_ns now) {
  struct harp_burst b = {.stream = &st,
                         .line = (uint32_t)(p.next_number - FIRST) * LINES,
                         .lines_per_packet = LINES,
                         .last_lines = LINES,
                         .packet_bytes = PACKET,
                         .count = count};
  harp_path_on_sent(&p, &b, now);
  harp_tx_stream_take_new(&st, count * (uint32_t)LINES);
}
static void acked(uint64_t begin, uint64_t end, harp_ns now) {
  harp_loss_on_acked(&p, begin, end, &result, NULL, now);
  harp_tx_stream_check(&st);
}
static void detect(harp_ns now) {
  harp_loss_detect(&p, &result, NULL, now);
  harp_tx_stream_check(&st);
}

static void test_acknowledged_packets_leave_the_flight(void **state) {
  (void)state;
  send(4, HARP_US(10));
  send(2, HARP_US(20));
  assert_int_equal(p.inflight_bytes, 6 * PACKET);
  acked(FIRST, FIRST + 5, HARP_US(110));
  assert_int_equal(p.inflight_bytes, PACKET);
  assert_int_equal(result.acked_bytes, 5 * PACKET);
  assert_int_equal(p.loss.largest_acked, FIRST + 4);
  assert_int_equal(p.loss.rack_sent_ns, HARP_US(20));
  acked(FIRST, FIRST + 5, HARP_US(111)); /* again: nothing new */
  assert_int_equal(result.acked_bytes, 5 * PACKET);
  assert_int_equal(harp_flight_count(&p.flight), 1);
}

/* What a record waited for is what was in flight when it was sent, not what is when it is acknowledged. */
static void test_flight_of_the_newest_acknowledged(void **state) {
  (void)state;
  send(4, HARP_US(10));
  send(2, HARP_US(20));
  acked(FIRST, FIRST + 4, HARP_US(110));
  assert_int_equal(result.flight_bytes, 4 * PACKET);
  acked(FIRST + 4, FIRST + 6, HARP_US(120));
  assert_int_equal(result.flight_bytes, 6 * PACKET);
  result = (struct harp_loss_result){0};
  acked(FIRST + 4, FIRST + 6, HARP_US(121)); /* again: nothing new */
  assert_int_equal(result.flight_bytes, 0);
}

static void test_a_gap_is_lost_only_when_old_enough(void **state) {
  (void)state;
  send(1, HARP_US(10));
  send(1, HARP_US(20));
  acked(FIRST + 1, FIRST + 2, HARP_US(115));
  detect(HARP_US(115));
  assert_int_equal(result.lost_bytes, 0); /* may be reordered */
  assert_true(p.loss.deadline_ns > HARP_US(110) && p.loss.deadline_ns < HARP_US(200));
  harp_ns at = p.loss.deadline_ns;
  detect(at - 1);
  assert_int_equal(result.lost_bytes, 0);
  detect(at);
  assert_int_equal(result.lost_bytes, PACKET);
  assert_int_equal(p.inflight_bytes, 0);
  assert_int_equal(st.resend.count, LINES);
  assert_true(p.loss.deadline_ns == HARP_NEVER);
}

static void send_probe(uint32_t lines, harp_ns now) {
  struct harp_burst b = {
      .packet_bytes = HARP_DATA_HEADER_BYTES + lines * HARP_LINE_BYTES, .count = 1, .is_padding = lines};
  harp_path_on_sent(&p, &b, now);
}

/* Time shows what became of a size probe; for other packets the path is probed as before. */
static void test_a_size_probe_that_later_packets_passed_is_waited_for(void **state) {
  (void)state;
  p.loss.reorder_ns = HARP_MS(20);
  send_probe(LINES + 3, 0);
  assert_true(harp_path_pto_ns(&p) < HARP_MS(5)); /* nothing has passed it */
  send_probe(0, 0);
  acked(FIRST + 1, FIRST + 2, HARP_US(100));
  detect(HARP_US(100));
  assert_true(p.loss.deadline_ns > HARP_MS(20) && p.loss.deadline_ns < HARP_MS(30));
  assert_true(harp_path_pto_ns(&p) == p.loss.deadline_ns);
  send_probe(0, HARP_MS(9)); /* nothing has passed this one, and its time begins now */
  assert_true(harp_path_pto_ns(&p) > HARP_MS(9) && harp_path_pto_ns(&p) < p.loss.deadline_ns);
  acked(FIRST + 2, FIRST + 3, HARP_MS(9) + HARP_US(100));
  detect(p.loss.deadline_ns);
  assert_true(harp_path_pto_ns(&p) == HARP_NEVER);
}

static void test_packets_behind_the_youngest_acknowledged_are_not_judged(void **state) {
  (void)state;
  send(5, HARP_US(10));
  acked(FIRST + 1, FIRST + 2, HARP_US(115));
  detect(HARP_MS(50));
  assert_int_equal(result.lost_bytes, PACKET); /* the first only */
  assert_int_equal(p.inflight_bytes, 3 * PACKET);
}

static void test_without_an_acknowledgement_nothing_is_lost(void **state) {
  (void)state;
  send(5, HARP_US(10));
  detect(HARP_SEC(5));
  assert_int_equal(result.lost_bytes, 0);
  assert_true(p.loss.deadline_ns == HARP_NEVER);
}

static void test_a_late_acknowledgement_takes_the_loss_back(void **state) {
  (void)state;
  send(1, HARP_US(10));
  send(1, HARP_US(20));
  acked(FIRST + 1, FIRST + 2, HARP_US(115));
  detect(HARP_US(300));
  assert_int_equal(st.resend.count, LINES);
  harp_ns tolerance = p.loss.reorder_ns;
  acked(FIRST, FIRST + 1, HARP_US(310));
  assert_int_equal(result.spurious_packets, 1);
  assert_int_equal(st.resend.count, 0);
  assert_int_equal(p.inflight_bytes, 0);
  assert_true(p.loss.reorder_ns > tolerance);
  acked(FIRST, FIRST + 1, HARP_US(311)); /* is forgiven once */
  assert_int_equal(result.spurious_packets, 1);
}

static void test_a_learnt_tolerance_prevents_the_next_mistake(void **state) {
  (void)state;
  send(1, HARP_US(10));
  send(1, HARP_US(20));
  acked(FIRST + 1, FIRST + 2, HARP_US(115));
  detect(HARP_US(300));
  acked(FIRST, FIRST + 1, HARP_US(310)); /* 200 us later than an RTT */
  send(1, HARP_MS(1));
  send(1, HARP_MS(1) + HARP_US(10));
  acked(FIRST + 3, FIRST + 4, HARP_MS(1) + HARP_US(110));
  detect(HARP_MS(1) + HARP_US(250));
  assert_int_equal(st.resend.count, 0);
}

static void test_a_tolerance_is_forgotten_in_time(void **state) {
  (void)state;
  harp_ns least = p.loss.reorder_ns;
  send(1, HARP_US(10));
  send(1, HARP_US(20));
  acked(FIRST + 1, FIRST + 2, HARP_US(115));
  detect(HARP_US(300));
  acked(FIRST, FIRST + 1, HARP_SEC(2)); /* the peer was stopped */
  assert_int_equal(p.loss.reorder_ns, HARP_MS(20));
  for (int i = 0; i < 10; i++) harp_loss_on_round(&p);
  assert_in_range(p.loss.reorder_ns, HARP_MS(15), HARP_MS(20));
  for (int i = 0; i < 1000; i++) harp_loss_on_round(&p);
  assert_int_equal(p.loss.reorder_ns, least);
}

static void test_giving_up_settles_everything(void **state) {
  (void)state;
  send(64, HARP_US(10));
  send(3, HARP_US(20));
  acked(FIRST + 10, FIRST + 11, HARP_US(115));
  harp_tx_stream_on_delivered(&st, 2 * LINES, HARP_US(120));
  harp_loss_give_up(&p, &result, NULL, HARP_MS(1));
  assert_int_equal(p.inflight_bytes, 0);
  /* but the acknowledged packet and what was delivered */
  assert_int_equal(st.resend.count, (67 - 1 - 2) * LINES);
}

/* A full ring whose only pending packet turns out lost must have room for its resend. */
static void test_a_full_flight_makes_room_by_time_alone(void **state) {
  (void)state;
  for (int i = 0; i < HARP_FLIGHT_RECORDS_MAX; i++) send(1, HARP_US(10));
  assert_true(harp_flight_is_full(&p.flight));
  acked(FIRST + 1, FIRST + HARP_FLIGHT_RECORDS_MAX, HARP_US(100));
  assert_true(harp_flight_is_full(&p.flight));
  detect(HARP_MS(10));
  assert_int_equal(st.resend.count, LINES);
  assert_false(harp_flight_is_full(&p.flight));
}

static void test_a_probe_has_no_lines_to_lose(void **state) {
  (void)state;
  struct harp_burst b = {.packet_bytes = HARP_DATA_HEADER_BYTES, .count = 1};
  harp_path_on_sent(&p, &b, HARP_US(10));
  harp_loss_give_up(&p, &result, NULL, HARP_MS(1));
  assert_int_equal(st.resend.count, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_acknowledged_packets_leave_the_flight, init),
      cmocka_unit_test_setup(test_flight_of_the_newest_acknowledged, init),
      cmocka_unit_test_setup(test_a_gap_is_lost_only_when_old_enough, init),
      cmocka_unit_test_setup(test_a_size_probe_that_later_packets_passed_is_waited_for, init),
      cmocka_unit_test_setup(test_packets_behind_the_youngest_acknowledged_are_not_judged, init),
      cmocka_unit_test_setup(test_without_an_acknowledgement_nothing_is_lost, init),
      cmocka_unit_test_setup(test_a_late_acknowledgement_takes_the_loss_back, init),
      cmocka_unit_test_setup(test_a_learnt_tolerance_prevents_the_next_mistake, init),
      cmocka_unit_test_setup(test_a_tolerance_is_forgotten_in_time, init),
      cmocka_unit_test_setup(test_giving_up_settles_everything, init),
      cmocka_unit_test_setup(test_a_full_flight_makes_room_by_time_alone, init),
      cmocka_unit_test_setup(test_a_probe_has_no_lines_to_lose, init),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
