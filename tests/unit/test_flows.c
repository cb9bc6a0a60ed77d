/* SPDX-License-Identifier: Apache-2.0 */
/* How many paths between two ENIs are in use, by experiments in networks of which only the rate is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/experiments.h"

enum { PATHS = 8 };
#define GBIT     125000000ull /* bytes a second */
#define ROUND_NS HARP_US(250)

/* A network: what a flow carries at most, and all of them together. */
struct network {
  uint64_t flow_bytes_s, all_bytes_s;
  bool held_back;
  unsigned noise; /* permille, up or down, of a round */
};

static struct harp_flows f;
static struct harp_experiments x;
static harp_ns now;
static uint64_t random_state;

static void start(unsigned paths, uint64_t speed_bytes_s) {
  harp_flows_init(&f, (1ull << paths) - 1, speed_bytes_s);
  harp_experiments_init(&x);
  now = HARP_SEC(1);
  random_state = 12345;
  assert_int_equal(f.wanted, 1);
  assert_int_equal(f.count, paths);
}

static uint64_t draw(uint64_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (random_state >> 33) % below;
}

/* As send_experiment.c does at an acknowledgement. */
static void take_phase(void) {
  if (!harp_experiment_is_under_way(&x.search)) (void)!harp_flows_on_verdict(&f, &x.search, now);
  (void)!harp_flows_on_phase(&f, &x.search);
}

static void round_trip(const struct network *n, uint64_t bytes, bool busy) {
  harp_experiments_on_sent(&x, 0, now);
  now += ROUND_NS;
  if (harp_experiment_is_under_way(&x.search) && harp_experiments_feed_search(&x, (uint32_t)bytes, busy, now))
    take_phase();
  harp_flows_on_round(&f, n->held_back);
  if (!harp_flows_want_more(&f, now) || !harp_experiments_allow_search(&x, false)) return;
  struct harp_experiment plan =
      harp_flows_plan(&f, 0, ROUND_NS, HARP_EXPERIMENT_FLOWS_ADAPT_ROUNDS * ROUND_NS, 1);
  harp_experiments_begin_search(&x, &plan, now);
}

/* Lets the network carry what it can for so long; returns bytes a second. */
static uint64_t carry(const struct network *n, harp_ns for_ns) {
  uint64_t bytes = 0;
  harp_ns begin = now;
  while (now < begin + for_ns) {
    uint64_t permille = 1000 + draw(2 * n->noise + 1) - n->noise;
    uint64_t rate = HARP_MIN(n->flow_bytes_s * f.wanted, n->all_bytes_s);
    uint64_t part = rate / 1000 * permille / (HARP_SEC(1) / ROUND_NS);
    round_trip(n, part, true);
    assert_in_range(f.wanted, f.proven, f.count);
    bytes += part;
  }
  return bytes * 1000 / (for_ns / HARP_MS(1));
}

static void test_a_cap_of_flows_opens_all(void **state) {
  (void)state;
  for (unsigned paths = 2; paths <= PATHS; paths++) {
    struct network n = {GBIT, 100 * GBIT, true, 20};
    start(paths, 0);
    carry(&n, HARP_MS(800));
    assert_int_equal(f.proven, paths);
    assert_true(carry(&n, HARP_SEC(20)) >= 98 * paths * GBIT / 100);
  }
}

/* A machine that is busy: each round is up to 60 % off. */
static void test_noise_hides_no_cap(void **state) {
  (void)state;
  struct network n = {GBIT, 100 * GBIT, true, 600};
  start(PATHS, 0);
  carry(&n, HARP_SEC(2));
  assert_int_equal(f.proven, PATHS);
}

/* Flows that are tried begin with half of the window each, and grow by so small a part of it in a round trip.
 * Also with a long one they are measured once they carry what they can. */
static void assert_is_found(harp_ns round_ns, unsigned settle_rounds, unsigned growth_parts) {
  start(2, 0);
  struct harp_experiment e = {.question = HARP_QUESTION_FLOWS},
                         plan = harp_flows_plan(&f, 0, round_ns, settle_rounds * round_ns, 1);
  harp_experiment_begin(&e, &plan);
  double full = (double)GBIT * (double)round_ns / 1e9, windows = full; /* bytes in a round trip */
  while (harp_experiment_is_under_way(&e)) {
    struct harp_slice more = {.bytes = (uint64_t)windows, .busy_ns = round_ns};
    (void)!harp_experiment_feed(&e, &more, HARP_LESSON_NONE);
    double most = harp_experiment_tries(&e) ? 2 * full : full;
    windows = HARP_MIN(windows + windows / growth_parts, most);
  }
  assert_int_equal(e.verdict, HARP_VERDICT_QUICKER);
  assert_in_range(e.time_percent, 50, 57); /* a clear win */
}

static void test_a_long_round_trip_hides_no_cap(void **state) {
  (void)state;
  static const harp_ns rounds_ns[] = {HARP_US(100), HARP_US(300), HARP_MS(1), HARP_MS(5)};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(rounds_ns); i++) {
    assert_is_found(rounds_ns[i], HARP_EXPERIMENT_FLOWS_ADAPT_ROUNDS, 64);
    assert_is_found(rounds_ns[i], HARP_EXPERIMENT_FLOWS_FEW_ROUNDS,
                    149); /* the RTT at which cc_target.c has 3.5 packets */
  }
}

static void test_as_many_are_used_as_pay(void **state) {
  (void)state;
  struct network n = {GBIT, 3 * GBIT, true, 20};
  start(PATHS, 0);
  carry(&n, HARP_SEC(1));
  assert_int_equal(f.proven, 4);
  assert_true(carry(&n, HARP_SEC(20)) >= 97 * 3 * GBIT / 100);
  assert_int_equal(f.proven, 4);
}

/* Where flows are not capped one is used but for experiments, which become rare; noise hardly changes that.
 */
static void test_without_a_cap_one_is_used(void **state) {
  (void)state;
  for (unsigned noise = 0; noise <= 600; noise += 200) {
    struct network n = {40 * GBIT, 40 * GBIT, true, noise};
    harp_ns several_ns = 0;
    start(PATHS, 0);
    for (unsigned ms = 0; ms < 60000; ms++) {
      carry(&n, HARP_MS(1));
      if (f.wanted > 1) several_ns += HARP_MS(1);
    }
    assert_int_equal(f.proven, 1);
    assert_in_range(several_ns, HARP_MS(16), HARP_MS(600)); /* 1 % */
  }
}

/* Neighbours take a share that changes every 5 to 40 ms, as bursts of others do: the rate of this one differs
 * five-fold. */
static void test_neighbours_prove_nothing(void **state) {
  (void)state;
  unsigned proven = 0;
  for (unsigned session = 0; session < 8; session++) {
    start(PATHS, 0);
    random_state += session * 7919;
    while (now < HARP_SEC(61)) {
      uint64_t rate = 10 * GBIT / (1 + draw(5));
      struct network n = {rate, rate, true, 100};
      carry(&n, HARP_MS(5) + HARP_MS(1) * draw(36));
    }
    proven += f.proven;
  }
  assert_in_range(proven, 8, 16); /* at most 2 of 8 paths each */
}

/* At the speed of the NIC, or without a queue, nothing is tried. */
static void test_nothing_is_tried_without_reason(void **state) {
  (void)state;
  struct network full = {10 * GBIT, 10 * GBIT, true, 50}, calm = {GBIT, 100 * GBIT, false, 50};
  start(PATHS, 10 * GBIT);
  for (unsigned i = 0; i < 1000; i++) {
    carry(&full, HARP_MS(1));
    assert_int_equal(f.wanted, 1);
  }
  start(PATHS, 0);
  for (unsigned i = 0; i < 1000; i++) {
    carry(&calm, HARP_MS(1));
    assert_int_equal(f.wanted, 1);
  }
}

/* Bursts with pauses are as good as one that lasts, and what was proven is used at once after a pause. */
static void test_bursts_find_and_keep_their_flows(void **state) {
  (void)state;
  struct network n = {GBIT, 100 * GBIT, true, 20};
  start(PATHS, 0);
  for (unsigned i = 0; i < 120; i++) {
    carry(&n, HARP_MS(8));
    round_trip(&n, 1000, false);
    now += HARP_MS(1300);
  }
  assert_int_equal(f.proven, PATHS);
  assert_int_equal(f.wanted, PATHS);
  assert_true(carry(&n, HARP_MS(8)) >= 95 * PATHS * GBIT / 100);
}

/* An application that sends little never has pressure. */
static void test_little_traffic_tries_nothing(void **state) {
  (void)state;
  struct network calm = {GBIT, GBIT, false, 0};
  start(PATHS, 0);
  for (unsigned i = 0; i < 300; i++) {
    round_trip(&calm, 1000, false);
    now += HARP_MS(10);
  }
  assert_int_equal(f.wanted, 1);
  assert_int_equal(f.pressure, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_cap_of_flows_opens_all),
      cmocka_unit_test(test_noise_hides_no_cap),
      cmocka_unit_test(test_a_long_round_trip_hides_no_cap),
      cmocka_unit_test(test_as_many_are_used_as_pay),
      cmocka_unit_test(test_without_a_cap_one_is_used),
      cmocka_unit_test(test_neighbours_prove_nothing),
      cmocka_unit_test(test_nothing_is_tried_without_reason),
      cmocka_unit_test(test_bursts_find_and_keep_their_flows),
      cmocka_unit_test(test_little_traffic_tries_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
