/* SPDX-License-Identifier: Apache-2.0 */
/* How many paths between two ENIs are in use, beside networks of which only the rate is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/flows.h"

enum { PATHS = 8 };
#define GBIT     125000000ull /* bytes a second */
#define ROUND_NS HARP_US(250)

/* A network: what a flow carries at most, and all of them together. */
struct network {
  uint64_t flow_bytes_s, all_bytes_s;
  bool held_back;
};

static uint64_t rate_of(const struct network *n, unsigned flows) {
  return HARP_MIN(n->flow_bytes_s * flows, n->all_bytes_s);
}

/* Lets the network carry what it can for so long; returns bytes a second. `noise` permille up or down. */
static uint64_t carry(struct harp_flows *f, const struct network *n, harp_ns *now, harp_ns for_ns,
                      unsigned noise) {
  uint64_t bytes = 0, random = 12345;
  harp_ns begin = *now;
  while (*now < begin + for_ns) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t permille = 1000 + (random >> 40) % (2 * noise + 1) - noise;
    uint64_t part = rate_of(n, f->wanted) / 1000 * permille / (HARP_SEC(1) / ROUND_NS);
    harp_flows_on_sent(f, *now);
    *now += ROUND_NS;
    harp_flows_on_acked(f, (uint32_t)part, true, *now);
    if (harp_flows_on_round(f, n->held_back, ROUND_NS, *now)) assert_in_range(f->wanted, 1, f->count);
    bytes += part;
  }
  return bytes * 1000 / (for_ns / HARP_MS(1));
}

static struct harp_flows start(unsigned paths, uint64_t speed_bytes_s) {
  struct harp_flows f;
  harp_flows_init(&f, (1ull << paths) - 1, speed_bytes_s, 0);
  assert_int_equal(f.wanted, 1);
  assert_int_equal(f.count, paths);
  return f;
}

static void test_a_cap_of_flows_opens_all(void **state) {
  (void)state;
  for (unsigned paths = 2; paths <= PATHS; paths++) {
    struct network n = {GBIT, 100 * GBIT, true};
    struct harp_flows f = start(paths, 0);
    harp_ns now = 0;
    carry(&f, &n, &now, HARP_MS(100), 20);
    assert_int_equal(f.wanted, paths);
    assert_true(carry(&f, &n, &now, HARP_SEC(2), 20) >= 95 * paths * GBIT / 100);
    assert_true(carry(&f, &n, &now, HARP_SEC(20), 20) >= 98 * paths * GBIT / 100);
  }
}

/* What all flows together have ends somewhere between one and all of them. */
static void test_as_many_are_used_as_pay(void **state) {
  (void)state;
  struct network n = {GBIT, 3 * GBIT, true};
  struct harp_flows f = start(PATHS, 0);
  harp_ns now = 0;
  carry(&f, &n, &now, HARP_SEC(1), 20);
  assert_int_equal(f.wanted, 4);
  assert_true(carry(&f, &n, &now, HARP_SEC(20), 20) >= 97 * 3 * GBIT / 100);
  assert_int_equal(f.wanted, 4);
}

/* Where flows are not capped one is used but for trials, which become rare; noise hardly changes that. */
static void test_without_a_cap_one_is_used(void **state) {
  (void)state;
  for (unsigned noise = 0; noise <= 300; noise += 100) {
    struct network n = {40 * GBIT, 40 * GBIT, true};
    struct harp_flows f = start(PATHS, 0);
    harp_ns now = 0, several_ns = 0;
    while (now < HARP_SEC(20)) {
      carry(&f, &n, &now, HARP_MS(1), noise);
      if (f.wanted > 1) several_ns += HARP_MS(1);
    }
    assert_in_range(several_ns, HARP_MS(16), HARP_MS(200));
  }
}

/* At the speed of the NIC, or without a queue, nothing is tried. */
static void test_nothing_is_tried_without_reason(void **state) {
  (void)state;
  struct network full = {10 * GBIT, 10 * GBIT, true}, calm = {GBIT, 100 * GBIT, false};
  struct harp_flows f = start(PATHS, 10 * GBIT);
  harp_ns now = 0;
  for (unsigned i = 0; i < 1000; i++) {
    carry(&f, &full, &now, HARP_MS(1), 50);
    assert_int_equal(f.wanted, 1);
  }
  f = start(PATHS, 0);
  for (unsigned i = 0; i < 1000; i++) {
    carry(&f, &calm, &now, HARP_MS(1), 50);
    assert_int_equal(f.wanted, 1);
  }
}

/* The cap goes, and the paths with it; it returns, and so do they. */
static void test_what_brings_nothing_goes(void **state) {
  (void)state;
  struct network capped = {GBIT, 100 * GBIT, true}, open = {8 * GBIT, 8 * GBIT, true};
  struct harp_flows f = start(PATHS, 0);
  harp_ns now = 0;
  carry(&f, &capped, &now, HARP_MS(200), 10);
  assert_int_equal(f.wanted, PATHS);
  carry(&f, &open, &now, HARP_SEC(1), 10);
  carry(&f, &open, &now, HARP_SEC(1), 10);
  assert_true(f.wanted <= 2);
  carry(&f, &capped, &now, HARP_SEC(2), 10);
  assert_int_equal(f.wanted, PATHS);
}

/* An application that sends little needs one, and has all again at once when it sends much. */
static void test_pauses_make_paths_dormant(void **state) {
  (void)state;
  struct network n = {GBIT, 100 * GBIT, true};
  struct harp_flows f = start(PATHS, 0);
  harp_ns now = 0;
  carry(&f, &n, &now, HARP_MS(200), 10);
  assert_int_equal(f.wanted, PATHS);
  for (unsigned i = 0; i < 300; i++) {
    harp_flows_on_sent(&f, now);
    harp_flows_on_acked(&f, 1000, false, now + HARP_US(20));
    (void)!harp_flows_on_round(&f, false, HARP_US(20), now + HARP_US(20));
    now += HARP_MS(10);
  }
  assert_int_equal(f.wanted, 1);
  carry(&f, &n, &now, HARP_MS(40), 10);
  assert_int_equal(f.wanted, PATHS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_cap_of_flows_opens_all),
      cmocka_unit_test(test_as_many_are_used_as_pay),
      cmocka_unit_test(test_without_a_cap_one_is_used),
      cmocka_unit_test(test_nothing_is_tried_without_reason),
      cmocka_unit_test(test_what_brings_nothing_goes),
      cmocka_unit_test(test_pauses_make_paths_dormant),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
