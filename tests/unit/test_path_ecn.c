/* SPDX-License-Identifier: Apache-2.0 */
/* ECN of a path: when its packets leave as ECT, and which sums of a receiver count. */
#include "proto/path_ecn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct harp_path_ecn fresh(void) {
  struct harp_path_ecn e;
  harp_path_ecn_init(&e, true);
  return e;
}

static bool sends_ect(struct harp_path_ecn *e, bool may_test) {
  uint64_t before = e->ect_bytes;
  bool ect = harp_path_ecn_on_sent(e, may_test, 1000);
  assert_int_equal(e->ect_bytes, before + (ect ? 1000 : 0));
  return ect;
}

/* A path that has sent so much as ECT. */
static struct harp_path_ecn after_sending(uint64_t bytes) {
  struct harp_path_ecn e = fresh();
  if (bytes) assert_true(harp_path_ecn_on_sent(&e, false, bytes));
  return e;
}

static void test_without_the_setting_nothing_is_ect(void **state) {
  (void)state;
  struct harp_path_ecn e;
  harp_path_ecn_init(&e, false);
  assert_false(sends_ect(&e, false));
  harp_path_ecn_on_silence(&e);
  assert_false(harp_path_ecn_on_answer(&e));
  assert_false(sends_ect(&e, true));
}

static void test_an_answered_test_ends_the_withholding(void **state) {
  (void)state;
  struct harp_path_ecn e = fresh();
  assert_true(sends_ect(&e, false));
  harp_path_ecn_on_silence(&e);
  assert_false(sends_ect(&e, false));
  assert_false(sends_ect(&e, true)); /* what asks a silent path for an answer must get through */
  assert_true(harp_path_ecn_on_answer(&e));
  assert_false(sends_ect(&e, false)); /* data is no test */
  assert_true(sends_ect(&e, true));
  assert_false(sends_ect(&e, true)); /* one probe is */
  harp_path_ecn_on_acked(&e);
  assert_true(sends_ect(&e, false));
  assert_false(harp_path_ecn_on_answer(&e));
}

static void test_a_lost_test_is_repeated_at_the_next_silence_only(void **state) {
  (void)state;
  struct harp_path_ecn e = fresh();
  harp_path_ecn_on_silence(&e);
  assert_true(harp_path_ecn_on_answer(&e));
  assert_true(sends_ect(&e, true));
  for (int i = 0; i < 3; i++) assert_false(harp_path_ecn_on_answer(&e));
  assert_false(sends_ect(&e, true));
  harp_path_ecn_on_silence(&e);
  assert_true(harp_path_ecn_on_answer(&e));
}

/* The silence comes back before the test has left. */
static void test_no_test_goes_to_a_silent_path(void **state) {
  (void)state;
  struct harp_path_ecn e = fresh();
  harp_path_ecn_on_silence(&e);
  assert_true(harp_path_ecn_on_answer(&e));
  harp_path_ecn_on_silence(&e);
  assert_false(sends_ect(&e, true));
  assert_true(harp_path_ecn_on_answer(&e));
}

/* The peer had only paused: it acknowledges what was sent as ECT before. */
static void test_a_late_acknowledgement_needs_no_test(void **state) {
  (void)state;
  struct harp_path_ecn e = fresh();
  harp_path_ecn_on_silence(&e);
  harp_path_ecn_on_acked(&e);
  assert_false(harp_path_ecn_on_answer(&e));
  assert_true(sends_ect(&e, false));
}

static void test_sums_add_up_over_wraps(void **state) {
  (void)state;
  struct harp_path_ecn e = fresh();
  enum { STEP = 1500000000 };
  uint64_t sum = 0;
  for (int i = 0; i < 10; i++) {
    sum += STEP;
    assert_true(harp_path_ecn_on_sent(&e, false, STEP));
    assert_true(harp_path_ecn_on_report(&e, (uint32_t)sum));
    assert_true(harp_path_ecn_on_report(&e, (uint32_t)sum)); /* as ACKs repeat it */
    assert_int_equal(harp_path_ecn_take_new(&e), STEP);
    assert_int_equal(harp_path_ecn_take_new(&e), 0);
  }
  assert_int_equal(e.ce_bytes, sum);
}

static void test_reports_add_up_until_they_are_taken(void **state) {
  (void)state;
  struct harp_path_ecn e = after_sending(5000);
  assert_true(harp_path_ecn_on_report(&e, 100));
  assert_true(harp_path_ecn_on_report(&e, 350));
  assert_int_equal(harp_path_ecn_take_new(&e), 350);
}

static void test_absurd_sums_are_ignored(void **state) {
  (void)state;
  struct harp_path_ecn e = after_sending(0);
  assert_false(harp_path_ecn_on_report(&e, 1)); /* nothing was sent */
  e = after_sending(5000);
  assert_false(harp_path_ecn_on_report(&e, UINT32_MAX)); /* below zero */
  assert_false(harp_path_ecn_on_report(&e, 1u << 31));
  assert_true(harp_path_ecn_on_report(&e, 3000));
  assert_false(harp_path_ecn_on_report(&e, 2999)); /* goes backwards */
  assert_false(harp_path_ecn_on_report(&e, 5001)); /* more than was sent */
  assert_true(harp_path_ecn_on_report(&e, 5000));
  assert_int_equal(harp_path_ecn_take_new(&e), 5000);
  assert_int_equal(e.ce_bytes, 5000);
}

/* What did not leave as ECT cannot be marked. */
static void test_only_ect_can_be_reported(void **state) {
  (void)state;
  struct harp_path_ecn e = after_sending(1000);
  harp_path_ecn_on_silence(&e);
  assert_false(harp_path_ecn_on_sent(&e, false, 1000));
  assert_false(harp_path_ecn_on_report(&e, 1001));
  assert_true(harp_path_ecn_on_report(&e, 1000));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_without_the_setting_nothing_is_ect),
      cmocka_unit_test(test_an_answered_test_ends_the_withholding),
      cmocka_unit_test(test_a_lost_test_is_repeated_at_the_next_silence_only),
      cmocka_unit_test(test_no_test_goes_to_a_silent_path),
      cmocka_unit_test(test_a_late_acknowledgement_needs_no_test),
      cmocka_unit_test(test_sums_add_up_over_wraps),
      cmocka_unit_test(test_reports_add_up_until_they_are_taken),
      cmocka_unit_test(test_absurd_sums_are_ignored),
      cmocka_unit_test(test_only_ect_can_be_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
