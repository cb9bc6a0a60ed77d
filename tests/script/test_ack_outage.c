/* SPDX-License-Identifier: Apache-2.0 */
/* An outage of the way back, shorter than a probe timeout: what had arrived is not sent again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/duo.h"

enum {
  BYTES = 1024,
  COUNT = 40,
  IN_FLIGHT = 32,
  LOST = 9, /* the data packet that the network loses, during the outage */
};
#define EVERY_NS  HARP_US(20)
#define FROM_NS   HARP_US(100) /* the begin of the outage, after the first message */
#define OUTAGE_NS HARP_US(500)

static struct duo d;
static harp_ns begin_ns;

static bool pass(void *context, enum simnet_way way, unsigned path, uint64_t nth, const uint8_t *wire,
                 uint32_t bytes, harp_ns now) {
  (void)context, (void)path, (void)wire, (void)bytes;
  if (way == SIMNET_THERE) return nth != LOST;
  return now < begin_ns + FROM_NS || now >= begin_ns + FROM_NS + OUTAGE_NS;
}

static void test_what_arrived_is_not_sent_again(void **state) {
  (void)state;
  struct duo_config c = {.seed = 1,
                         .is_one_way = true,
                         .path_count = 1,
                         .paths = {{.lines_max = HARP_PACKET_MIN_LINES}},
                         .window_bytes = 4 << 20,
                         .cc = &harp_cc_target,
                         .superframe_packets = 64};
  duo_start(&d, &c);
  snprintf(d.label, sizeof d.label, "outage of the way back");
  d.net.links[SIMNET_THERE][0].delay_ns = d.net.links[SIMNET_BACK][0].delay_ns = HARP_US(10);
  d.net.filter = pass;
  begin_ns = d.now;
  duo_open(&d, &(struct duo_stream_config){.in_flight_max = IN_FLIGHT});
  for (unsigned k = 0; k < COUNT; k++) duo_add(&d, BYTES, BYTES, d.now + k * EVERY_NS, d.now);
  assert_true(duo_run(&d, d.now + HARP_SEC(1)));
  assert_int_equal(d.ends[0].counters.probe_timeouts, 0);
  assert_int_equal(d.ends[0].counters.lost_packets, 1);
  assert_int_equal(d.ends[1].counters.drops[HARP_DROP_DUPLICATE], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_arrived_is_not_sent_again)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
