/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a path by itself: each rule of base_loss.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/base_loss.h"

enum { PACKET = 1000, PERCENT_Q16 = 655 };
static struct harp_base_loss b;
static harp_ns now;
static bool is_cut_by_loss;

static int begin(void **state) {
  (void)state;
  b = (struct harp_base_loss){0};
  harp_base_loss_restart(&b);
  now = HARP_SEC(1);
  is_cut_by_loss = false;
  return 0;
}

/* Settles so many packets in one part of a drain. */
static void settle_in(unsigned part, unsigned acked, unsigned lost) {
  harp_base_loss_on_drained(&b, part, acked * PACKET, lost * PACKET);
}

/* Settles so many packets in a drain, alike in its parts, which is judged. */
static bool drain(unsigned acked, unsigned lost) {
  for (unsigned i = 0; i < acked; i++) settle_in(i % HARP_BASE_LOSS_PARTS, 1, 0);
  for (unsigned i = 0; i < lost; i++) settle_in(i % HARP_BASE_LOSS_PARTS, 0, 1);
  return harp_base_loss_judge_drains(&b, PACKET, now);
}

/* Settles so many packets outside of drains, with a window of that many packets, times 256. */
static bool settle(unsigned acked, unsigned lost, uint64_t window_q8, bool below_ceiling, bool lossy_alone) {
  struct harp_base_loss_sample s = {.now = now,
                                    .packet_bytes = PACKET,
                                    .acked_bytes = acked * PACKET,
                                    .lost_bytes = lost * PACKET,
                                    .window_q8 = window_q8 * PACKET,
                                    .is_below_ceiling = below_ceiling,
                                    .is_cut_by_loss = is_cut_by_loss,
                                    .is_lossy_alone = lossy_alone};
  return harp_base_loss_on_settled(&b, &s);
}

static void test_drains_give_the_share(void **state) {
  (void)state;
  assert_false(drain(31, 0)); /* too few to say anything */
  assert_true(drain(66, 3));  /* 3 of 100: 1.5 % now, since the estimate moves up by half */
  assert_in_range(b.share_q16, PERCENT_Q16 * 14 / 10, PERCENT_Q16 * 16 / 10);
  assert_true(harp_base_loss_is_known(&b));
  uint32_t before = b.share_q16;
  assert_true(drain(450, 0)); /* none: down by half */
  assert_in_range(b.share_q16, before * 49 / 100, before * 51 / 100);
  for (unsigned i = 0; i < 8; i++) drain(1024, 0);
  assert_false(harp_base_loss_is_known(&b));
}

/* The estimate varies around what is lost: each interval of 3 lost packets of 600 is one of many. */
static void test_a_known_share_is_kept_down_to_half_of_what_makes_it_known(void **state) {
  (void)state;
  drain(997, 3); /* 0.3 %, the estimate 0.15 % */
  drain(997, 3);
  assert_false(harp_base_loss_is_known(&b));
  drain(297, 3); /* 1 %: 0.6 % */
  assert_true(harp_base_loss_is_known(&b));
  drain(997, 3);
  drain(997, 3); /* 0.38 % */
  assert_true(b.share_q16 < PERCENT_Q16 / 2);
  assert_true(harp_base_loss_is_known(&b));
  drain(1024, 0); /* 0.19 % */
  assert_false(harp_base_loss_is_known(&b));
  drain(995, 5); /* 0.35 % */
  assert_false(harp_base_loss_is_known(&b));
}

/* Only what loses less than half of what random loss is. */
static void test_drains_show_that_there_is_none(void **state) {
  (void)state;
  drain(1020, 3);
  assert_int_equal(b.clean_ns, 0);
  now += HARP_MS(1);
  drain(1021, 0);
  assert_int_equal(b.clean_ns, 0); /* the interval is not over */
  drain(1, 2);
  assert_int_equal(b.clean_ns, now);
}

/* Hosts whose clocks differ drain one after the other: the rest of a drain meets the congestion of others. */
static void test_the_part_of_drains_that_others_share_counts(void **state) {
  (void)state;
  drain(194, 6);
  assert_true(harp_base_loss_is_known(&b));
  settle_in(0, 100, 0);
  settle_in(1, 100, 0);
  settle_in(2, 70, 30);
  settle_in(3, 70, 30);
  assert_true(harp_base_loss_judge_drains(&b, PACKET, now));
  assert_in_range(b.share_q16, 0, PERCENT_Q16 * 13 / 10); /* the loss was 15 % */
  for (unsigned i = 0; i < 8; i++) {                      /* others never drain beside the second half */
    settle_in(0, 100, 0);
    settle_in(1, 100, 0);
    settle_in(2, 70, 30);
    settle_in(3, 70, 30);
    harp_base_loss_judge_drains(&b, PACKET, now);
  }
  assert_false(harp_base_loss_is_known(&b));
}

static void test_parts_that_differ_by_chance_count_as_one(void **state) {
  (void)state;
  settle_in(0, 99, 1);
  settle_in(1, 97, 3);
  settle_in(2, 95, 5);
  settle_in(3, 97, 3);
  assert_true(harp_base_loss_judge_drains(&b, PACKET, now));
  assert_in_range(b.share_q16, PERCENT_Q16 * 14 / 10, PERCENT_Q16 * 16 / 10); /* half of 3 % */
}

static void test_a_little_loss_of_few_packets_is_presumed(void **state) {
  (void)state;
  assert_false(settle(292, 8, 2 << 8, false, false)); /* the window is small for another reason */
  is_cut_by_loss = true;
  assert_false(settle(92, 8, 2 << 8, false, false));  /* 8 % is congestion, */
  assert_false(settle(285, 7, 2 << 8, false, false)); /* this is too little to know */
  assert_true(settle(7, 1, 2 << 8, false, false));
  assert_true(b.is_presumed);
  assert_in_range(b.share_q16, PERCENT_Q16 * 26 / 10, PERCENT_Q16 * 27 / 10);
}

static void test_loss_at_a_small_window_is_presumed(void **state) {
  (void)state;
  assert_false(settle(700, 7, 7 << 8, true, false));   /* congestion loses so much with few packets, */
  assert_false(settle(700, 8, 16 << 8, false, false)); /* and with a window at its ceiling */
  assert_false(settle(700, 7, 16 << 8, true, false));  /* too little to know */
  assert_true(settle(0, 1, 16 << 8, true, false));
  assert_in_range(b.share_q16, PERCENT_Q16, PERCENT_Q16 * 12 / 10);
  assert_true(b.is_presumed);
}

static void test_no_loss_at_a_small_window_is_no_presumption(void **state) {
  (void)state;
  assert_false(settle(1024, 3, 16 << 8, true, false)); /* 0.3 % */
  assert_false(harp_base_loss_is_known(&b));
  assert_false(settle(500, 3, 16 << 8, true, false)); /* the interval before is over */
}

static void test_a_starved_window_presumes_only_beside_clean_paths(void **state) {
  (void)state;
  harp_base_loss_on_drain_end(&b);
  assert_false(settle(100, 3, 100, false, false)); /* others lose as well */
  assert_false(settle(100, 3, 100, false, true));  /* and that holds until the next drain */
  harp_base_loss_on_drain_end(&b);
  assert_false(settle(100, 3, 200, false, true)); /* congestion makes a window of 0.8 packets */
  harp_base_loss_on_queue(&b);
  assert_false(settle(100, 3, 100, false, true)); /* a queue made it small */
  harp_base_loss_on_drain_end(&b);
  assert_false(settle(100, 2, 100, false, true));
  assert_true(settle(50, 1, 100, false, true));
  assert_true(harp_base_loss_is_known(&b));
}

static void presume_loss(void) {
  assert_true(settle(92, 8, 16 << 8, true, false));
}

static void test_drains_confirm_a_presumption(void **state) {
  (void)state;
  presume_loss();
  assert_true(drain(47, 3));
  assert_false(b.is_presumed);
  assert_in_range(b.share_q16, PERCENT_Q16 * 59 / 10, PERCENT_Q16 * 61 / 10); /* what they say, not a mean */
  now += HARP_SEC(100);
  settle(1, 0, 16 << 8, false, false);
  assert_true(harp_base_loss_is_known(&b));
}

/* Each presumption that drains contradict doubles the time to the next one. */
static void test_drains_contradict_a_presumption(void **state) {
  (void)state;
  for (harp_ns wait_ns = HARP_SEC(10); wait_ns <= HARP_SEC(40); wait_ns *= 2) {
    presume_loss();
    assert_true(drain(200, 0));
    assert_false(harp_base_loss_is_known(&b));
    now += wait_ns - 1;
    assert_false(settle(92, 8, 16 << 8, true, false));
    now += 1;
  }
  presume_loss();
}

static void test_a_presumption_that_no_drain_confirms_ends(void **state) {
  (void)state;
  presume_loss();
  now += HARP_MS(600);
  settle(1, 0, 16 << 8, false, false);
  assert_true(harp_base_loss_is_known(&b));
  now += 1;
  settle(1, 0, 16 << 8, false, false);
  assert_false(harp_base_loss_is_known(&b));
  now += HARP_SEC(10) - 1;
  assert_false(settle(92, 8, 16 << 8, true, false));
}

/* Presumes that 2.7 % of few packets are lost at random. */
static void begin_trial(void) {
  is_cut_by_loss = true;
  assert_true(settle(292, 8, 2 << 8, false, false));
  assert_false(harp_base_loss_is_believed(&b));
}

static void test_a_trial_may_last_longer_unless_it_brings_nothing(void **state) {
  (void)state;
  begin_trial();
  now += HARP_MS(2500);
  settle(1, 0, 2 << 8, false, false);
  assert_true(harp_base_loss_is_known(&b));
  settle(1, 0, 1 << 8, false, false);
  assert_false(harp_base_loss_is_known(&b));
  now += HARP_SEC(10);
  begin_trial();
  now += HARP_MS(2500) + 1;
  settle(1, 0, 2 << 8, false, false);
  assert_false(harp_base_loss_is_known(&b));
}

static void test_a_trial_that_loses_more_ends(void **state) {
  (void)state;
  begin_trial();
  assert_false(settle(484, 16, 4 << 8, false, false)); /* 3.2 % is as much */
  assert_true(harp_base_loss_is_known(&b));
  settle(200, 15, 4 << 8, false, false); /* too little to know */
  assert_true(harp_base_loss_is_known(&b));
  settle(59, 1, 4 << 8, false, false); /* 5.8 % */
  assert_false(harp_base_loss_is_known(&b));
  assert_false(settle(292, 8, 2 << 8, false, false)); /* not again for 10 s */
}

static void test_a_restart_keeps_the_share_as_a_presumption(void **state) {
  (void)state;
  drain(97, 3);
  uint32_t before = b.share_q16;
  now += HARP_SEC(60);
  harp_base_loss_restart(&b);
  settle(1, 0, 16 << 8, false, false); /* the time to confirm it begins here */
  assert_int_equal(b.share_q16, before);
  assert_true(b.is_presumed);
  now += HARP_MS(601);
  settle(1, 0, 16 << 8, false, false);
  assert_int_equal(b.share_q16, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_drains_give_the_share, begin),
      cmocka_unit_test_setup(test_a_known_share_is_kept_down_to_half_of_what_makes_it_known, begin),
      cmocka_unit_test_setup(test_drains_show_that_there_is_none, begin),
      cmocka_unit_test_setup(test_the_part_of_drains_that_others_share_counts, begin),
      cmocka_unit_test_setup(test_parts_that_differ_by_chance_count_as_one, begin),
      cmocka_unit_test_setup(test_a_little_loss_of_few_packets_is_presumed, begin),
      cmocka_unit_test_setup(test_loss_at_a_small_window_is_presumed, begin),
      cmocka_unit_test_setup(test_no_loss_at_a_small_window_is_no_presumption, begin),
      cmocka_unit_test_setup(test_a_starved_window_presumes_only_beside_clean_paths, begin),
      cmocka_unit_test_setup(test_drains_confirm_a_presumption, begin),
      cmocka_unit_test_setup(test_drains_contradict_a_presumption, begin),
      cmocka_unit_test_setup(test_a_presumption_that_no_drain_confirms_ends, begin),
      cmocka_unit_test_setup(test_a_trial_may_last_longer_unless_it_brings_nothing, begin),
      cmocka_unit_test_setup(test_a_trial_that_loses_more_ends, begin),
      cmocka_unit_test_setup(test_a_restart_keeps_the_share_as_a_presumption, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
