/* SPDX-License-Identifier: Apache-2.0 */
/* What a byte takes on a tcp path: proven while the kernel's queue stands, else the usual of its session. */
#include "proto/tcp_speed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RECORD_BYTES = 64 << 10, SLOW_NS = 32, FAST_NS = 2, NEAR_NS = 36, RECORDS = 1000, FEW_RECORDS = 25 };
#define LONG_NS  HARP_SEC(2)  /* what was proven is forgotten */
#define STEP_NS  HARP_MS(32)  /* the step of tcp_speed.c */
#define PAUSE_NS HARP_SEC(10) /* nothing is sent */

static struct harp_tcp_speed one, other;
static struct harp_tcp_speeds all;
static uint64_t left;
static harp_ns now;

static int init(void **state) {
  (void)state;
  now = HARP_SEC(1);
  left = 0;
  harp_tcp_speeds_init(&all, now);
  harp_tcp_speed_init(&one);
  harp_tcp_speed_init(&other);
  return 0;
}

static void follow(void) {
  struct harp_tcp_proofs proofs = {0};
  harp_tcp_proofs_add(&proofs, &one);
  harp_tcp_proofs_add(&proofs, &other);
  harp_tcp_speeds_follow(&all, &proofs, now);
  harp_tcp_speed_follow(&one, &all, now);
  harp_tcp_speed_follow(&other, &all, now);
}

/* Sends records on a path whose queue stands, or runs empty before each. */
static void send_records(struct harp_tcp_speed *v, unsigned count, harp_ns byte_ns, bool stands) {
  for (unsigned i = 0; i < count; i++) {
    harp_tcp_speed_on_look(v, left, stands ? RECORD_BYTES : 0, now);
    follow();
    left += RECORD_BYTES;
    now += RECORD_BYTES * byte_ns;
  }
}

static uint64_t byte_ns(const struct harp_tcp_speed *v) {
  return (v->ns_per_byte_q16 + (1 << 15)) >> 16;
}

static void test_a_queue_that_stands_proves_the_rate(void **state) {
  (void)state;
  send_records(&one, RECORDS, SLOW_NS, true);
  assert_int_equal(byte_ns(&one), SLOW_NS);
}

/* A token bucket takes a burst at once: what left the kernel meanwhile is no rate. */
static void test_a_burst_is_no_proof(void **state) {
  (void)state;
  harp_tcp_speed_on_look(&one, 0, RECORD_BYTES, now);
  left = 8 * RECORD_BYTES;
  now += HARP_US(999);
  send_records(&one, RECORDS, SLOW_NS, true);
  assert_int_equal(byte_ns(&one), SLOW_NS);
}

/* Records go seldom, or their acknowledgements wait behind those of the other direction: that makes no path
 * slower than another. */
static void test_without_a_queue_no_path_is_slower(void **state) {
  (void)state;
  send_records(&one, RECORDS, SLOW_NS, false);
  for (unsigned i = 0; i < RECORDS; i++)
    harp_tcp_speeds_on_flight(&all, RECORD_BYTES, RECORD_BYTES * SLOW_NS);
  follow();
  assert_true(one.ns_per_byte_q16 == other.ns_per_byte_q16);
}

/* A queue that ran empty meanwhile proves nothing: the time in which nothing was sent is in it. */
static void test_a_queue_has_to_stand_all_the_time(void **state) {
  (void)state;
  for (unsigned i = 0; i < RECORDS; i++) send_records(&one, 1, SLOW_NS, i % 4);
  assert_true(!one.proven_q16);
}

static void test_a_path_without_proof_has_the_usual_speed(void **state) {
  (void)state;
  send_records(&one, RECORDS, FAST_NS, true);
  assert_int_equal(byte_ns(&one), FAST_NS);
  assert_int_equal(byte_ns(&other), FAST_NS);
}

/* Interfaces of one kind are equally fast, though pieces differ. */
static void test_speeds_that_differ_little_are_the_usual_one(void **state) {
  (void)state;
  send_records(&one, FEW_RECORDS, SLOW_NS, true);
  left = 0;
  send_records(&other, FEW_RECORDS, NEAR_NS, true);
  assert_true(one.ns_per_byte_q16 == other.ns_per_byte_q16);
  assert_int_equal(byte_ns(&one), (SLOW_NS + NEAR_NS) / 2);
}

/* What is acknowledged quickly was sent quickly. */
static void test_a_round_trip_shows_the_fastest(void **state) {
  (void)state;
  for (unsigned i = 0; i < RECORDS; i++)
    harp_tcp_speeds_on_flight(&all, RECORD_BYTES, RECORD_BYTES * FAST_NS);
  follow();
  assert_int_equal(byte_ns(&one), FAST_NS);
  assert_int_equal(byte_ns(&other), FAST_NS);
}

/* A token bucket lets a flight pass at the rate of what is before it, a hundred times the path's. The round
 * trips of records that queue show what striping is to reckon with; a proof says more. */
static void test_records_that_queue_count_more_than_the_fastest(void **state) {
  (void)state;
  for (unsigned i = 0; i < RECORDS; i++) {
    harp_tcp_speeds_on_flight(&all, RECORD_BYTES, RECORD_BYTES * FAST_NS);
    harp_tcp_speeds_on_flight(&all, RECORD_BYTES, RECORD_BYTES * SLOW_NS);
  }
  follow();
  assert_int_equal(byte_ns(&one), SLOW_NS);
  assert_true(other.ns_per_byte_q16 == one.ns_per_byte_q16);
  send_records(&one, RECORDS, FAST_NS, true);
  assert_int_equal(byte_ns(&one), FAST_NS);
  assert_int_equal(byte_ns(&other), FAST_NS);
}

static void test_small_flights_show_nothing(void **state) {
  (void)state;
  harp_tcp_speeds_on_flight(&all, 128, 1);
  harp_tcp_speeds_on_flight(&all, RECORD_BYTES, 0);
  follow();
  assert_true(one.ns_per_byte_q16 == HARP_TCP_NS_PER_BYTE_Q16);
}

/* Two paths, of which the first is slow and the other fast. */
static void prove_both(void) {
  send_records(&other, RECORDS, FAST_NS, true);
  left = 0;
  send_records(&one, FEW_RECORDS, SLOW_NS, true);
  assert_int_equal(byte_ns(&one), SLOW_NS);
}

/* A path that got slower and is used little for that is tried again, step by step. */
static void test_what_was_proven_is_forgotten_slowly(void **state) {
  (void)state;
  prove_both();
  for (harp_ns end_ns = now + LONG_NS; now < end_ns; now += STEP_NS) {
    uint64_t before_q16 = one.proven_q16;
    follow();
    assert_true(!one.proven_q16 || one.proven_q16 >= before_q16 - before_q16 / 8);
  }
  assert_true(!one.proven_q16);
  assert_true(one.ns_per_byte_q16 == all.usual_q16);
}

static void test_a_pause_forgets_one_step(void **state) {
  (void)state;
  prove_both();
  uint64_t proven_q16 = one.proven_q16;
  now += PAUSE_NS;
  for (unsigned i = 0; i < RECORDS; i++) follow();
  assert_true(one.proven_q16 == proven_q16 - proven_q16 / 8);
}

static void test_a_path_that_gets_faster_is_found(void **state) {
  (void)state;
  send_records(&one, RECORDS, SLOW_NS, true);
  send_records(&one, RECORDS, FAST_NS, true);
  assert_in_range(byte_ns(&one), FAST_NS, FAST_NS + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_a_queue_that_stands_proves_the_rate, init),
      cmocka_unit_test_setup(test_a_burst_is_no_proof, init),
      cmocka_unit_test_setup(test_without_a_queue_no_path_is_slower, init),
      cmocka_unit_test_setup(test_a_queue_has_to_stand_all_the_time, init),
      cmocka_unit_test_setup(test_a_path_without_proof_has_the_usual_speed, init),
      cmocka_unit_test_setup(test_speeds_that_differ_little_are_the_usual_one, init),
      cmocka_unit_test_setup(test_a_round_trip_shows_the_fastest, init),
      cmocka_unit_test_setup(test_records_that_queue_count_more_than_the_fastest, init),
      cmocka_unit_test_setup(test_small_flights_show_nothing, init),
      cmocka_unit_test_setup(test_what_was_proven_is_forgotten_slowly, init),
      cmocka_unit_test_setup(test_a_pause_forgets_one_step, init),
      cmocka_unit_test_setup(test_a_path_that_gets_faster_is_found, init),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
