/* SPDX-License-Identifier: Apache-2.0 */
/* When large messages leave a tcp path to datagrams, and when they come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/carrier.h"

#define LOOK_NS HARP_MS(4) /* between two samples */

static struct harp_carrier c;
static struct harp_carrier_sample counted;
static harp_ns now;

static int init(void **state) {
  (void)state;
  now = HARP_SEC(100);
  counted = (struct harp_carrier_sample){.segments = UINT32_MAX - 1000, .retransmitted = UINT32_MAX - 10};
  harp_carrier_init(&c, now);
  c.known = counted;
  counted.rtt_min_ns = counted.rtt_ns = HARP_US(100);
  return 0;
}

/* Sends for so long, so many segments in each LOOK_NS of which some are repeated; stops when it is avoided.
 * Returns for how long it was not. */
static harp_ns busy(harp_ns span_ns, uint32_t segments, uint32_t repeated_of_1000_looks) {
  harp_ns since = now;
  for (uint32_t i = 0; now - since < span_ns; i++) {
    now += LOOK_NS;
    counted.segments += segments;
    counted.retransmitted += (i + 1) * repeated_of_1000_looks / 1000 - i * repeated_of_1000_looks / 1000;
    bool changed = harp_carrier_on_look(&c, &counted, now);
    assert_int_equal(changed, c.avoided);
    if (c.avoided) break;
  }
  return now - since;
}

/* Waits until it is tried again; returns how long that took. */
static harp_ns avoided_for(void) {
  harp_ns since = now;
  while (!harp_carrier_on_time(&c, now)) {
    assert_true(c.avoided);
    now += LOOK_NS;
  }
  assert_false(c.avoided);
  return now - since;
}

static void test_without_loss_it_stays(void **state) {
  (void)state;
  assert_true(busy(HARP_SEC(60), 8000, 0) >= HARP_SEC(60));
}

static void test_a_few_repeated_segments_are_no_loss(void **state) {
  (void)state;
  assert_true(busy(HARP_SEC(60), 8000, 500) >= HARP_SEC(60)); /* 1 of 16000 */
  assert_true(busy(HARP_MS(100), 10, 100) >= HARP_MS(100));   /* 2 of 250: an accident */
}

static void test_loss_turns_the_choice_soon(void **state) {
  (void)state;
  assert_true(busy(HARP_SEC(1), 1000, 10000) <= HARP_MS(100)); /* 1 % */
  assert_true(c.avoided);
}

static void test_it_is_tried_again_ever_more_rarely(void **state) {
  (void)state;
  harp_ns expected = HARP_CARRIER_AVOID_NS, tried = 0, avoided = 0;
  for (unsigned i = 0; i < 12; i++) {
    tried += busy(HARP_SEC(1), 1000, 10000);
    assert_true(c.avoided);
    harp_ns took = avoided_for();
    avoided += took;
    assert_in_range(took, expected - LOOK_NS, expected + LOOK_NS);
    expected = HARP_MIN(2 * expected, HARP_CARRIER_AVOID_MAX_NS);
  }
  assert_true(tried * 100 <= avoided); /* what a return costs: at most 1 % */
}

static void test_a_long_good_time_makes_times_short_again(void **state) {
  (void)state;
  for (unsigned i = 0; i < 5; i++) {
    (void)busy(HARP_SEC(1), 1000, 10000);
    (void)avoided_for();
  }
  assert_true(busy(HARP_SEC(11), 8000, 0) >= HARP_SEC(11));
  (void)busy(HARP_SEC(1), 1000, 10000);
  assert_in_range(avoided_for(), HARP_CARRIER_AVOID_NS - LOOK_NS, HARP_CARRIER_AVOID_NS + LOOK_NS);
}

/* Where a kernel does not report the segments they are worked out; a larger packet size makes them fewer. */
static void test_fewer_segments_than_before_hide_no_loss(void **state) {
  (void)state;
  assert_true(busy(HARP_MS(40), 1000, 0) >= HARP_MS(40));
  counted.segments -= 5000;
  assert_true(busy(HARP_SEC(1), 1000, 10000) <= HARP_MS(100));
}

static void test_another_connection_counts_from_zero(void **state) {
  (void)state;
  (void)busy(HARP_MS(400), 1000, 100);
  counted = (struct harp_carrier_sample){0};
  harp_carrier_restart(&c, now);
  assert_true(busy(HARP_SEC(1), 1000, 0) >= HARP_SEC(1));
}

/* ---- queues ---- */

static void test_a_queue_that_stays_turns_the_choice(void **state) {
  (void)state;
  assert_true(busy(HARP_SEC(1), 1000, 0) >= HARP_SEC(1));
  counted.rtt_ns = counted.rtt_min_ns + HARP_CARRIER_QUEUE_NS + 1;
  assert_true(busy(HARP_SEC(1), 1000, 0) <= HARP_MS(100));
  assert_true(c.avoided);
  assert_int_equal(c.why, HARP_CARRIER_QUEUE);
  (void)avoided_for();
  counted.rtt_ns = counted.rtt_min_ns;
  assert_true(busy(HARP_SEC(1), 1000, 0) >= HARP_SEC(1));
  (void)busy(HARP_SEC(1), 1000, 10000);
  assert_int_equal(c.why, HARP_CARRIER_LOSS);
}

static void test_a_queue_that_goes_again_does_not(void **state) {
  (void)state;
  for (unsigned i = 0; i < 20; i++) {
    counted.rtt_ns = HARP_MS(50);
    assert_true(busy(HARP_CARRIER_QUEUE_FOR_NS - HARP_MS(8), 1000, 0) >=
                HARP_CARRIER_QUEUE_FOR_NS - HARP_MS(8));
    counted.rtt_ns = HARP_MS(20);
    assert_true(busy(LOOK_NS, 1000, 0) >= LOOK_NS);
  }
}

static void test_a_queue_before_a_pause_is_another_one(void **state) {
  (void)state;
  counted.rtt_ns = HARP_MS(50);
  for (unsigned i = 0; i < 20; i++) {
    assert_true(busy(HARP_MS(40), 1000, 0) >= HARP_MS(40));
    now += HARP_MS(30);
  }
  assert_false(c.avoided);
}

static void test_who_sends_nothing_has_no_queue(void **state) {
  (void)state;
  counted.rtt_ns = HARP_MS(50);
  assert_true(busy(HARP_SEC(1), 0, 0) >= HARP_SEC(1));
}

static void test_a_kernel_without_a_least_rtt_has_no_queue(void **state) {
  (void)state;
  counted.rtt_ns = HARP_SEC(1);
  counted.rtt_min_ns = 0;
  assert_true(busy(HARP_SEC(1), 1000, 0) >= HARP_SEC(1));
}

int main(void) {
#define T(test) cmocka_unit_test_setup(test, init)
  const struct CMUnitTest tests[] = {
      T(test_without_loss_it_stays),
      T(test_a_few_repeated_segments_are_no_loss),
      T(test_loss_turns_the_choice_soon),
      T(test_it_is_tried_again_ever_more_rarely),
      T(test_a_long_good_time_makes_times_short_again),
      T(test_fewer_segments_than_before_hide_no_loss),
      T(test_another_connection_counts_from_zero),
      T(test_a_queue_that_stays_turns_the_choice),
      T(test_a_queue_that_goes_again_does_not),
      T(test_a_queue_before_a_pause_is_another_one),
      T(test_who_sends_nothing_has_no_queue),
      T(test_a_kernel_without_a_least_rtt_has_no_queue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
