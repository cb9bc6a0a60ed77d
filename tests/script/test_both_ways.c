/* SPDX-License-Identifier: Apache-2.0 */
/* Large messages both ways over the tcp paths of several interfaces, as collectives send them: few messages
 * of 64 KiB under way each way, and the network is the limit. What one direction has in its kernel, and which
 * interfaces it uses, must not slow down the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/duo.h"

enum { ENIS = 4, PATHS = 2 * ENIS, MTU_LINES = 11 };
enum {
  MESSAGE_BYTES = 64 << 10,
  IN_FLIGHT = 8,
  MESSAGES = 256,
  RATE_MB_S = 125,
  STREAM_BYTES = MESSAGE_BYTES * MESSAGES
};

static struct duo duo;

static void set_links(void) {
  for (unsigned way = 0; way < SIMNET_WAYS; way++) {
    for (unsigned path = 0; path < PATHS; path++) {
      struct simnet_link *l = &duo.net.links[way][path];
      l->own.rate_bytes_s = RATE_MB_S * 1000000ull;
      l->own.queue_bytes = 1 << 20;
      l->delay_ns = HARP_US(25);
    }
  }
}

static void start(const char *name, unsigned ways) {
  struct duo_config c = {
      .seed = 7,
      .path_count = PATHS,
      .stream_max = 1,
      .window_bytes = 4 << 20,
      .cc = &harp_cc_target,
      .superframe_packets = 64,
      .ride = true,
      .tcp = {.room_bytes = TCPNET_ROOM_BYTES, .read_bytes = 1 << 20, .timeout_ns = HARP_SEC(1)},
  };
  for (unsigned i = 0; i < ENIS; i++) {
    struct harp_path_config path = {.local_eni = (uint8_t)i, .remote_eni = (uint8_t)i};
    c.paths[i] = c.paths[ENIS + i] = path;
    c.paths[i].lines_max = MTU_LINES;
    c.paths[ENIS + i].lines_max = HARP_RECORD_MAX_LINES;
    c.paths[ENIS + i].is_tcp = true;
  }
  duo_start(&duo, &c);
  strcpy(duo.label, name);
  for (unsigned way = 0; way < ways; way++) {
    duo_open(&duo, &(struct duo_stream_config){.way = way, .in_flight_max = IN_FLIGHT});
    for (unsigned i = 0; i < MESSAGES; i++) duo_add(&duo, MESSAGE_BYTES, MESSAGE_BYTES, 0, 0);
  }
  set_links();
}

/* Moves all. Returns the rate of each way, in percent of what the interfaces carry. */
static unsigned rate_percent(void) {
  harp_ns from_ns = duo.now;
  assert_true(duo_run(&duo, from_ns + HARP_SEC(10)));
  duo_check_buffers(&duo);
  harp_ns least_ns = (harp_ns)STREAM_BYTES * 1000 / (ENIS * RATE_MB_S);
  unsigned percent = (unsigned)(100 * least_ns / (duo.now - from_ns));
  print_message("%-10s %u %%\n", duo.label, percent);
  return percent;
}

static void test_one_way(void **state) {
  (void)state;
  start("one way", 1);
  assert_true(rate_percent() >= 90);
}

static void test_both_ways(void **state) {
  (void)state;
  start("both ways", 2);
  assert_true(rate_percent() >= 90);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_way),
      cmocka_unit_test(test_both_ways),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
