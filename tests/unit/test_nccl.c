/* SPDX-License-Identifier: Apache-2.0 */
/* What nccl/ decides by itself: result codes, and how lines reach NCCL's logger. The tables are driven by
 * tests/conformance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#define harp_is_in_library is_in_library
#include "nccl/log.c"
#include "nccl/result.c"

static uintptr_t unloaded; /* the function whose library is gone */

bool is_in_library(uintptr_t address) {
  return address != unloaded;
}

static struct {
  unsigned count;
  enum harp_nccl_log_level level;
  unsigned long flags;
  int line;
  char where[64], text[HARP_LOG_LINE_BYTES + 64];
} seen;

static void HARP_PRINTF(5, 6) record(enum harp_nccl_log_level level, unsigned long flags, const char *where,
                                     int line, const char *fmt, ...) {
  va_list ap;
  seen.count++;
  seen.level = level;
  seen.flags = flags;
  seen.line = line;
  snprintf(seen.where, sizeof seen.where, "%s", where);
  va_start(ap, fmt);
  vsnprintf(seen.text, sizeof seen.text, fmt, ap);
  va_end(ap);
}

static int set_up(void **state) {
  (void)state;
  memset(&seen, 0, sizeof seen);
  harp_nccl_log_use(record);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  harp_nccl_log_use(NULL);
  return 0;
}

static void test_each_status_has_its_result(void **state) {
  (void)state;
  assert_int_equal(harp_nccl_result_of(HARP_OK), 0);
  assert_int_equal(harp_nccl_result_of(HARP_ERR_SYSTEM), 2);
  assert_int_equal(harp_nccl_result_of(HARP_ERR_INTERNAL), 3);
  assert_int_equal(harp_nccl_result_of(HARP_ERR_ARGUMENT), 4);
  assert_int_equal(harp_nccl_result_of(HARP_ERR_USAGE), 5);
  assert_int_equal(harp_nccl_result_of(HARP_ERR_REMOTE), 6);
  assert_int_equal(harp_nccl_result_of((enum harp_status)99), 3);
}

static void test_old_nccl_knows_no_remote_error(void **state) {
  (void)state;
  for (int result = 0; result < HARP_NCCL_REMOTE_ERROR; result++)
    assert_int_equal(harp_nccl_result_old((enum harp_nccl_result)result), result);
  assert_int_equal(harp_nccl_result_old(HARP_NCCL_REMOTE_ERROR), HARP_NCCL_SYSTEM_ERROR);
}

static void test_levels_are_nccls(void **state) {
  (void)state;
  HARP_WARN("lost %s", "peer");
  assert_int_equal(seen.level, 2);
  HARP_INFO("hello");
  assert_int_equal(seen.level, 3);
  assert_int_equal(seen.count, 2);
}

static void test_line_contains_who_and_where(void **state) {
  (void)state;
  HARP_WARN("100%% of %d", 7);
  assert_int_equal(seen.line, __LINE__ - 1);
  assert_non_null(strstr(seen.where, "test_nccl.c"));
  assert_int_equal(seen.flags, HARP_NCCL_LOG_INIT | HARP_NCCL_LOG_NET);
  assert_non_null(strstr(seen.text, "HARP"));
  assert_non_null(strstr(seen.text, "100% of 7"));
}

static void test_text_is_never_a_format(void **state) {
  (void)state;
  HARP_WARN("%s", "an interface named %s%n");
  assert_non_null(strstr(seen.text, "an interface named %s%n"));
}

static void test_no_logger_drops_lines(void **state) {
  (void)state;
  harp_nccl_log_use(NULL);
  HARP_WARN("nobody hears this");
  assert_int_equal(seen.count, 0);
}

static unsigned second_count;

static void HARP_PRINTF(5, 6) count_second(enum harp_nccl_log_level level, unsigned long flags,
                                           const char *where, int line, const char *fmt, ...) {
  (void)level, (void)flags, (void)where, (void)line, (void)fmt;
  second_count++;
}

/* A process may unload one of two NCCLs: the lines then go to the other, or nowhere. */
static void test_an_unloaded_logger_is_not_called(void **state) {
  (void)state;
  harp_nccl_log_use(count_second);
  harp_nccl_log_use(count_second); /* another communicator's logger */
  HARP_INFO("to the last one's");
  assert_int_equal(second_count, 1);
  unloaded = (uintptr_t)count_second;
  HARP_INFO("to the one that is left");
  assert_int_equal(second_count, 1);
  assert_int_equal(seen.count, 1);
  unloaded = (uintptr_t)record;
  HARP_INFO("to the last one's");
  assert_int_equal(second_count, 2);
  assert_int_equal(seen.count, 1);
  harp_nccl_log_use(record);
  unloaded = 0;
}

/* A logger may be made at run time, in no library: it is there for good. */
static void test_a_logger_outside_of_libraries_is_called(void **state) {
  (void)state;
  unloaded = (uintptr_t)count_second;
  second_count = 0;
  harp_nccl_log_use(count_second);
  HARP_INFO("hello");
  assert_int_equal(second_count, 1);
  unloaded = 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_status_has_its_result),
      cmocka_unit_test(test_old_nccl_knows_no_remote_error),
      cmocka_unit_test_setup_teardown(test_levels_are_nccls, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_line_contains_who_and_where, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_text_is_never_a_format, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_no_logger_drops_lines, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_an_unloaded_logger_is_not_called, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_logger_outside_of_libraries_is_called, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
