/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that hosts share: what the kernel says of it, and how a step is taken over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/timex.h>

#include <cmocka.h>

#include "base/clock.h"
#include "host/shared_clock.h"

static void test_a_clock_is_the_hosts_own_unless_disciplined(void **state) {
  (void)state;
  assert_false(harp_shared_clock_is_own(TIME_OK, STA_PLL));
  assert_false(harp_shared_clock_is_own(TIME_INS, STA_PLL | STA_INS)); /* a leap second is announced */
  assert_true(harp_shared_clock_is_own(TIME_ERROR, STA_UNSYNC));
  assert_true(harp_shared_clock_is_own(TIME_OK, STA_UNSYNC));
  assert_true(harp_shared_clock_is_own(-1, 0)); /* the kernel, or a filter of system calls, refuses */
}

static void test_a_look_takes_a_step_over(void **state) {
  (void)state;
  struct harp_shared_clock c = {0};
  harp_ns now = harp_clock_ns();
  assert_true(harp_shared_clock_on_time(&c, HARP_SHARED_CLOCK_AUTO, now)); /* the first one */
  harp_ns offset_ns = c.offset_ns;
  assert_false(harp_shared_clock_on_time(&c, HARP_SHARED_CLOCK_AUTO, now)); /* nothing has changed */
  c.offset_ns -= HARP_SEC(5);                                               /* the clock was set since */
  assert_true(harp_shared_clock_on_time(&c, HARP_SHARED_CLOCK_AUTO, now));
  assert_in_range(c.offset_ns, offset_ns - HARP_SEC(1), offset_ns + HARP_SEC(1));
}

static void test_discipline_is_asked_for_now_and_then(void **state) {
  (void)state;
  struct harp_shared_clock c = {0};
  harp_ns now = harp_clock_ns();
  (void)harp_shared_clock_on_time(&c, HARP_SHARED_CLOCK_AUTO, now);
  bool is_own = c.is_own;
  c.is_own = !is_own;
  (void)harp_shared_clock_on_time(&c, HARP_SHARED_CLOCK_AUTO, now + HARP_SHARED_CLOCK_ASK_NS - 1);
  assert_int_equal(c.is_own, !is_own); /* not asked again yet */
  assert_true(harp_shared_clock_on_time(&c, HARP_SHARED_CLOCK_AUTO, now + HARP_SHARED_CLOCK_ASK_NS));
  assert_int_equal(c.is_own, is_own);
}

static void test_the_setting_decides(void **state) {
  (void)state;
  struct harp_shared_clock c = {0};
  harp_ns now = harp_clock_ns();
  (void)harp_shared_clock_on_time(&c, HARP_SHARED_CLOCK_OFF, now);
  assert_true(c.is_own);
  assert_true(harp_shared_clock_on_time(&c, HARP_SHARED_CLOCK_ON, now));
  assert_false(c.is_own);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_clock_is_the_hosts_own_unless_disciplined),
      cmocka_unit_test(test_a_look_takes_a_step_over),
      cmocka_unit_test(test_discipline_is_asked_for_now_and_then),
      cmocka_unit_test(test_the_setting_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
