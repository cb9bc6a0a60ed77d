/* SPDX-License-Identifier: Apache-2.0 */
/* What is logged at the end: all counters, drops first, in lines that fit; sessions that lost much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/watch/summary.h"
#include "lib/sides.h"

enum { LINES_MAX = 16, NCCL_LINE_BYTES = 900 };

static char lines[LINES_MAX][HARP_LOG_LINE_BYTES];
static unsigned line_count;

static void keep_line(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  assert_int_equal(level, HARP_LOG_INFO);
  assert_true(line_count < LINES_MAX);
  snprintf(lines[line_count++], sizeof lines[0], "%s", text);
}

static int setup(void **state) {
  (void)state;
  line_count = 0;
  sides_now_ns = HARP_SEC(1);
  harp_log_set_sink(keep_line);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  harp_log_set_sink(NULL);
  return 0;
}

/* Even the largest numbers are all there, and no line is cut. */
static void test_everything_is_logged(void **state) {
  (void)state;
  static struct harp_engine e = {.name = "eth1+eth2 engine 2 (core 5)"};
  memset(&e.counters, 0xff, sizeof e.counters);
  harp_summary_of_engine(&e);
  assert_true(line_count > 1);
  assert_ptr_equal(
      strstr(lines[0], "eth1+eth2 engine 2 (core 5): statistics: drop_SHORT 18446744073709551615 "),
      lines[0]);
  static char all[LINES_MAX * HARP_LOG_LINE_BYTES];
  all[0] = 0;
  for (unsigned i = 0; i < line_count; i++) {
    assert_true(strlen(lines[i]) < NCCL_LINE_BYTES - 200); /* what NCCL puts before it */
    strcat(strcat(all, lines[i]), " ");
  }
  char item[96];
#define X(name, unit, text)                                                                                  \
  snprintf(item, sizeof item, " %s 18446744073709551615 ", #name);                                           \
  assert_non_null(strstr(all, item));
  HARP_COUNTERS(X)
#undef X
#define X(name, text)                                                                                        \
  snprintf(item, sizeof item, " drop_%s 18446744073709551615 ", #name);                                      \
  assert_non_null(strstr(all, item));
  HARP_DROPS(X)
#undef X
}

static void test_zeros_are_left_out(void **state) {
  (void)state;
  static struct harp_engine e = {.name = "eth1"};
  harp_summary_of_engine(&e);
  e.counters.rx_packets = 3;
  harp_summary_of_engine(&e);
  assert_int_equal(line_count, 2);
  assert_string_equal(lines[0], "eth1: statistics: no traffic");
  assert_string_equal(lines[1], "eth1: statistics: rx_packets 3");
}

static void test_sessions_that_lost_much(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  side_open(&a, &b, false, 1000, 0);
  side_open(&b, &a, false, 2000, 0);
  sides_connect(&a, &b, 0);
  struct harp_peer *peer = a.link->peer;
  struct harp_path *p = &peer->session.sender->paths[1];
  line_count = 0;
  p->next_number = p->stats.first_number + 100000;
  p->stats.lost_packets = 63; /* few */
  harp_summary_of_peer(peer);
  p->stats.lost_packets = 99; /* less than one in 1000 */
  harp_summary_of_peer(peer);
  assert_int_equal(line_count, 0);
  p->stats.lost_packets = 120;
  p->stats.resent_packets = 121;
  p->stats.probe_timeouts = 2;
  harp_summary_of_peer(peer);
  assert_int_equal(line_count, 1);
  assert_string_equal(
      lines[0], "sim0: of 100000 packets sent to host (0.0.0.0) process 7 120 were lost and 121 sent again, "
                "with 2 probe timeouts; most, 120, were lost on sim0");
  p->stats.lost_packets = p->stats.resent_packets = 0;
  p->next_number = p->stats.first_number;
  side_close(&a);
  side_close(&b);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_everything_is_logged),
      TEST(test_zeros_are_left_out),
      TEST(test_sessions_that_lost_much),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
