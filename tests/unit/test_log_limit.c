/* SPDX-License-Identifier: Apache-2.0 */
/* The bound on log lines that others can cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log_limit.h"

enum { FLOOD = 10000 };
#define START_NS HARP_SEC(1000)

static unsigned line_count;
static char last_line[HARP_LOG_LINE_BYTES];
static enum harp_log_level last_level;

static void keep(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  line_count++;
  last_level = level;
  snprintf(last_line, sizeof last_line, "%s", text);
}

static int setup(void **state) {
  (void)state;
  line_count = 0;
  harp_log_set_sink(keep);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  harp_log_set_sink(NULL);
  return 0;
}

/* Returns how many of so many lines are let through. */
static unsigned count_let_through(struct harp_log_limit *l, unsigned lines, harp_ns now) {
  unsigned before = line_count;
  for (unsigned i = 0; i < lines; i++) HARP_INFO_LIMITED(l, now, "line");
  return line_count - before;
}

static unsigned flood(struct harp_log_limit *l, harp_ns now) {
  return count_let_through(l, FLOOD, now);
}

static void test_a_burst_and_then_one_a_second(void **state) {
  struct harp_log_limit l;
  uint64_t count = 0;
  (void)state;
  harp_log_limit_init(&l, &count);
  assert_int_equal(flood(&l, START_NS), HARP_LOG_BURST);
  assert_int_equal(count, FLOOD - HARP_LOG_BURST);
  assert_int_equal(flood(&l, START_NS + HARP_LOG_INTERVAL_NS - 1), 0);
  for (harp_ns now = START_NS + HARP_LOG_INTERVAL_NS; now < START_NS + HARP_SEC(5);
       now += HARP_LOG_INTERVAL_NS)
    assert_int_equal(flood(&l, now), 1);
  assert_int_equal(count, 6 * FLOOD - HARP_LOG_BURST - 4);
}

/* However lines and time are spread, never more than the burst and one a second. */
static void test_a_steady_stream_is_bounded(void **state) {
  enum { SECONDS = 100, A_SECOND = 7 };
  struct harp_log_limit l;
  uint64_t count = 0;
  unsigned taken = 0;
  (void)state;
  harp_log_limit_init(&l, &count);
  for (harp_ns now = START_NS; now < START_NS + HARP_SEC(SECONDS); now += HARP_SEC(1) / A_SECOND)
    taken += count_let_through(&l, 1, now);
  assert_in_range(taken, HARP_LOG_BURST + SECONDS - 2, HARP_LOG_BURST + SECONDS);
}

static void test_quiet_brings_the_burst_back_and_no_more(void **state) {
  static const harp_ns quiet_ns[] = {HARP_LOG_BURST * HARP_LOG_INTERVAL_NS, HARP_SEC(86400),
                                     UINT64_MAX / 2 /* a clock that jumps */};
  struct harp_log_limit l;
  uint64_t count = 0;
  harp_ns now = START_NS;
  (void)state;
  harp_log_limit_init(&l, &count);
  assert_int_equal(flood(&l, now), HARP_LOG_BURST);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(quiet_ns); i++)
    assert_int_equal(flood(&l, now += quiet_ns[i]), HARP_LOG_BURST);
  assert_int_equal(flood(&l, START_NS), 0); /* or goes back */
}

static void test_a_line_tells_how_many_were_left_out(void **state) {
  struct harp_log_limit l;
  uint64_t count = 0;
  (void)state;
  harp_log_limit_init(&l, &count);
  for (unsigned i = 0; i < HARP_LOG_BURST + 3; i++) HARP_INFO_LIMITED(&l, START_NS, "line %u", i);
  assert_int_equal(line_count, HARP_LOG_BURST);
  assert_string_equal(last_line, "line 7");
  HARP_INFO_LIMITED(&l, START_NS + HARP_LOG_INTERVAL_NS, "again");
  assert_string_equal(last_line, "again (3 lines like this were left out)");
  assert_int_equal(last_level, HARP_LOG_INFO);
  HARP_INFO_LIMITED(&l, START_NS + 2 * HARP_LOG_INTERVAL_NS, "and again");
  assert_string_equal(last_line, "and again");
  assert_int_equal(line_count, HARP_LOG_BURST + 2);
  assert_int_equal(count, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_burst_and_then_one_a_second, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_steady_stream_is_bounded, setup, teardown),
      cmocka_unit_test_setup_teardown(test_quiet_brings_the_burst_back_and_no_more, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_line_tells_how_many_were_left_out, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
