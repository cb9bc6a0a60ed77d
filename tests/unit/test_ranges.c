/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of packet numbers: joining, forgetting, and agreement with a plain set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/ranges.h"
#include "models/rng.h"

static void check(const struct harp_ranges *r) {
  assert_in_range(r->count, 0, HARP_RANGES_MAX);
  for (uint32_t i = 0; i < r->count; i++) {
    assert_true(r->at[i].begin < r->at[i].end);
    if (i) assert_true(r->at[i].end < r->at[i - 1].begin); /* apart by at least one */
  }
}

static bool has(const struct harp_ranges *r, uint64_t number) {
  bool found = false;
  for (uint32_t i = 0; i < r->count; i++) found |= r->at[i].begin <= number && number < r->at[i].end;
  assert_int_equal(harp_ranges_has(r, number), found);
  return found;
}

static void test_numbers_in_order_are_one_range(void **state) {
  (void)state;
  struct harp_ranges r = {0};
  for (uint64_t n = 10; n < 1000; n++) assert_true(harp_ranges_add(&r, n));
  assert_int_equal(r.count, 1);
  assert_int_equal(r.at[0].begin, 10);
  assert_int_equal(r.at[0].end, 1000);
}

static void test_a_gap_closes(void **state) {
  (void)state;
  struct harp_ranges r = {0};
  assert_true(harp_ranges_add(&r, 1));
  assert_true(harp_ranges_add(&r, 5));
  assert_true(harp_ranges_add(&r, 3));
  assert_int_equal(r.count, 3);
  assert_true(harp_ranges_add(&r, 4)); /* joins 3 and 5 */
  assert_int_equal(r.count, 2);
  assert_int_equal(r.at[0].begin, 3);
  assert_int_equal(r.at[0].end, 6);
  assert_true(harp_ranges_add(&r, 2)); /* and now all */
  assert_int_equal(r.count, 1);
  assert_int_equal(r.at[0].begin, 1);
  assert_int_equal(r.at[0].end, 6);
}

static void test_what_was_there_is_refused(void **state) {
  (void)state;
  struct harp_ranges r = {0};
  for (uint64_t n = 0; n < 20; n += 2) harp_ranges_add(&r, n);
  for (uint64_t n = 0; n < 20; n += 2) assert_false(harp_ranges_add(&r, n));
  assert_int_equal(r.count, 10);
}

static void test_a_full_set_forgets_the_oldest(void **state) {
  (void)state;
  struct harp_ranges r = {0};
  for (uint64_t n = 0; n < HARP_RANGES_MAX; n++) assert_true(harp_ranges_add(&r, 100 + 2 * n));
  assert_true(has(&r, 100));
  assert_true(harp_ranges_add(&r, 1000));
  check(&r);
  assert_false(has(&r, 100));
  assert_true(has(&r, 102));
  assert_false(harp_ranges_add(&r, 50)); /* below a full set */
  check(&r);
  assert_true(harp_ranges_add(&r, 105)); /* in the middle of one: the two join */
  check(&r);
}

static void test_old_ranges_are_forgotten_but_not_the_newest(void **state) {
  (void)state;
  struct harp_ranges r = {0};
  for (uint64_t n = 1; n < 10; n += 2) harp_ranges_add(&r, n);
  harp_ranges_forget_below(&r, 1);
  assert_int_equal(r.count, 5);
  harp_ranges_forget_below(&r, 5);
  assert_int_equal(r.count, 3);
  assert_true(has(&r, 5));
  harp_ranges_forget_below(&r, 100);
  assert_int_equal(r.count, 1);
  assert_true(has(&r, 9));
}

static void test_it_agrees_with_a_plain_set(void **state) {
  (void)state;
  struct rng r = {11};
  for (int round = 0; round < 200; round++) {
    struct harp_ranges ranges = {0};
    bool plain[60] = {0}; /* few enough that the set never overflows */
    for (int i = 0; i < 100; i++) {
      uint64_t n = rng_below(&r, 60);
      assert_int_equal(harp_ranges_add(&ranges, (1ull << 32) - 30 + n), !plain[n]);
      plain[n] = true;
      check(&ranges);
      for (uint64_t k = 0; k < 60; k++) assert_int_equal(has(&ranges, (1ull << 32) - 30 + k), plain[k]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers_in_order_are_one_range),
      cmocka_unit_test(test_a_gap_closes),
      cmocka_unit_test(test_what_was_there_is_refused),
      cmocka_unit_test(test_a_full_set_forgets_the_oldest),
      cmocka_unit_test(test_old_ranges_are_forgotten_but_not_the_newest),
      cmocka_unit_test(test_it_agrees_with_a_plain_set),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
