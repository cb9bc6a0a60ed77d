/* SPDX-License-Identifier: Apache-2.0 */
/* The path that gets the next record: tcp paths by the measured time that a byte takes. */
#include "proto/stripe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/record.h"

enum { PATHS = 4, ALL = (1 << PATHS) - 1, RECORD_BYTES = HARP_RECORD_MAX_BYTES, SAMPLES = 64 };
#define BASE_RTT_NS HARP_US(100)

static struct harp_path paths[PATHS];
static struct harp_burst rings[PATHS][HARP_FLIGHT_RECORDS_MAX];
static struct harp_receive_window windows[PATHS];

static int init(void **state) {
  static const struct harp_path_config config = {.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true};
  (void)state;
  for (unsigned i = 0; i < PATHS; i++) {
    windows[i] = (struct harp_receive_window){.bytes = PATHS * HARP_PATH_TCP_WINDOW_BYTES};
    harp_path_init(&paths[i], i, 0, &config, &harp_cc_target, &windows[i], rings[i], HARP_FLIGHT_RECORDS_MAX,
                   0);
    paths[i].state = HARP_PATH_UP;
    paths[i].blocked = false;
    harp_rtt_on_sample(&paths[i].rtt, BASE_RTT_NS);
    harp_path_speed_update(&paths[i]);
  }
  return 0;
}

#define MEASURED_NS HARP_SEC(100000)

/* Measures that a path takes so many ns for a byte. */
static void measure(unsigned path, harp_ns byte_ns) {
  struct harp_path *p = &paths[path];
  for (unsigned i = 0; i < SAMPLES; i++)
    harp_tcp_speed_on_look(&p->speed.tcp, (uint64_t)i * RECORD_BYTES, RECORD_BYTES,
                           MEASURED_NS - (SAMPLES - i) * RECORD_BYTES * byte_ns);
  struct harp_tcp_speeds all;
  struct harp_tcp_proofs proofs = {0};
  harp_tcp_speeds_init(&all, MEASURED_NS);
  for (unsigned i = 0; i < PATHS; i++) harp_tcp_proofs_add(&proofs, &paths[i].speed.tcp);
  harp_tcp_speeds_follow(&all, &proofs, MEASURED_NS);
  for (unsigned i = 0; i < PATHS; i++) harp_path_speed_follow(&paths[i], &all, MEASURED_NS);
}

/* Sends so many records, none of which is acknowledged. */
static void send_records(unsigned count, unsigned sent[PATHS]) {
  for (; count; count--) {
    struct harp_stripe stripe = {.among = ALL, .backlog_bytes = (uint64_t)count * RECORD_BYTES};
    const struct harp_path *p = harp_stripe_pick(paths, &stripe, 0);
    assert_non_null(p);
    paths[p->index].inflight_bytes += RECORD_BYTES;
    sent[p->index]++;
  }
}

static void test_new_paths_share_alike(void **state) {
  unsigned sent[PATHS] = {0};
  (void)state;
  send_records(2 * PATHS, sent);
  for (unsigned i = 0; i < PATHS; i++) assert_int_equal(sent[i], 2);
}

/* Where processes share the ENIs, what is little better does not draw them all to one; what is much better,
 * or free while the preferred one is not, is used. */
static void test_a_preferred_path(void **state) {
  static const struct {
    unsigned rtt_percent, inflight_bytes, picked;
  } rows[] = {{100, 0, 2}, {80, 0, 2}, {40, 0, 0}, {100, HARP_PATH_TCP_WINDOW_BYTES, 0}};
  (void)state;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    init(NULL);
    paths[0].rtt.smoothed_ns = BASE_RTT_NS * rows[i].rtt_percent / 100;
    harp_path_speed_update(&paths[0]);
    paths[2].inflight_bytes = rows[i].inflight_bytes;
    struct harp_stripe stripe = {.among = ALL, .preferred = 1 << 2, .backlog_bytes = RECORD_BYTES};
    assert_ptr_equal(harp_stripe_pick(paths, &stripe, 0), &paths[rows[i].picked]);
    stripe.preferred = 0;
    assert_ptr_equal(harp_stripe_pick(paths, &stripe, 0), &paths[0]);
  }
}

/* A short round trip, as of a first small record, is no reason to give one path all. */
static void test_paths_of_one_speed_share_alike(void **state) {
  unsigned sent[PATHS] = {0};
  (void)state;
  for (unsigned i = 0; i < PATHS; i++) {
    harp_rtt_on_sample(&paths[i].rtt, BASE_RTT_NS / (i + 1));
    harp_path_speed_update(&paths[i]);
    measure(i, 8);
  }
  send_records(2 * PATHS, sent);
  for (unsigned i = 0; i < PATHS; i++) assert_int_equal(sent[i], 2);
}

static void test_a_fast_path_gets_more(void **state) {
  unsigned sent[PATHS] = {0};
  (void)state;
  for (unsigned i = 0; i < PATHS; i++) measure(i, i ? 8 : 2);
  send_records(4 + PATHS - 1, sent);
  assert_in_range(sent[0], 4, 5);
  for (unsigned i = 1; i < PATHS; i++) assert_in_range(sent[i], 0, 1);
}

/* One record alone goes where it arrives first, though that path has some in flight. */
static void test_a_single_record_takes_the_fast_path(void **state) {
  unsigned sent[PATHS] = {0};
  (void)state;
  for (unsigned i = 0; i < PATHS; i++) measure(i, i ? 8 : 2);
  paths[0].inflight_bytes = RECORD_BYTES;
  send_records(1, sent);
  assert_int_equal(sent[0], 1);
}

static void test_a_new_connection_is_measured_anew(void **state) {
  unsigned sent[PATHS] = {0};
  (void)state;
  for (unsigned i = 0; i < PATHS; i++) measure(i, i ? 8 : 100000);
  harp_path_speed_restart(&paths[0]);
  send_records(2 * PATHS, sent);
  assert_int_equal(sent[0], 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_new_paths_share_alike, init),
      cmocka_unit_test_setup(test_a_preferred_path, init),
      cmocka_unit_test_setup(test_paths_of_one_speed_share_alike, init),
      cmocka_unit_test_setup(test_a_fast_path_gets_more, init),
      cmocka_unit_test_setup(test_a_single_record_takes_the_fast_path, init),
      cmocka_unit_test_setup(test_a_new_connection_is_measured_anew, init),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
