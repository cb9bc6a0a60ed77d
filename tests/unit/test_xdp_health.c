/* SPDX-License-Identifier: Apache-2.0 */
/* The counters that make the queues of an xdp driver count as failed, and which do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/xdp/health.h"

enum { MANY = HARP_XDP_UNRECEIVED_PACKETS + 1 };

static struct harp_xdp_health health;
static struct harp_xdp_progress at;

static int fresh(void **state) {
  (void)state;
  memset(&health, 0, sizeof health);
  memset(&at, 0, sizeof at);
  return 0;
}

static bool is_healthy(harp_ns now) {
  return harp_xdp_health_check(&health, &at, now) == NULL;
}

static void test_idle_queues_are_healthy(void **state) {
  (void)state;
  for (int second = 0; second < 100; second += 10) assert_true(is_healthy(HARP_SEC(second)));
}

static void test_sends_that_stay_under_way_are_a_stall(void **state) {
  (void)state;
  assert_true(is_healthy(HARP_SEC(1)));
  at.sent = 10;
  assert_true(is_healthy(HARP_SEC(2)));
  at.completed = 4;
  assert_true(is_healthy(HARP_SEC(3)));
  at.sent = 20;
  assert_true(is_healthy(HARP_SEC(5)));
  assert_string_equal(harp_xdp_health_check(&health, &at, HARP_SEC(5) + 1), "no send was completed for 2 s");
}

/* The process slept, or waited for its peer, and has sent something just before the check. */
static void test_a_send_after_a_pause_is_no_stall(void **state) {
  (void)state;
  at.sent = at.completed = 10;
  assert_true(is_healthy(HARP_SEC(1)));
  at.sent = 11;
  assert_true(is_healthy(HARP_SEC(60)));
  assert_true(is_healthy(HARP_SEC(61)));
  assert_false(is_healthy(HARP_SEC(63)));
}

static void test_packets_that_are_never_received_are_a_failure(void **state) {
  (void)state;
  at.redirected = at.received = 1000;
  assert_true(is_healthy(1));
  at.redirected += MANY;
  assert_true(is_healthy(2));
  assert_true(is_healthy(2 + HARP_XDP_UNRECEIVED_NS));
  assert_string_equal(harp_xdp_health_check(&health, &at, 3 + HARP_XDP_UNRECEIVED_NS),
                      "redirected packets do not arrive in the rx rings");
}

static void test_nothing_received_from_the_start(void **state) {
  (void)state;
  at.redirected = MANY;
  assert_true(is_healthy(1));
  assert_false(is_healthy(2 + HARP_XDP_UNRECEIVED_NS));
}

/* The core that redirects them was preempted between counting them and publishing them. */
static void test_a_batch_that_is_late_is_no_failure(void **state) {
  (void)state;
  for (int turn = 0; turn < 10; turn++) {
    harp_ns start = HARP_SEC(turn + 1);
    assert_true(is_healthy(start));
    at.redirected += 10 * MANY;
    for (harp_ns late = 0; late <= HARP_XDP_UNRECEIVED_NS; late += HARP_MS(50))
      assert_true(is_healthy(start + late));
    at.received += 1;
    assert_true(is_healthy(start + HARP_XDP_UNRECEIVED_NS + HARP_MS(50)));
  }
}

/* A burst fills the rings between the last receive and the check, after a time without any packet. */
static void test_a_burst_just_before_the_check_is_no_failure(void **state) {
  (void)state;
  for (harp_ns now = HARP_SEC(1); now < HARP_SEC(100); now += HARP_SEC(1)) {
    assert_true(is_healthy(now));
    at.redirected += MANY;
    assert_true(is_healthy(now + HARP_MS(500)));
    at.received += MANY;
  }
}

/* The rings were full, or too few were counted, because queues count without a lock. */
static void test_some_lost_packets_are_no_failure(void **state) {
  (void)state;
  for (int second = 1; second < 100; second++) {
    at.redirected += 1000;
    at.received += second % 2 ? 1 : 2000;
    assert_true(is_healthy(HARP_SEC(second)));
  }
}

static void test_a_few_packets_are_too_few_to_judge(void **state) {
  (void)state;
  at.redirected = HARP_XDP_UNRECEIVED_PACKETS;
  for (int second = 1; second < 10; second++) assert_true(is_healthy(HARP_SEC(second)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_idle_queues_are_healthy, fresh),
      cmocka_unit_test_setup(test_sends_that_stay_under_way_are_a_stall, fresh),
      cmocka_unit_test_setup(test_a_send_after_a_pause_is_no_stall, fresh),
      cmocka_unit_test_setup(test_packets_that_are_never_received_are_a_failure, fresh),
      cmocka_unit_test_setup(test_nothing_received_from_the_start, fresh),
      cmocka_unit_test_setup(test_a_batch_that_is_late_is_no_failure, fresh),
      cmocka_unit_test_setup(test_a_burst_just_before_the_check_is_no_failure, fresh),
      cmocka_unit_test_setup(test_some_lost_packets_are_no_failure, fresh),
      cmocka_unit_test_setup(test_a_few_packets_are_too_few_to_judge, fresh),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
