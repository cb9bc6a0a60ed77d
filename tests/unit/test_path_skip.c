/* SPDX-License-Identifier: Apache-2.0 */
/* Packet numbers that are never used, and acknowledgements of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/path_skip.h"

enum { FIRST = 1000, GAPS = 200 };

static void test_gaps_come_at_random(void **state) {
  struct harp_path_skip k;
  uint64_t number = FIRST, packets = 0, longest = 0;
  unsigned ones = 0;
  (void)state;
  harp_path_skip_init(&k, FIRST, 42);
  for (unsigned gaps = 0; gaps < GAPS;) {
    uint64_t next = harp_path_skip_next(&k, number);
    if (next != number) {
      assert_in_range(packets, HARP_PATH_SKIP_GAP_MIN, 3 * HARP_PATH_SKIP_GAP_MIN);
      assert_in_range(next - number, 1, 1 << (HARP_PATH_SKIP_DOUBLINGS - 1));
      longest = HARP_MAX(longest, next - number);
      ones += next - number == 1;
      packets = 0;
      gaps++;
    }
    number = next + 1;
    packets++;
  }
  assert_int_equal(longest, 1 << (HARP_PATH_SKIP_DOUBLINGS - 1));
  assert_in_range(ones, GAPS / 12, GAPS / 3);
}

static void test_who_names_a_gap_is_found_out(void **state) {
  struct harp_path_skip k;
  (void)state;
  harp_path_skip_init(&k, FIRST, 42);
  uint64_t begin = k.at_number, end = harp_path_skip_next(&k, begin);
  assert_false(harp_path_skip_is_false(&k, FIRST, begin));
  assert_false(harp_path_skip_is_false(&k, end, end + 100));
  assert_true(harp_path_skip_is_false(&k, begin, begin + 1));
  assert_true(harp_path_skip_is_false(&k, end - 1, end));
  assert_true(harp_path_skip_is_false(&k, FIRST, end + 100));
  assert_int_equal(k.skipped, end - begin);
}

static void test_without_a_seed_none_is_skipped(void **state) {
  struct harp_path_skip k;
  (void)state;
  harp_path_skip_init(&k, FIRST, 0);
  for (uint64_t number = FIRST; number < FIRST + 100000; number++)
    assert_int_equal(harp_path_skip_next(&k, number), number);
  assert_false(harp_path_skip_is_false(&k, 0, UINT64_MAX));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gaps_come_at_random),
      cmocka_unit_test(test_who_names_a_gap_is_found_out),
      cmocka_unit_test(test_without_a_seed_none_is_skipped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
