/* SPDX-License-Identifier: Apache-2.0 */
/* Which carrier large messages take by trials, on the virtual clock: a path of datagrams and a tcp path
 * between the same interfaces, over networks that let each have another rate. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/duo.h"

enum { DATAGRAMS, TCP, PATHS, MESSAGE_BYTES = 512 << 10, SMALL_BYTES = 4096, MESSAGES = 80 };
enum { SLICE_BYTES = 8 << 10, MTU_LINES = 11 };

static struct duo duo;

static void set_rate(unsigned path, uint64_t bytes_s) {
  for (unsigned way = 0; way < SIMNET_WAYS; way++) {
    struct simnet_link *l = &duo.net.links[way][path];
    l->own.rate_bytes_s = bytes_s;
    l->own.queue_bytes = 1 << 20;
    l->delay_ns = HARP_US(25);
  }
}

static void start(const char *name, uint64_t datagrams_bytes_s, uint64_t tcp_bytes_s) {
  struct duo_config c = {
      .seed = 11,
      .path_count = PATHS,
      .window_bytes = 4 << 20,
      .cc = &harp_cc_delay,
      .superframe_packets = 64,
      .paths = {[DATAGRAMS] = {.lines_max = MTU_LINES},
                [TCP] = {.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true}},
      .tcp = {.room_bytes = TCPNET_ROOM_BYTES, .read_bytes = 1 << 20, .timeout_ns = HARP_SEC(1)},
      .slice_bytes = SLICE_BYTES,
  };
  duo_start(&duo, &c);
  strcpy(duo.label, name);
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 8});
  set_rate(DATAGRAMS, datagrams_bytes_s);
  set_rate(TCP, tcp_bytes_s);
}

static const struct harp_carrier_trial *trial(void) {
  return &duo.ends[0].sender->carriers.trial;
}

static void move(uint32_t bytes, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) duo_add(&duo, bytes, bytes, duo.now, duo.now);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(100)));
  duo_check_buffers(&duo);
  print_message("%-24s %u trials, %u and %u %%, datagrams %d, %llu records\n", duo.label, trial()->count,
                trial()->time_percent, trial()->cpu_percent, trial()->datagrams,
                (unsigned long long)duo.path_packets[TCP]);
}

static void test_the_quicker_carrier_is_found(void **state) {
  (void)state;
  start("TCP at a half", 250000000, 125000000);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(trial()->datagrams);
  assert_true(duo.ends[0].counters.carrier_changes == 1);
}

static void test_the_quicker_carrier_is_kept(void **state) {
  (void)state;
  start("datagrams at a half", 125000000, 250000000);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(trial()->count >= 2);
  assert_false(trial()->datagrams);
  assert_int_equal(trial()->verdict, HARP_CARRIER_KEPT);
}

static void test_as_good_is_no_reason(void **state) {
  (void)state;
  start("both alike", 125000000, 125000000);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(trial()->count >= 2);
  assert_false(trial()->datagrams);
}

static void test_datagrams_that_do_not_get_through_are_left(void **state) {
  (void)state;
  start("datagrams at 1 %", 2000000, 200000000);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(trial()->count >= 1);
  assert_false(trial()->datagrams);
}

static void test_small_messages_are_no_trial(void **state) {
  (void)state;
  start("small messages alone", 250000000, 125000000);
  move(SMALL_BYTES, MESSAGES);
  assert_int_equal(trial()->count, 0);
  assert_int_equal(trial()->phase, HARP_CARRIER_IN_USE);
  assert_int_equal(trial()->now.bytes, 0);
}

static int fini(void **state) {
  (void)state;
  duo_fini(&duo);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_quicker_carrier_is_found),
      cmocka_unit_test(test_the_quicker_carrier_is_kept),
      cmocka_unit_test(test_as_good_is_no_reason),
      cmocka_unit_test(test_datagrams_that_do_not_get_through_are_left),
      cmocka_unit_test(test_small_messages_are_no_trial),
  };
  return cmocka_run_group_tests(tests, NULL, fini);
}
