/* SPDX-License-Identifier: Apache-2.0 */
/* Records of what is under way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/flight.h"
#include "wire/packet.h"

static struct harp_flight f;
enum {
  LINE = 100,
  LINES = 11,
  LAST_LINES = 3
}; /* a burst's first line, a packet's lines, and its last packet's */
static struct harp_burst ring[HARP_FLIGHT_RECORDS_MAX];

static int reset(void **state) {
  (void)state;
  harp_flight_init(&f, ring, HARP_FLIGHT_RECORDS_MAX);
  f.head = f.tail = 0xFFFFFFF0; /* free-running counters wrap */
  return 0;
}

static struct harp_burst *push(uint64_t number, uint8_t count, harp_ns sent_ns) {
  struct harp_burst b = {.number = number,
                         .sent_ns = sent_ns,
                         .line = LINE,
                         .lines_per_packet = LINES,
                         .last_lines = LAST_LINES,
                         .packet_bytes = HARP_DATA_HEADER_BYTES + LINES * HARP_LINE_BYTES,
                         .count = count};
  harp_flight_push(&f, &b);
  return harp_flight_at(&f, f.tail - 1);
}

static void test_a_burst_knows_its_packets(void **state) {
  (void)state;
  struct harp_burst *b = push(7, 4, 0);
  assert_int_equal(harp_burst_mask(b), 0xF);
  assert_int_equal(harp_burst_line(b, 2), LINE + 2 * LINES);
  assert_int_equal(harp_burst_lines(b, 2), LINES);
  assert_int_equal(harp_burst_lines(b, 3), LAST_LINES);
  b->acked = 1, b->lost = 2;
  assert_int_equal(harp_burst_pending(b), 0xC);
  b->count = HARP_BURST_MAX_PACKETS;
  assert_true(harp_burst_mask(b) == ~0ull);
}

static void test_settled_records_leave_in_order(void **state) {
  (void)state;
  struct harp_burst *a = push(0, 1, 10), *b = push(1, 1, 20);
  b->acked = 1;
  harp_flight_trim(&f, 1000);
  assert_int_equal(harp_flight_count(&f), 2); /* the oldest is pending */
  a->acked = 1;
  harp_flight_trim(&f, 0);
  assert_int_equal(harp_flight_count(&f), 0);
}

static void test_a_lost_record_waits_for_a_late_acknowledgement(void **state) {
  (void)state;
  push(0, 2, 10)->lost = 3;
  harp_flight_trim(&f, 10);
  assert_int_equal(harp_flight_count(&f), 1);
  harp_flight_at(&f, f.head)->acked = 3; /* the first two packets came */
  harp_flight_trim(&f, 10);
  assert_int_equal(harp_flight_count(&f), 0);
  push(2, 1, 10)->lost = 1;
  harp_flight_trim(&f, 11); /* the third did not */
  assert_int_equal(harp_flight_count(&f), 0);
}

static void test_lost_records_never_fill_the_ring(void **state) {
  (void)state;
  for (uint32_t i = 0; i < HARP_FLIGHT_RECORDS_MAX; i++) push(i, 1, 50)->lost = 1;
  assert_true(harp_flight_is_full(&f));
  harp_flight_trim(&f, 0);
  assert_in_range(harp_flight_count(&f), 1, HARP_FLIGHT_RECORDS_MAX / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_a_burst_knows_its_packets, reset),
      cmocka_unit_test_setup(test_settled_records_leave_in_order, reset),
      cmocka_unit_test_setup(test_a_lost_record_waits_for_a_late_acknowledgement, reset),
      cmocka_unit_test_setup(test_lost_records_never_fill_the_ring, reset),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
