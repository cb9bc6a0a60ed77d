/* SPDX-License-Identifier: Apache-2.0 */
/* Wrapping sequence numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/seq.h"

static void test_order_survives_the_wrap(void **state) {
  (void)state;
  assert_true(harp_seq_before(0xFFFFFFFF, 0));
  assert_true(harp_seq_after(5, 0xFFFFFFF0));
  assert_false(harp_seq_before(7, 7));
  assert_false(harp_seq_after(7, 7));
}

static void test_widening_finds_the_nearest(void **state) {
  (void)state;
  assert_true(harp_seq_widen(5, 10) == 5);
  assert_true(harp_seq_widen(5, 0xFFFFFFF0) == 0x100000005);
  assert_true(harp_seq_widen(0xFFFFFFF0, 0x100000005) == 0xFFFFFFF0);
  assert_true(harp_seq_widen(0x80000000, 0x100000000) == 0x80000000);
  assert_true(harp_seq_widen(0x7FFFFFFF, 0x100000000) == 0x17FFFFFFF);
  for (uint64_t near = 0x1FFFFFF00; near < 0x200000100; near += 17) {
    for (int64_t off = -1000; off <= 1000; off += 37)
      assert_true(harp_seq_widen((uint32_t)(near + (uint64_t)off), near) == near + (uint64_t)off);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order_survives_the_wrap),
      cmocka_unit_test(test_widening_finds_the_nearest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
