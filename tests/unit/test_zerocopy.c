/* SPDX-License-Identifier: Apache-2.0 */
/* When payload goes to the kernel without a copy: what was requested, what was measured, what the kernel
 * reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/zerocopy.h"

static struct harp_zerocopy z;
enum { RECORD_BYTES = 512 << 10 };

/* Sends records until the trial ends, each way taking its time for a record; returns how many. */
static unsigned measure(harp_ns with_ns, harp_ns without_ns) {
  unsigned with = 0, n = 0;
  harp_zerocopy_init(&z, HARP_ZEROCOPY_TRIAL);
  while (z.state == HARP_ZEROCOPY_TRIAL) {
    bool used = harp_zerocopy_wants(&z, RECORD_BYTES);
    bool over = harp_zerocopy_on_sent(&z, used, RECORD_BYTES, used ? with_ns : without_ns);
    assert_int_equal(over, z.state != HARP_ZEROCOPY_TRIAL);
    with += used;
    n++;
  }
  assert_int_equal(2 * with, n);
  assert_int_equal(z.why, HARP_ZEROCOPY_MEASURED);
  return n;
}

static void test_the_way_that_takes_less_time_stays(void **state) {
  (void)state;
  assert_int_equal(measure(50, 100), HARP_ZEROCOPY_TRIALS);
  assert_int_equal(z.state, HARP_ZEROCOPY_ON);
  assert_int_equal(harp_zerocopy_percent(&z), 50);
  assert_true(harp_zerocopy_wants(&z, RECORD_BYTES));
  measure(90, 100);
  assert_int_equal(z.state, HARP_ZEROCOPY_ON);
}

static void test_a_small_gain_is_none(void **state) {
  (void)state;
  measure(91, 100);
  assert_int_equal(z.state, HARP_ZEROCOPY_OFF);
  assert_false(harp_zerocopy_wants(&z, RECORD_BYTES));
  measure(200, 100);
  assert_int_equal(z.state, HARP_ZEROCOPY_OFF);
  measure(0, 0); /* a clock that stands still proves nothing */
  assert_int_equal(z.state, HARP_ZEROCOPY_OFF);
}

static void test_small_records_are_copied_and_not_measured(void **state) {
  (void)state;
  harp_zerocopy_init(&z, HARP_ZEROCOPY_ON);
  assert_false(harp_zerocopy_wants(&z, HARP_ZEROCOPY_MIN_BYTES - 1));
  assert_true(harp_zerocopy_wants(&z, HARP_ZEROCOPY_MIN_BYTES));
  harp_zerocopy_init(&z, HARP_ZEROCOPY_TRIAL);
  assert_false(harp_zerocopy_on_sent(&z, false, HARP_ZEROCOPY_MIN_BYTES - 1, 100));
  assert_int_equal(z.trials, 0);
}

static void test_a_kernel_that_copies_ends_the_trial(void **state) {
  (void)state;
  harp_zerocopy_init(&z, HARP_ZEROCOPY_TRIAL);
  assert_true(harp_zerocopy_on_failure(&z, HARP_ZEROCOPY_COPIED));
  assert_int_equal(z.state, HARP_ZEROCOPY_OFF);
  assert_int_equal(z.why, HARP_ZEROCOPY_COPIED);
  assert_false(harp_zerocopy_on_failure(&z, HARP_ZEROCOPY_COPIED));
}

static void test_on_by_configuration_it_lasts_until_it_is_refused(void **state) {
  (void)state;
  harp_zerocopy_init(&z, HARP_ZEROCOPY_ON);
  assert_false(harp_zerocopy_on_failure(&z, HARP_ZEROCOPY_COPIED));
  assert_true(harp_zerocopy_wants(&z, RECORD_BYTES));
  assert_true(harp_zerocopy_on_failure(&z, HARP_ZEROCOPY_REFUSED));
  assert_false(harp_zerocopy_wants(&z, RECORD_BYTES));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_way_that_takes_less_time_stays),
      cmocka_unit_test(test_a_small_gain_is_none),
      cmocka_unit_test(test_small_records_are_copied_and_not_measured),
      cmocka_unit_test(test_a_kernel_that_copies_ends_the_trial),
      cmocka_unit_test(test_on_by_configuration_it_lasts_until_it_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
