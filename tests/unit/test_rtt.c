/* SPDX-License-Identifier: Apache-2.0 */
/* Round-trip times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/rtt.h"
#include "wire/packet.h"

#define DRAIN_EVERY_NS HARP_MS(128)
enum { MIN_WINDOW_NS = DRAIN_EVERY_NS + HARP_RTT_MIN_INTERVAL_MORE_NS };

static void take(struct harp_rtt *r, harp_ns sample_ns, harp_ns now) {
  harp_rtt_on_sample(r, sample_ns);
  harp_rtt_on_base(r, sample_ns, 0, DRAIN_EVERY_NS, now);
}

static void test_the_first_sample_counts_fully(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 1000);
  assert_false(harp_rtt_is_known(&r));
  assert_int_equal(r.smoothed_ns, HARP_RTT_INITIAL_NS);
  take(&r, HARP_US(40), 2000);
  assert_true(harp_rtt_is_known(&r));
  assert_int_equal(r.smoothed_ns, HARP_US(40));
  assert_int_equal(r.variation_ns, HARP_US(20));
  assert_int_equal(r.min_ns, HARP_US(40));
}

static void test_equal_samples_settle(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  take(&r, HARP_MS(9), 1);
  for (int i = 0; i < 200; i++) take(&r, HARP_US(100), HARP_US(i));
  assert_in_range(r.smoothed_ns, HARP_US(99), HARP_US(101));
  assert_in_range(r.variation_ns, 0, HARP_US(1));
  assert_int_equal(r.min_ns, HARP_US(100));
}

static void test_a_spike_moves_smoothed_by_an_eighth_and_variation_by_a_quarter(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  take(&r, 8000, 1);
  take(&r, 16000, 2);
  assert_int_equal(r.smoothed_ns, 9000);
  assert_int_equal(r.variation_ns, 4000 + 2000 - 1000);
  assert_int_equal(r.latest_ns, 16000);
  assert_int_equal(r.min_ns, 8000);
}

/* The other host was stopped for 2 s: the pace must not follow that for seconds. */
static void test_a_pause_is_of_the_past_with_the_next_sample(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  for (int i = 0; i < 100; i++) harp_rtt_on_sample(&r, HARP_US(100));
  harp_rtt_on_sample(&r, HARP_SEC(2));
  assert_true(r.smoothed_ns > HARP_MS(100));
  harp_rtt_on_sample(&r, HARP_US(100));
  assert_int_equal(r.smoothed_ns, HARP_RTT_PAST_TIMES * HARP_US(100));
  assert_int_equal(r.variation_ns, HARP_RTT_PAST_TIMES * HARP_US(100));
}

static void test_an_old_minimum_is_forgotten(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  take(&r, HARP_US(10), 1); /* the old, short route */
  for (harp_ns t = HARP_SEC(1); t <= HARP_SEC(25); t += HARP_MS(500)) {
    take(&r, HARP_US(50), t);
    if (t <= MIN_WINDOW_NS) assert_int_equal(r.min_ns, HARP_US(10));
  }
  assert_int_equal(r.min_ns, HARP_US(50));
}

static void test_a_minimum_lasts_for_a_period_of_drains(void **state) {
  (void)state;
  const harp_ns every = 8 * DRAIN_EVERY_NS;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  harp_rtt_on_base(&r, HARP_MS(40), 0, every, 1);
  for (harp_ns t = HARP_MS(100); t <= 2 * every; t += HARP_MS(50))
    harp_rtt_on_base(&r, HARP_MS(60), 0, every, t);
  assert_int_equal(r.min_ns, HARP_MS(40));
  for (harp_ns t = 2 * every; t <= 2 * every + HARP_MS(100); t += HARP_MS(50))
    harp_rtt_on_base(&r, HARP_MS(60), 0, every, t);
  assert_int_equal(r.min_ns, HARP_MS(60)); /* a longer route */
}

static void test_a_zero_sample_is_no_unknown(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  take(&r, 0, 1);
  assert_true(harp_rtt_is_known(&r));
}

enum { TICK = HARP_TICK_NS, BEFORE_WRAP = -10 };

/* Takes a sample whose acknowledgement took so many ticks; returns what its packet took. */
static harp_ns there_of(struct harp_rtt *r, harp_ns sample_ns, uint32_t back_ticks, harp_ns now) {
  harp_rtt_on_base(r, sample_ns, back_ticks, DRAIN_EVERY_NS, now);
  return harp_rtt_there_ns(r, sample_ns);
}

/* The clocks differ by any amount, and the difference wraps; what the acknowledgement waited does not count,
 * but for a quarter of what is above the base. */
static void test_the_way_of_the_packet_alone(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  uint32_t least = (uint32_t)BEFORE_WRAP;
  assert_int_equal(there_of(&r, HARP_US(100), least, 1), HARP_US(100));
  assert_int_equal(there_of(&r, HARP_US(900), least, 2), HARP_US(900)); /* the packet waited */
  assert_int_equal(there_of(&r, HARP_US(900), least + 30, 3), HARP_US(900) - 30 * TICK);
  assert_int_equal(there_of(&r, HARP_US(900), least + HARP_US(800) / TICK, 4), HARP_US(300));
  assert_int_equal(there_of(&r, HARP_US(900), least - 20, 5), HARP_US(900)); /* a new lowest */
}

/* Clocks that drift apart look like a queue until the lowest delay is forgotten. */
static void test_an_old_lowest_delay_is_forgotten(void **state) {
  (void)state;
  struct harp_rtt r;
  harp_rtt_init(&r, 0);
  harp_ns now = 1;
  for (uint32_t drift = 0; now < HARP_SEC(2); drift++, now += HARP_MS(1)) {
    if (drift % 100 == 0) there_of(&r, HARP_US(100), drift, now);
    harp_ns there_ns = there_of(&r, HARP_MS(1), drift, now);
    assert_in_range(HARP_MS(1) - there_ns, 0, 3 * MIN_WINDOW_NS / HARP_MS(1) * TICK);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_first_sample_counts_fully),
      cmocka_unit_test(test_equal_samples_settle),
      cmocka_unit_test(test_a_spike_moves_smoothed_by_an_eighth_and_variation_by_a_quarter),
      cmocka_unit_test(test_a_pause_is_of_the_past_with_the_next_sample),
      cmocka_unit_test(test_an_old_minimum_is_forgotten),
      cmocka_unit_test(test_a_minimum_lasts_for_a_period_of_drains),
      cmocka_unit_test(test_a_zero_sample_is_no_unknown),
      cmocka_unit_test(test_the_way_of_the_packet_alone),
      cmocka_unit_test(test_an_old_lowest_delay_is_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
