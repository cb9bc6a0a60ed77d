/* SPDX-License-Identifier: Apache-2.0 */
/* Packet size of a path: black hole detection. Pace of a path: when superframes may leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/path_pace.h"
#include "proto/path_size.h"
#include "wire/packet.h"

enum { RTT_NS = 5 };
static struct harp_path_size z;

static struct harp_burst burst_of(unsigned count, uint32_t lines, uint32_t last_lines, harp_ns sent_ns) {
  return (struct harp_burst){.count = (uint8_t)count,
                             .packet_bytes = HARP_DATA_HEADER_BYTES + lines * HARP_LINE_BYTES,
                             .lines_per_packet = (uint8_t)lines,
                             .last_lines = (uint8_t)last_lines,
                             .sent_ns = sent_ns};
}

static int begin(void **state) {
  (void)state;
  harp_path_size_init(&z, HARP_PACKET_MAX_LINES);
  assert_int_equal(z.lines, HARP_PACKET_MAX_LINES);
  assert_int_equal(z.smaller, 26);
  return 0;
}

static void test_large_packets_that_are_lost_make_a_hole(void **state) {
  (void)state;
  struct harp_burst large = burst_of(6, HARP_PACKET_MAX_LINES, HARP_PACKET_MAX_LINES, 10);
  harp_path_size_on_lost(&z, &large, 0x1f, RTT_NS);
  assert_false(harp_path_size_is_hole(&z));
  harp_path_size_on_lost(&z, &large, 0x20, RTT_NS);
  assert_true(harp_path_size_is_hole(&z));
  assert_true(harp_path_size_shrink(&z, true, 20));
  assert_int_equal(z.lines, 26);
  assert_false(harp_path_size_is_hole(&z)); /* what was lost of the larger size says nothing about this one */
}

static void test_small_packets_that_arrive_do_not_matter(void **state) {
  (void)state;
  struct harp_burst large = burst_of(6, HARP_PACKET_MAX_LINES, HARP_PACKET_MAX_LINES, 10);
  struct harp_burst small = burst_of(6, 26, 26, 20), tail = burst_of(1, HARP_PACKET_MAX_LINES, 3, 20);
  harp_path_size_on_lost(&z, &large, 0x1f, RTT_NS);
  harp_path_size_on_acked(&z, &small, 0x3f);
  harp_path_size_on_acked(&z, &tail, 1); /* the last packet of a message is small */
  harp_path_size_on_lost(&z, &large, 0x20, RTT_NS);
  assert_true(harp_path_size_is_hole(&z));
}

static void test_small_packets_that_are_lost_do_not_count(void **state) {
  (void)state;
  struct harp_burst small = burst_of(60, 26, 26, 10), tail = burst_of(1, HARP_PACKET_MAX_LINES, 26, 10);
  struct harp_burst padding = burst_of(6, HARP_PACKET_MAX_LINES, HARP_PACKET_MAX_LINES, 10);
  padding.is_padding = true; /* a size probe */
  harp_path_size_on_lost(&z, &small, ~0ull >> 4, RTT_NS);
  for (unsigned i = 0; i < 10; i++) harp_path_size_on_lost(&z, &tail, 1, RTT_NS);
  harp_path_size_on_lost(&z, &padding, 0x3f, RTT_NS);
  assert_int_equal(z.hole_packets, 0);
}

static void test_a_large_packet_that_arrives_clears(void **state) {
  (void)state;
  struct harp_burst large = burst_of(6, HARP_PACKET_MAX_LINES, HARP_PACKET_MAX_LINES, 10);
  struct harp_burst later = burst_of(1, HARP_PACKET_MAX_LINES, HARP_PACKET_MAX_LINES, 20);
  harp_path_size_on_lost(&z, &large, 0x1f, RTT_NS);
  harp_path_size_on_acked(&z, &later, 1);
  assert_int_equal(z.hole_packets, 0);
  harp_path_size_on_lost(&z, &large, 0x3f, RTT_NS); /* sent before it */
  assert_false(harp_path_size_is_hole(&z));
}

/* Whether a large packet was lost by congestion is known when one of its size arrives, or none does. */
static void test_losses_of_a_hole_are_no_congestion(void **state) {
  (void)state;
  struct harp_burst large = burst_of(6, HARP_PACKET_MAX_LINES, HARP_PACKET_MAX_LINES, 10);
  struct harp_burst later = burst_of(2, HARP_PACKET_MAX_LINES, HARP_PACKET_MAX_LINES, 20);
  struct harp_burst small = burst_of(6, 26, 26, 20), shorter = burst_of(1, HARP_PACKET_MAX_LINES, 59, 20);
  assert_int_equal(harp_path_size_on_lost(&z, &large, 3, RTT_NS), 2 * large.packet_bytes);
  assert_int_equal(harp_path_size_on_lost(&z, &small, 3, RTT_NS), 0);
  assert_int_equal(harp_path_size_on_acked(&z, &small, 4), 0);
  assert_int_equal(harp_path_size_on_acked(&z, &shorter, 1), 0);
  assert_int_equal(harp_path_size_on_acked(&z, &later, 1), 2 * large.packet_bytes); /* it was congestion */
  assert_int_equal(harp_path_size_on_acked(&z, &later, 2), 0);
  assert_int_equal(harp_path_size_on_lost(&z, &large, 4, RTT_NS), 0); /* sent before it */

  struct harp_burst last = burst_of(60, HARP_PACKET_MAX_LINES, HARP_PACKET_MAX_LINES, 20 + RTT_NS);
  assert_int_equal(harp_path_size_on_lost(&z, &last, 1, RTT_NS), 0); /* one as large has just arrived */
  last.sent_ns++;
  assert_int_equal(harp_path_size_on_lost(&z, &last, 0x3e, RTT_NS), 5 * large.packet_bytes);
  assert_true(harp_path_size_shrink(&z, true, 40));
  assert_true(z.is_limited);
  assert_int_equal(harp_path_size_on_lost(&z, &last, 0xffc0, RTT_NS), 10 * large.packet_bytes);
  assert_int_equal(z.hole_packets, 0); /* they say nothing about the new size */
}

static void test_a_path_is_limited_until_the_largest_packets_arrive(void **state) {
  (void)state;
  struct harp_burst probe = burst_of(1, 0, 0, 40);
  assert_true(harp_path_size_shrink(&z, false, 20)); /* nothing was acknowledged: it may be anything */
  assert_false(z.is_limited);
  assert_int_equal(harp_path_size_next(&z), HARP_PACKET_MAX_LINES);
  harp_path_size_on_probe_sent(&z, HARP_PACKET_MAX_LINES, 7, 40);
  probe.is_padding = true;
  probe.number = 7;
  assert_int_equal(harp_path_size_on_lost(&z, &probe, 1, RTT_NS), probe.packet_bytes);
  assert_true(z.is_limited);
  harp_path_size_on_probe_sent(&z, HARP_PACKET_MAX_LINES, 8, 50);
  harp_path_size_on_probe_acked(&z, 60);
  assert_false(z.is_limited);
}

static void test_the_smallest_size_has_no_hole(void **state) {
  (void)state;
  struct harp_burst b = burst_of(60, HARP_PACKET_MIN_LINES, HARP_PACKET_MIN_LINES, 10);
  while (harp_path_size_shrink(&z, true, 0)) {
  }
  assert_int_equal(z.lines, HARP_PACKET_MIN_LINES);
  harp_path_size_on_lost(&z, &b, ~0ull >> 4, RTT_NS);
  assert_false(harp_path_size_is_hole(&z));
}

/* ---- pace ---- */

enum { PACKET = 1000, NS_Q16 = 1 << 16 }; /* a byte takes 1 ns */

static void pace_like(struct harp_path_pace *pace, struct harp_cc *cc, uint32_t window, bool slow_start) {
  *cc =
      (struct harp_cc){.packet_bytes = PACKET, .window_bytes = window, .bursts = 4, .slow_start = slow_start};
  *pace = (struct harp_path_pace){0};
  harp_path_pace_update(pace, cc, NS_Q16);
}

/* Returns how long so many superframes of a burst take, sent as soon as each may leave. */
static harp_ns send_all(struct harp_path_pace *pace, const struct harp_cc *cc, unsigned count) {
  harp_ns from = HARP_MS(1), now = from;
  for (unsigned i = 0; i < count; i++) {
    now = harp_path_pace_open_ns(pace, now);
    assert_true(harp_path_pace_is_open(pace, now));
    harp_path_pace_on_sent(pace, cc, NS_Q16, harp_cc_burst_bytes(cc), now);
  }
  return now - from;
}

static void test_the_pace_is_the_windows(void **state) {
  (void)state;
  struct harp_path_pace pace;
  struct harp_cc cc;
  pace_like(&pace, &cc, 160000, false);
  assert_in_range(send_all(&pace, &cc, 400), 16000000 * 93ull / 100, 16000000 * 95ull / 100); /* 16/17 */
  pace_like(&pace, &cc, 160000, true);
  assert_in_range(send_all(&pace, &cc, 400), 16000000 * 49ull / 100, 16000000 * 51ull / 100);
  pace_like(&pace, &cc, 300, false); /* less than a packet: exact */
  assert_in_range(send_all(&pace, &cc, 400), 398 * PACKET, 400 * PACKET);
}

static void test_lateness_is_made_up_by_half_a_burst(void **state) {
  (void)state;
  struct harp_path_pace pace;
  struct harp_cc cc;
  pace_like(&pace, &cc, 160000, false);
  harp_path_pace_on_sent(&pace, &cc, NS_Q16, 40000, HARP_SEC(1));
  assert_int_equal(pace.next_ns, HARP_SEC(1) - 20000 + 40000 - 40000 / 17);
  assert_int_equal(pace.early_ns, HARP_PACE_EARLY_NS);
  pace_like(&pace, &cc, 2000, false); /* none of it with few packets */
  harp_path_pace_on_sent(&pace, &cc, NS_Q16, PACKET, HARP_SEC(1));
  assert_int_equal(pace.next_ns, HARP_SEC(1) + PACKET);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_large_packets_that_are_lost_make_a_hole, begin),
      cmocka_unit_test_setup(test_small_packets_that_arrive_do_not_matter, begin),
      cmocka_unit_test_setup(test_small_packets_that_are_lost_do_not_count, begin),
      cmocka_unit_test_setup(test_a_large_packet_that_arrives_clears, begin),
      cmocka_unit_test_setup(test_losses_of_a_hole_are_no_congestion, begin),
      cmocka_unit_test_setup(test_a_path_is_limited_until_the_largest_packets_arrive, begin),
      cmocka_unit_test_setup(test_the_smallest_size_has_no_hole, begin),
      cmocka_unit_test(test_the_pace_is_the_windows),
      cmocka_unit_test(test_lateness_is_made_up_by_half_a_burst),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
