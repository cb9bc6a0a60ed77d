/* SPDX-License-Identifier: Apache-2.0 */
/* The set of lines to send again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/rng.h"
#include "proto/resend.h"

static struct harp_resend r;
enum { FIRST = 0xFFFFFF00 }; /* just below the wrap */
enum { SPAN = 4096 };        /* lines of the plain set */

static int init(void **state) {
  (void)state;
  harp_resend_init(&r, (uint32_t)FIRST);
  return 0;
}

static void test_runs_merge_and_come_lowest_first(void **state) {
  (void)state;
  uint32_t line;
  assert_int_equal(harp_resend_first(&r, 100, &line), 0);
  harp_resend_add(&r, FIRST + 50, 10, FIRST);
  harp_resend_add(&r, FIRST + 60, 5, FIRST);
  harp_resend_add(&r, FIRST + 10, 5, FIRST);
  harp_resend_add(&r, FIRST + 12, 5, FIRST); /* overlaps */
  assert_int_equal(r.count, 22);
  assert_int_equal(harp_resend_first(&r, 100, &line), 7);
  assert_int_equal(line, FIRST + 10);
  assert_int_equal(harp_resend_first(&r, 3, &line), 3);
  harp_resend_remove(&r, FIRST + 10, 7);
  assert_int_equal(harp_resend_first(&r, 100, &line), 15);
  assert_int_equal(line, FIRST + 50);
}

static void test_what_was_delivered_is_not_added(void **state) {
  (void)state;
  uint32_t line;
  harp_resend_add(&r, FIRST + 10, 10, FIRST + 20);
  assert_int_equal(r.count, 0);
  harp_resend_add(&r, FIRST + 10, 20, FIRST + 25);
  assert_int_equal(r.count, 5);
  assert_int_equal(harp_resend_first(&r, 100, &line), 5);
  assert_int_equal(line, FIRST + 25);
}

static void test_a_run_is_removed(void **state) {
  (void)state;
  uint32_t line;
  harp_resend_add(&r, FIRST + 200, 200, FIRST); /* across the wrap */
  harp_resend_remove(&r, FIRST, 300);
  assert_int_equal(r.count, 100);
  assert_int_equal(harp_resend_first(&r, 1000, &line), 100);
  assert_int_equal(line, (uint32_t)FIRST + 300);
  harp_resend_remove(&r, FIRST + 300, 100);
  assert_int_equal(r.count, 0);
}

/* A late acknowledgement of something delivered long ago must not touch a line one window later. */
static void test_an_old_line_does_not_remove_a_new_one(void **state) {
  (void)state;
  uint32_t delivered = FIRST + 1000, line;
  harp_resend_add(&r, FIRST + 5 + HARP_WINDOW_LINES, 3, delivered);
  harp_resend_remove(&r, FIRST + 5, 3);
  assert_int_equal(r.count, 3);
  assert_int_equal(harp_resend_first(&r, 10, &line), 3);
  assert_int_equal(line, (uint32_t)FIRST + 5 + HARP_WINDOW_LINES);
  harp_resend_remove(&r, line - 10, 11); /* straddles the lowest */
  assert_int_equal(r.count, 2);
}

static void test_it_agrees_with_a_plain_set(void **state) {
  (void)state;
  static bool plain[SPAN];
  struct rng random = {3};
  uint32_t delivered = 0;
  for (int i = 0; i < 3000; i++) {
    uint32_t at = delivered + (uint32_t)rng_below(&random, 900),
             count = (uint32_t)rng_between(&random, 1, 64), line;
    if (at + count > SPAN) break;
    switch (rng_below(&random, 4)) {
    case 0:
    case 1:
      harp_resend_add(&r, FIRST + at, count, FIRST + delivered);
      memset(plain + at, 1, count);
      break;
    case 2:
      harp_resend_remove(&r, FIRST + at, count);
      memset(plain + at, 0, count);
      break;
    default:
      count %= 4;
      harp_resend_remove(&r, FIRST + delivered, count);
      memset(plain + delivered, 0, count);
      delivered += count;
    }
    uint32_t members = 0, lowest = SPAN, run = 0;
    for (uint32_t k = 0; k < SPAN; k++) {
      members += plain[k];
      if (plain[k] && lowest == SPAN) lowest = k;
    }
    while (lowest + run < SPAN && plain[lowest + run]) run++;
    assert_int_equal(r.count, members);
    assert_int_equal(harp_resend_first(&r, SPAN, &line), run);
    if (run) assert_int_equal(line, FIRST + lowest);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_runs_merge_and_come_lowest_first, init),
      cmocka_unit_test_setup(test_what_was_delivered_is_not_added, init),
      cmocka_unit_test_setup(test_a_run_is_removed, init),
      cmocka_unit_test_setup(test_an_old_line_does_not_remove_a_new_one, init),
      cmocka_unit_test_setup(test_it_agrees_with_a_plain_set, init),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
