/* SPDX-License-Identifier: Apache-2.0 */
/* Which carrier large messages take by what a session moves with each: networks of which each carrier has a
 * rate and a price. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/carrier_trial.h"

enum { ACK_BYTES = 16 << 10, TCP = 0, DATAGRAMS = 1 };
#define GIB (1024.0 * 1024 * 1024)

/* Of a carrier: for a byte. */
struct price {
  double ns, sender_ns;
};

static struct harp_carrier_trial t;
static struct price prices[2];
static harp_ns took_ns;    /* in all */
static double bytes_of[2]; /* moved by each carrier */
static unsigned phases;

static int init(void **state) {
  (void)state;
  harp_carrier_trial_init(&t);
  prices[TCP] = (struct price){0.2, 0.1}; /* 40 Gbit/s */
  prices[DATAGRAMS] = (struct price){0.3, 0.2};
  took_ns = 0;
  bytes_of[TCP] = bytes_of[DATAGRAMS] = 0;
  phases = 0;
  return 0;
}

/* Moves so many bytes; the job makes each take `pace` times as long. */
static void move_at(double bytes, double pace) {
  for (double moved = 0; moved < bytes; moved += ACK_BYTES) {
    unsigned carrier = harp_carrier_trial_takes_datagrams(&t);
    const struct price *p = &prices[carrier];
    struct harp_carrier_slice more = {ACK_BYTES, (harp_ns)(p->ns * pace * ACK_BYTES),
                                      (harp_ns)(p->sender_ns * ACK_BYTES)};
    bytes_of[carrier] += ACK_BYTES;
    took_ns += more.busy_ns;
    phases += harp_carrier_trial_feed(&t, &more);
  }
}

static void move(double bytes) {
  move_at(bytes, 1);
}

static void test_the_quicker_one_is_kept(void **state) {
  (void)state;
  move(1000 * GIB);
  assert_false(t.datagrams);
  assert_int_equal(t.verdict, HARP_CARRIER_KEPT);
  assert_in_range(t.time_percent, 149, 150);
  assert_in_range(t.cpu_percent, 199, 200);
}

/* However much slower the other one is. */
static void test_trials_cost_one_percent_at_most(void **state) {
  (void)state;
  static const double slower[] = {1.5, 10, 100};
  for (unsigned i = 0; i < sizeof slower / sizeof slower[0]; i++) {
    init(NULL);
    prices[DATAGRAMS].ns = slower[i] * prices[TCP].ns;
    move(16 * GIB);
    assert_true(t.count >= 2);
    double least = prices[TCP].ns * (bytes_of[TCP] + bytes_of[DATAGRAMS]);
    assert_true((double)took_ns <= 1.01 * least);
  }
}

/* Also where a slice ends by time. */
static void test_they_cost_no_more_on_a_slow_network(void **state) {
  (void)state;
  prices[TCP] = (struct price){80, 0.1}; /* 100 Mbit/s */
  prices[DATAGRAMS] = (struct price){800, 0.2};
  move(12 * GIB);
  assert_true(t.count >= 2);
  double least = prices[TCP].ns * (bytes_of[TCP] + bytes_of[DATAGRAMS]);
  assert_true((double)took_ns <= 1.02 * least); /* a slice is a few acknowledgements there */
}

static void test_trials_that_are_lost_become_rare(void **state) {
  (void)state;
  move(300 * GIB);
  unsigned before = t.count;
  move(1000 * GIB);
  assert_in_range(t.count - before, 3, 4); /* one in 300 GiB */
}

static void test_a_quicker_one_takes_over_after_three_trials(void **state) {
  (void)state;
  prices[DATAGRAMS].ns = 0.15;
  while (!t.datagrams) move(ACK_BYTES);
  assert_true(bytes_of[TCP] + bytes_of[DATAGRAMS] < 8 * GIB);
  assert_int_equal(t.count, HARP_CARRIER_TRIAL_WINS);
  assert_int_equal(t.verdict, HARP_CARRIER_QUICKER);
  assert_in_range(t.time_percent, 74, 75);
  move(1000 * GIB);
  assert_true(t.datagrams);
  assert_int_equal(t.verdict, HARP_CARRIER_KEPT);
}

/* What has changed is found in both directions. */
static void test_a_network_that_changes_changes_the_carrier(void **state) {
  (void)state;
  prices[DATAGRAMS].ns = 0.15;
  move(8 * GIB);
  assert_true(t.datagrams);
  prices[TCP].ns = 0.1;
  move(8 * GIB);
  assert_false(t.datagrams);
}

static void test_as_quick_for_less_cpu_takes_over(void **state) {
  (void)state;
  prices[TCP] = (struct price){8, 0.3}; /* a cap */
  prices[DATAGRAMS] = (struct price){8, 0.2};
  while (!t.datagrams) move(ACK_BYTES);
  assert_int_equal(t.verdict, HARP_CARRIER_CHEAPER);
}

static void test_slower_for_less_cpu_does_not(void **state) {
  (void)state;
  prices[DATAGRAMS] = (struct price){0.22, 0.01};
  move(100 * GIB);
  assert_false(t.datagrams);
}

static void test_a_little_quicker_or_cheaper_is_noise(void **state) {
  (void)state;
  prices[DATAGRAMS] = (struct price){0.19, 0.08};
  move(100 * GIB);
  assert_false(t.datagrams);
  assert_int_equal(t.verdict, HARP_CARRIER_KEPT);
}

/* A job whose pace changes between slices: in two of three the one in use looks slow. */
static void test_a_job_that_changes_its_pace_is_no_difference(void **state) {
  (void)state;
  prices[DATAGRAMS] = prices[TCP];
  for (unsigned i = 0; i < 200000; i++) move_at(HARP_CARRIER_TRIAL_SLICE_BYTES / 4.0, i % 97 < 48 ? 1 : 3);
  assert_true(t.count > 5);
  assert_false(t.datagrams);
}

static void test_one_that_brings_nothing_is_left_soon(void **state) {
  (void)state;
  while (t.phase != HARP_CARRIER_SETTLE) move(ACK_BYTES);
  harp_ns before_ns = t.before.busy_ns, span_ns = 0;
  while (t.phase != HARP_CARRIER_IN_USE) {
    struct harp_carrier_slice more = {0, HARP_US(10), 0};
    phases += harp_carrier_trial_feed(&t, &more);
    span_ns += more.busy_ns;
  }
  assert_true(span_ns <= 6 * before_ns + HARP_US(20));
  assert_int_equal(t.verdict, HARP_CARRIER_KEPT);
  assert_false(harp_carrier_trial_takes_datagrams(&t));
}

static void test_a_trial_that_is_given_up_says_nothing(void **state) {
  (void)state;
  prices[DATAGRAMS].ns = 0.01;
  for (unsigned i = 0; i < 8; i++) {
    while (t.phase != HARP_CARRIER_OTHER) move(ACK_BYTES);
    harp_carrier_trial_give_up(&t);
    assert_false(harp_carrier_trial_takes_datagrams(&t));
  }
  assert_int_equal(t.count, 0);
  assert_int_equal(t.verdict, HARP_CARRIER_UNTRIED);
  struct harp_carrier_slice before = t.now;
  harp_carrier_trial_give_up(&t); /* there is none: the time to the next one goes on */
  assert_true(t.now.bytes == before.bytes);
  assert_int_equal(t.losses, HARP_CARRIER_TRIAL_DOUBLINGS); /* but what ended it may be what it does */
}

int main(void) {
#define T(test) cmocka_unit_test_setup(test, init)
  const struct CMUnitTest tests[] = {
      T(test_the_quicker_one_is_kept),
      T(test_trials_cost_one_percent_at_most),
      T(test_they_cost_no_more_on_a_slow_network),
      T(test_trials_that_are_lost_become_rare),
      T(test_a_quicker_one_takes_over_after_three_trials),
      T(test_a_network_that_changes_changes_the_carrier),
      T(test_as_quick_for_less_cpu_takes_over),
      T(test_slower_for_less_cpu_does_not),
      T(test_a_little_quicker_or_cheaper_is_noise),
      T(test_a_job_that_changes_its_pace_is_no_difference),
      T(test_one_that_brings_nothing_is_left_soon),
      T(test_a_trial_that_is_given_up_says_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
