/* SPDX-License-Identifier: Apache-2.0 */
/* Congestion control: both algorithms through the interface. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/cc.h"
#include "wire/packet.h"

enum { PACKET = HARP_DATA_HEADER_BYTES + 11 * HARP_LINE_BYTES, WINDOW_MAX = 8 << 20 };
static struct harp_cc cc;

static void start(const struct harp_cc_ops *ops) {
  harp_cc_init(&cc, ops, PACKET, WINDOW_MAX, 1);
}

/* One round trip in which the whole window was used. */
static void feed_round(harp_ns rtt_ns, uint32_t lost_bytes) {
  struct harp_cc_sample s = {.now = 1,
                             .rtt_ns = rtt_ns,
                             .rtt_min_ns = HARP_US(50),
                             .acked_bytes = cc.window_bytes - lost_bytes,
                             .lost_bytes = lost_bytes,
                             .inflight_bytes = cc.window_bytes,
                             .round_end = true};
  cc.ops->on_ack(&cc, &s);
}

static void test_names_are_found(void **state) {
  (void)state;
  assert_ptr_equal(harp_cc_find("target"), &harp_cc_target);
  assert_ptr_equal(harp_cc_find("reno"), &harp_cc_reno);
  assert_null(harp_cc_find("cubic"));
  assert_null(harp_cc_find(""));
  assert_null(harp_cc_find("del"));
  assert_null(harp_cc_find("delayed"));
}

static void test_the_window_keeps_its_bounds(void **state) {
  (void)state;
  start(&harp_cc_target);
  harp_cc_set_window(&cc, 0);
  assert_int_equal(cc.window_bytes, HARP_CC_MIN_PACKETS * PACKET);
  harp_cc_set_window(&cc, UINT64_MAX);
  assert_int_equal(cc.window_bytes, WINDOW_MAX);
  /* A bound below the least window gives the least one: the path must be able to send. */
  harp_cc_init(&cc, &harp_cc_reno, PACKET, 1000, 1);
  assert_int_equal(cc.window_bytes, HARP_CC_MIN_PACKETS * PACKET);
}

static void test_both_start_by_doubling(void **state) {
  (void)state;
  const struct harp_cc_ops *const all[] = {&harp_cc_target, &harp_cc_reno};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(all); i++) {
    start(all[i]);
    uint32_t before = cc.window_bytes;
    feed_round(HARP_US(50), 0);
    assert_int_equal(cc.window_bytes, 2 * before);
    for (int k = 0; k < 20; k++) feed_round(HARP_US(50), 0);
    assert_int_equal(cc.window_bytes, WINDOW_MAX);
  }
}

static void test_an_idle_window_does_not_grow(void **state) {
  (void)state;
  const struct harp_cc_ops *const all[] = {&harp_cc_target, &harp_cc_reno};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(all); i++) {
    start(all[i]);
    uint32_t before = cc.window_bytes;
    struct harp_cc_sample s = {.rtt_ns = HARP_US(50),
                               .rtt_min_ns = HARP_US(50),
                               .acked_bytes = PACKET,
                               .inflight_bytes = PACKET,
                               .round_end = true};
    for (int k = 0; k < 20; k++) cc.ops->on_ack(&cc, &s);
    assert_int_equal(cc.window_bytes, before);
  }
}

enum { FLOOR = 256 * 1024 }; /* of the window, as far as delay goes */

static void test_delay_yields_to_a_queue(void **state) {
  (void)state;
  start(&harp_cc_target);
  for (int k = 0; k < 20; k++) feed_round(HARP_US(50), 0);
  feed_round(HARP_MS(100), 0);
  assert_int_equal(cc.window_bytes, WINDOW_MAX / 2); /* never less than half at once */
  for (int k = 0; k < 40; k++) feed_round(HARP_MS(100), 0);
  assert_int_equal(cc.window_bytes, FLOOR); /* what is below is left to loss */
  feed_round(HARP_US(60), 0);               /* no queue: it grows again, by a share and no more by doubling */
  assert_in_range(cc.window_bytes, FLOOR + PACKET, FLOOR * 5 / 4);
  for (int k = 0; k < 60; k++) feed_round(HARP_MS(100), PACKET);
  uint32_t low = cc.window_bytes; /* loss took it below */
  assert_true(low < FLOOR);
  for (int k = 0; k < 400; k++) feed_round(HARP_MS(100), 0);
  assert_in_range(cc.window_bytes, FLOOR, FLOOR * 5 / 4); /* and delay does not keep it there */
}

/* Paths between the same ENIs have together what one has alone. */
static void test_sharers_divide_start_and_floor(void **state) {
  (void)state;
  harp_cc_init(&cc, &harp_cc_target, PACKET, WINDOW_MAX, 4);
  assert_int_equal(cc.window_bytes, HARP_CC_INITIAL_BYTES / 4);
  for (int k = 0; k < 20; k++) feed_round(HARP_US(50), 0);
  for (int k = 0; k < 40; k++) feed_round(HARP_MS(100), 0);
  assert_int_equal(cc.window_bytes, FLOOR / 4);
  harp_cc_set_window(&cc, 0);
  assert_int_equal(cc.window_bytes, HARP_CC_MIN_PACKETS / 4 * PACKET);
  harp_cc_init(&cc, &harp_cc_target, PACKET, WINDOW_MAX, 64); /* no path is left without a few packets */
  harp_cc_set_window(&cc, 0);
  assert_int_equal(cc.window_bytes, HARP_CC_SHARE_MIN_PACKETS * PACKET);
  for (int k = 0; k < 40; k++) feed_round(HARP_MS(100), 0);
  assert_in_range(cc.window_bytes, HARP_CC_SHARE_MIN_PACKETS * PACKET, FLOOR / 32);
}

static void test_delay_tolerates_random_loss_but_not_much(void **state) {
  (void)state;
  start(&harp_cc_target);
  for (int k = 0; k < 40; k++) feed_round(HARP_US(50), cc.window_bytes / 100);
  assert_int_equal(cc.window_bytes, WINDOW_MAX);
  for (int k = 0; k < 16; k++) feed_round(HARP_US(50), cc.window_bytes / 5);
  assert_in_range(cc.window_bytes, HARP_CC_MIN_PACKETS * PACKET, WINDOW_MAX / 4);
}

static void test_loss_that_a_smaller_window_does_not_cure_is_excused(void **state) {
  (void)state;
  start(&harp_cc_target);
  for (int k = 0; k < 300; k++) feed_round(HARP_US(50), cc.window_bytes / 10);
  assert_int_equal(cc.window_bytes, WINDOW_MAX);
  for (int k = 0; k < 16; k++) feed_round(HARP_US(50), cc.window_bytes / 3); /* but not much more of it */
  assert_true(cc.window_bytes < WINDOW_MAX / 2);
  start(&harp_cc_target); /* nor what a window above a policed rate loses: the rest of it */
  for (int k = 0; k < 300; k++)
    feed_round(HARP_US(50), cc.window_bytes > 500000 ? cc.window_bytes - 500000 : 0);
  assert_in_range(cc.window_bytes, 250000, 800000);
}

static void test_loss_beside_a_queue_counts(void **state) {
  (void)state;
  start(&harp_cc_target);
  for (int k = 0; k < 20; k++) feed_round(HARP_MS(2), cc.window_bytes / 100);
  assert_true(cc.window_bytes < FLOOR / 4);
  uint32_t before = cc.window_bytes;
  for (int k = 0; k < 20; k++) feed_round(HARP_MS(2), 0); /* and it grows by a packet a round */
  assert_in_range(cc.window_bytes, before + 18 * PACKET, before + 20 * PACKET);
}

static void test_one_slow_sample_of_a_round_is_not_a_queue(void **state) {
  (void)state;
  start(&harp_cc_target);
  uint32_t before = cc.window_bytes;
  struct harp_cc_sample s = {.rtt_ns = HARP_MS(50),
                             .rtt_min_ns = HARP_US(50),
                             .acked_bytes = PACKET,
                             .inflight_bytes = cc.window_bytes};
  cc.ops->on_ack(&cc, &s); /* a receiver that was descheduled */
  assert_int_equal(cc.window_bytes, before);
  feed_round(HARP_US(60), 0);
  assert_true(cc.window_bytes > before);
}

static void test_reno_halves_once_a_round(void **state) {
  (void)state;
  start(&harp_cc_reno);
  for (int k = 0; k < 3; k++) feed_round(HARP_US(50), 0);
  uint32_t before = cc.window_bytes;
  struct harp_cc_sample s = {.lost_bytes = PACKET, .inflight_bytes = before};
  for (int k = 0; k < 5; k++) cc.ops->on_ack(&cc, &s);
  assert_int_equal(cc.window_bytes, before);
  feed_round(HARP_US(50), 0);
  assert_int_equal(cc.window_bytes, before / 2);
  feed_round(HARP_US(50), 0);
  assert_int_equal(cc.window_bytes, before / 2 + PACKET); /* and grows by a packet from here on */
}

static void test_timeouts_shrink(void **state) {
  (void)state;
  start(&harp_cc_target);
  uint32_t before = cc.window_bytes;
  cc.ops->on_timeout(&cc);
  assert_int_equal(cc.window_bytes, before / 2);
  start(&harp_cc_reno);
  cc.ops->on_timeout(&cc);
  assert_int_equal(cc.window_bytes, HARP_CC_MIN_PACKETS * PACKET);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_are_found),
      cmocka_unit_test(test_the_window_keeps_its_bounds),
      cmocka_unit_test(test_both_start_by_doubling),
      cmocka_unit_test(test_an_idle_window_does_not_grow),
      cmocka_unit_test(test_delay_yields_to_a_queue),
      cmocka_unit_test(test_sharers_divide_start_and_floor),
      cmocka_unit_test(test_delay_tolerates_random_loss_but_not_much),
      cmocka_unit_test(test_loss_that_a_smaller_window_does_not_cure_is_excused),
      cmocka_unit_test(test_loss_beside_a_queue_counts),
      cmocka_unit_test(test_one_slow_sample_of_a_round_is_not_a_queue),
      cmocka_unit_test(test_reno_halves_once_a_round),
      cmocka_unit_test(test_timeouts_shrink),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
