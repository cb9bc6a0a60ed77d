/* SPDX-License-Identifier: Apache-2.0 */
/* The ring bitmap over lines, against a plain array of flags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/linemap.h"
#include "models/rng.h"

static struct harp_linemap map;
static uint8_t plain[HARP_WINDOW_LINES];

static int reset(void **state) {
  (void)state;
  memset(&map, 0, sizeof map);
  memset(plain, 0, sizeof plain);
  return 0;
}

static uint32_t plain_run(uint32_t line, uint32_t limit, bool value) {
  uint32_t n = 0;
  while (n < limit && plain[(line + n) % HARP_WINDOW_LINES] == value) n++;
  return n;
}

static void test_an_empty_map_has_nothing(void **state) {
  (void)state;
  assert_false(harp_linemap_test(&map, 0));
  assert_int_equal(harp_linemap_run(&map, 5, 1000, true), 0);
  assert_int_equal(harp_linemap_run(&map, 5, 1000, false), 1000);
  assert_int_equal(harp_linemap_run(&map, 77, HARP_WINDOW_LINES, false), HARP_WINDOW_LINES);
}

static void test_a_full_map_has_everything(void **state) {
  (void)state;
  harp_linemap_set(&map, 0xFFFFFFF0, HARP_WINDOW_LINES);
  assert_int_equal(harp_linemap_run(&map, 3, HARP_WINDOW_LINES, true), HARP_WINDOW_LINES);
  harp_linemap_clear(&map, 3, HARP_WINDOW_LINES);
  assert_int_equal(harp_linemap_run(&map, 0, HARP_WINDOW_LINES, false), HARP_WINDOW_LINES);
}

static void test_runs_end_at_word_edges(void **state) {
  (void)state;
  for (uint32_t count = 1; count < 200; count++) {
    for (uint32_t at = 60; at < 70; at++) {
      reset(NULL);
      harp_linemap_set(&map, at, count);
      assert_int_equal(harp_linemap_run(&map, at, 1000, true), count);
      assert_int_equal(harp_linemap_run(&map, at - 1, 1000, true), 0);
      assert_int_equal(harp_linemap_run(&map, 0, 1000, false), at);
      assert_int_equal(harp_linemap_run(&map, at, count - 1, true), count - 1);
    }
  }
}

static void test_numbers_wrap_around(void **state) {
  (void)state;
  harp_linemap_set(&map, 0xFFFFFFFE, 4); /* ..FE ..FF 0 1 */
  assert_true(harp_linemap_test(&map, 0xFFFFFFFF));
  assert_true(harp_linemap_test(&map, 1));
  assert_false(harp_linemap_test(&map, 2));
  assert_int_equal(harp_linemap_run(&map, 0xFFFFFFFE, 64, true), 4);
}

static void test_it_agrees_with_a_plain_array(void **state) {
  (void)state;
  struct rng r = {7};
  uint32_t base = 0u - 50000;
  for (int i = 0; i < 4000; i++) {
    uint32_t line = base + (uint32_t)rng_below(&r, HARP_WINDOW_LINES), count = (uint32_t)rng_below(&r, 300);
    bool value = rng_below(&r, 2);
    if (value)
      harp_linemap_set(&map, line, count);
    else
      harp_linemap_clear(&map, line, count);
    for (uint32_t k = 0; k < count; k++) plain[(line + k) % HARP_WINDOW_LINES] = value;
    uint32_t at = base + (uint32_t)rng_below(&r, HARP_WINDOW_LINES), limit = (uint32_t)rng_below(&r, 5000);
    assert_int_equal(harp_linemap_run(&map, at, limit, true), plain_run(at, limit, true));
    assert_int_equal(harp_linemap_run(&map, at, limit, false), plain_run(at, limit, false));
    assert_int_equal(harp_linemap_test(&map, at), plain[at % HARP_WINDOW_LINES]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_an_empty_map_has_nothing, reset),
      cmocka_unit_test_setup(test_a_full_map_has_everything, reset),
      cmocka_unit_test_setup(test_runs_end_at_word_edges, reset),
      cmocka_unit_test_setup(test_numbers_wrap_around, reset),
      cmocka_unit_test_setup(test_it_agrees_with_a_plain_array, reset),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
