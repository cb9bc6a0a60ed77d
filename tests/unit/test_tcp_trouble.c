/* SPDX-License-Identifier: Apache-2.0 */
/* What a tcp path's kernel must count to be a sign of loss or of a queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/tcp_trouble.h"

#define LOOK_NS HARP_MS(4) /* between two samples */

static struct harp_tcp_trouble c;
static enum harp_tcp_sign sign;
static struct harp_tcp_sample counted;
static harp_ns now;

static int init(void **state) {
  (void)state;
  now = HARP_SEC(100);
  counted = (struct harp_tcp_sample){.segments = UINT32_MAX - 1000, .retransmitted = UINT32_MAX - 10};
  harp_tcp_trouble_init(&c, now);
  c.known = counted;
  counted.rtt_min_ns = counted.rtt_ns = HARP_US(100);
  return 0;
}

/* Sends for so long, so many segments in each LOOK_NS of which some are repeated; stops at a sign of
 * trouble. Returns for how long there was none. */
static harp_ns busy(harp_ns span_ns, uint32_t segments, uint32_t repeated_of_1000_looks) {
  harp_ns since = now;
  for (uint32_t i = 0; now - since < span_ns; i++) {
    now += LOOK_NS;
    counted.segments += segments;
    counted.retransmitted += (i + 1) * repeated_of_1000_looks / 1000 - i * repeated_of_1000_looks / 1000;
    sign = harp_tcp_trouble_on_look(&c, &counted, now);
    if (sign) break;
  }
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

static void test_loss_is_a_sign_soon(void **state) {
  (void)state;
  assert_true(busy(HARP_SEC(1), 1000, 10000) <= HARP_MS(100)); /* 1 % */
  assert_true(sign);
}

/* As often as there is news, no more. */
static void test_what_was_reported_counts_no_more(void **state) {
  (void)state;
  (void)busy(HARP_SEC(1), 1000, 10000);
  assert_int_equal(sign, HARP_TCP_SIGN_LOSS);
  assert_true(c.sign_retransmitted >= HARP_TCP_LOSS_MIN && c.sign_segments >= c.sign_retransmitted);
  assert_true(busy(HARP_SEC(10), 1000, 0) >= HARP_SEC(10));
  counted.rtt_ns = counted.rtt_min_ns + HARP_TCP_QUEUE_NS + 1;
  (void)busy(HARP_SEC(1), 1000, 0);
  assert_int_equal(sign, HARP_TCP_SIGN_QUEUE);
  assert_true(busy(HARP_SEC(1), 1000, 0) >= HARP_TCP_QUEUE_FOR_NS); /* it is still there */
  assert_int_equal(sign, HARP_TCP_SIGN_QUEUE);
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
  counted = (struct harp_tcp_sample){0};
  harp_tcp_trouble_init(&c, now);
  assert_true(busy(HARP_SEC(1), 1000, 0) >= HARP_SEC(1));
}

/* ---- queues ---- */

static void test_a_queue_that_stays_is_a_sign(void **state) {
  (void)state;
  assert_true(busy(HARP_SEC(1), 1000, 0) >= HARP_SEC(1));
  counted.rtt_ns = counted.rtt_min_ns + HARP_TCP_QUEUE_NS + 1;
  assert_true(busy(HARP_SEC(1), 1000, 0) <= HARP_MS(100));
  assert_true(sign);
  assert_int_equal(sign, HARP_TCP_SIGN_QUEUE);
  counted.rtt_ns = counted.rtt_min_ns;
  assert_true(busy(HARP_SEC(1), 1000, 0) >= HARP_SEC(1));
  (void)busy(HARP_SEC(1), 1000, 10000);
  assert_int_equal(sign, HARP_TCP_SIGN_LOSS);
}

static void test_a_queue_that_goes_again_is_none(void **state) {
  (void)state;
  for (unsigned i = 0; i < 20; i++) {
    counted.rtt_ns = HARP_MS(50);
    assert_true(busy(HARP_TCP_QUEUE_FOR_NS - HARP_MS(8), 1000, 0) >= HARP_TCP_QUEUE_FOR_NS - HARP_MS(8));
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
  assert_false(sign);
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
      T(test_loss_is_a_sign_soon),
      T(test_what_was_reported_counts_no_more),
      T(test_fewer_segments_than_before_hide_no_loss),
      T(test_another_connection_counts_from_zero),
      T(test_a_queue_that_stays_is_a_sign),
      T(test_a_queue_that_goes_again_is_none),
      T(test_a_queue_before_a_pause_is_another_one),
      T(test_who_sends_nothing_has_no_queue),
      T(test_a_kernel_without_a_least_rtt_has_no_queue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
