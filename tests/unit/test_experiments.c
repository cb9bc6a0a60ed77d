/* SPDX-License-Identifier: Apache-2.0 */
/* The experiments of a session about the carrier of large messages: TCP and datagrams that each have a rate,
 * TCP with silences in which datagrams carry its messages, and rates that change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/experiments.h"

enum { TCP_PAIR = 1, DATAGRAM_PAIR = 2, BOTH = TCP_PAIR | DATAGRAM_PAIR };
#define STEP_NS HARP_MS(1)
#define DEBT_NS ((int64_t)HARP_SEC(200)) /* the cost of trials that were lost */

static struct harp_experiments x;
static double tcp_gbit, datagrams_gbit; /* what they move */
static bool is_silent, is_down;         /* TCP is silent, and known to be */
static harp_ns now;

static int init(void **state) {
  (void)state;
  harp_experiments_init(&x);
  tcp_gbit = 2;
  datagrams_gbit = 0.1;
  is_silent = is_down = false;
  now = HARP_SEC(1);
  (void)harp_experiments_on_pairs(&x, BOTH, 0, true);
  return 0;
}

/* Moves what the carrier that is to be taken moves in a step. */
static void step(void) {
  bool by_tcp = !harp_experiments_take_datagrams(&x) && !is_down, ended = false;
  double gbit = !by_tcp ? datagrams_gbit : is_silent ? 0 : tcp_gbit;
  enum harp_lesson lesson =
      harp_experiments_wait_for_tcp(&x) && is_silent ? HARP_LESSON_PATHS : HARP_LESSON_NONE;
  now += STEP_NS;
  (void)!harp_experiments_feed_large(&x, (uint32_t)(gbit * STEP_NS / 8), true, lesson, &ended, now);
}

static void run(harp_ns for_ns) {
  for (harp_ns until_ns = now + for_ns; now < until_ns;) step();
}

/* TCP is silent, until its path goes DOWN; and UP again after a while. */
static void fall_silent(harp_ns for_ns) {
  is_silent = true;
  run(HARP_MS(30));
  (void)harp_experiments_on_trouble(&x, now);
  is_down = true;
  (void)harp_experiments_on_pairs(&x, DATAGRAM_PAIR, TCP_PAIR, false);
  run(for_ns);
  is_silent = is_down = false;
  (void)harp_experiments_on_pairs(&x, BOTH, 0, true);
}

static void take_datagrams(void) {
  datagrams_gbit = 10;
  run(HARP_SEC(4));
  assert_true(x.datagrams);
}

/* Datagrams are slow, as between hosts whose cores other work uses: nothing changes however often TCP is
 * silent, and the trials of datagrams are few. */
static void test_silences_of_tcp_change_nothing(void **state) {
  (void)state;
  for (unsigned i = 0; i < 100; i++) {
    run(HARP_MS(100 + i));
    fall_silent(HARP_MS(20));
    assert_false(x.datagrams);
  }
  assert_in_range(x.carrier_report.count, 1, 5);
}

/* Datagrams are quicker than TCP between its silences: they are found. */
static void test_silences_of_tcp_count_as_its_time(void **state) {
  (void)state;
  datagrams_gbit = 1.8;
  for (unsigned i = 0; i < 40 && !x.datagrams; i++) {
    run(HARP_MS(10));
    fall_silent(HARP_MS(10));
  }
  assert_true(x.datagrams);
}

/* The slices before and after are silences: datagrams win against both, but not against what TCP moves. */
static void test_a_win_against_silences_is_none(void **state) {
  (void)state;
  run(HARP_SEC(3));
  x.earned_ns = HARP_EXPERIMENTS_COST_PARTS * (int64_t)HARP_SEC(1);
  x.trouble_ns = now; /* one clear win is enough */
  x.carrier.next_ns = now;
  step();
  unsigned before = x.carrier_report.count;
  assert_true(harp_experiment_is_under_way(&x.trial));
  while (harp_experiment_is_under_way(&x.trial)) {
    is_silent = !harp_experiment_tries(&x.trial);
    step();
  }
  assert_int_equal(x.carrier_report.count, before + 1);
  assert_int_equal(x.carrier_report.verdict, HARP_VERDICT_LOST);
  assert_false(x.datagrams);
}

/* Datagrams are in use, and become slow: TCP is found at once, whatever trials have cost. */
static void test_what_fades_is_compared_at_once(void **state) {
  (void)state;
  take_datagrams();
  datagrams_gbit = 0.1;
  x.earned_ns = -DEBT_NS * HARP_EXPERIMENTS_COST_PARTS;
  run(HARP_SEC(3));
  assert_false(x.datagrams);
}

/* TCP is silent where its trial begins: the trial waits for it. */
static void test_a_trial_by_fade_waits_for_tcp(void **state) {
  (void)state;
  take_datagrams();
  datagrams_gbit = 0.1;
  x.earned_ns = -DEBT_NS * HARP_EXPERIMENTS_COST_PARTS;
  while (!harp_experiment_tries(&x.trial)) step();
  fall_silent(HARP_MS(240));
  run(HARP_SEC(1));
  assert_false(x.datagrams);
}

/* Both have become slow: trials by rule 6 end, and are rare until then. */
static void test_trials_by_fade_end(void **state) {
  (void)state;
  take_datagrams();
  datagrams_gbit = tcp_gbit = 0.1;
  unsigned before = x.carrier_report.count;
  x.earned_ns = -DEBT_NS * HARP_EXPERIMENTS_COST_PARTS;
  run(HARP_SEC(60));
  assert_in_range(x.carrier_report.count - before, 1, 10);
}

/* The job needs less: no trial. */
static void test_a_fade_needs_evidence_of_the_other(void **state) {
  (void)state;
  run(HARP_SEC(2));
  unsigned before = x.carrier_report.count;
  x.earned_ns = -DEBT_NS * HARP_EXPERIMENTS_COST_PARTS;
  tcp_gbit = 0.2;
  run(HARP_SEC(20));
  assert_int_equal(x.carrier_report.count, before);
}

/* Another network: what its carriers moved is not known. */
static void test_other_pairs_forget_what_was_moved(void **state) {
  (void)state;
  take_datagrams();
  assert_true(x.other.busy_ns && x.lately.busy_ns);
  (void)harp_experiments_on_pairs(&x, DATAGRAM_PAIR, TCP_PAIR, false);
  assert_true(x.other.busy_ns && x.lately.busy_ns);
  (void)harp_experiments_on_pairs(&x, BOTH | 4, 0, true);
  assert_false(x.other.busy_ns || x.lately.busy_ns);
}

int main(void) {
#define T(test) cmocka_unit_test_setup(test, init)
  const struct CMUnitTest tests[] = {
      T(test_silences_of_tcp_change_nothing),     T(test_silences_of_tcp_count_as_its_time),
      T(test_a_win_against_silences_is_none),     T(test_what_fades_is_compared_at_once),
      T(test_a_trial_by_fade_waits_for_tcp),      T(test_trials_by_fade_end),
      T(test_a_fade_needs_evidence_of_the_other), T(test_other_pairs_forget_what_was_moved),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
