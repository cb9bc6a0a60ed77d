/* SPDX-License-Identifier: Apache-2.0 */
/* The pace of a path whose window holds less than a packet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/path_pace.h"

enum { PACKET_BYTES = 1500 };
#define RTT_NS  HARP_US(20)
#define LATE_NS HARP_MS(3) /* the smoothed RTT, after late acknowledgements */

/* Sends a packet; returns how long the next one waits. */
static harp_ns wait_ns(uint32_t window_bytes, harp_ns smoothed_ns) {
  struct harp_cc cc;
  harp_cc_init(&cc, &harp_cc_target, PACKET_BYTES, 1 << 20, 1);
  cc.window_bytes = window_bytes;
  cc.window_q8 = (uint64_t)window_bytes << 8;
  cc.slow_start = false;
  struct harp_path_pace pace = {0};
  uint64_t ns_per_byte_q16 = (smoothed_ns << 16) / window_bytes;
  harp_ns now = HARP_SEC(1);
  harp_path_pace_update(&pace, &cc, ns_per_byte_q16);
  harp_path_pace_on_sent(&pace, &cc, ns_per_byte_q16, PACKET_BYTES, now);
  return pace.next_ns - now;
}

/* The window is set by one RTT and the pace by another. */
static void test_late_acknowledgements_do_not_stop_a_small_window(void **state) {
  (void)state;
  uint32_t least = (uint32_t)(PACKET_BYTES * RTT_NS / HARP_CC_LEAST_NS);
  assert_in_range(wait_ns(least, RTT_NS), HARP_CC_LEAST_NS, HARP_CC_LEAST_NS * 11 / 10);
  assert_int_equal(wait_ns(least, LATE_NS), HARP_CC_LEAST_NS);
}

/* Above that the window's rate is kept exactly. */
static void test_pace_of_half_a_packet(void **state) {
  (void)state;
  assert_in_range(wait_ns(PACKET_BYTES / 2, HARP_US(100)), HARP_US(199), HARP_US(201));
  assert_in_range(wait_ns(2 * PACKET_BYTES, HARP_MS(20)), HARP_MS(10) - 1000, HARP_MS(10) + 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_late_acknowledgements_do_not_stop_a_small_window),
      cmocka_unit_test(test_pace_of_half_a_packet),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
