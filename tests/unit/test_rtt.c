/* SPDX-License-Identifier: Apache-2.0 */
/* Round-trip times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/rtt.h"
#include "wire/packet.h"

static void test_the_first_sample_counts_fully(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 1000);
  assert_false(harp_rtt_known(&r));
  assert_int_equal(r.smoothed_ns, HARP_RTT_INITIAL_NS);
  harp_rtt_on_sample(&r, HARP_US(40), 0, 2000);
  assert_true(harp_rtt_known(&r));
  assert_int_equal(r.smoothed_ns, HARP_US(40));
  assert_int_equal(r.variation_ns, HARP_US(20));
  assert_int_equal(r.min_ns, HARP_US(40));
}

static void test_equal_samples_settle(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  harp_rtt_on_sample(&r, HARP_MS(9), 0, 1);
  for (int i = 0; i < 200; i++) harp_rtt_on_sample(&r, HARP_US(100), 0, HARP_US(i));
  assert_in_range(r.smoothed_ns, HARP_US(99), HARP_US(101));
  assert_in_range(r.variation_ns, 0, HARP_US(1));
  assert_int_equal(r.min_ns, HARP_US(100));
}

static void test_a_spike_moves_smoothed_by_an_eighth_and_variation_by_a_quarter(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  harp_rtt_on_sample(&r, 8000, 0, 1);
  harp_rtt_on_sample(&r, 16000, 0, 2);
  assert_int_equal(r.smoothed_ns, 9000);
  assert_int_equal(r.variation_ns, 4000 + 2000 - 1000);
  assert_int_equal(r.latest_ns, 16000);
  assert_int_equal(r.min_ns, 8000);
}

static void test_an_old_minimum_is_forgotten(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  harp_rtt_on_sample(&r, HARP_US(10), 0, 1); /* the old, short route */
  for (harp_ns t = HARP_SEC(1); t <= HARP_SEC(25); t += HARP_MS(500)) {
    harp_rtt_on_sample(&r, HARP_US(50), 0, t);
    if (t <= HARP_RTT_MIN_WINDOW_NS) assert_int_equal(r.min_ns, HARP_US(10));
  }
  assert_int_equal(r.min_ns, HARP_US(50));
}

static void test_a_zero_sample_is_no_unknown(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  harp_rtt_on_sample(&r, 0, 0, 1);
  assert_true(harp_rtt_known(&r));
}

enum { TICK = HARP_TICK_NS, BEFORE_WRAP = -10 };

/* The clocks differ by any amount, and the difference wraps; what the acknowledgement waited does not count.
 */
static void test_the_way_of_the_packet_alone(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  harp_rtt_on_sample(&r, HARP_US(100), (uint32_t)BEFORE_WRAP, 1);
  assert_int_equal(harp_rtt_there_ns(&r), HARP_US(100));
  harp_rtt_on_sample(&r, HARP_US(900), (uint32_t)BEFORE_WRAP, 2); /* the acknowledgement waited */
  assert_int_equal(harp_rtt_there_ns(&r), HARP_US(100));
  harp_rtt_on_sample(&r, HARP_US(900), (uint32_t)BEFORE_WRAP + 30, 3); /* the packet waited, too */
  assert_int_equal(harp_rtt_there_ns(&r), HARP_US(100) + 30 * TICK);
  harp_rtt_on_sample(&r, HARP_US(101), (uint32_t)BEFORE_WRAP + 30, 4); /* no more than the whole */
  assert_int_equal(harp_rtt_there_ns(&r), HARP_US(101));
  harp_rtt_on_sample(&r, HARP_US(200), (uint32_t)BEFORE_WRAP - 20, 5); /* a new lowest */
  assert_int_equal(harp_rtt_there_ns(&r), HARP_US(100));
}

/* Clocks that drift apart look like a queue until the lowest delay is forgotten. */
static void test_an_old_lowest_delay_is_forgotten(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  harp_rtt_on_sample(&r, HARP_US(50), 0, 1);
  for (harp_ns t = 2; t <= 3 * HARP_RTT_MIN_WINDOW_NS; t += HARP_MS(10))
    harp_rtt_on_sample(&r, HARP_US(50), 100, t);
  assert_int_equal(r.there_queue_ns, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_first_sample_counts_fully),
      cmocka_unit_test(test_equal_samples_settle),
      cmocka_unit_test(test_a_spike_moves_smoothed_by_an_eighth_and_variation_by_a_quarter),
      cmocka_unit_test(test_an_old_minimum_is_forgotten),
      cmocka_unit_test(test_a_zero_sample_is_no_unknown),
      cmocka_unit_test(test_the_way_of_the_packet_alone),
      cmocka_unit_test(test_an_old_lowest_delay_is_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
