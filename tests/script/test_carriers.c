/* SPDX-License-Identifier: Apache-2.0 */
/* The carrier that large messages take by experiments, on the virtual clock: a path of datagrams and a tcp
 * path between the same interfaces, over networks that let each have another rate. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/duo_tcp.h"

enum { DATAGRAMS, TCP, PATHS, MESSAGE_BYTES = 512 << 10, SMALL_BYTES = 4096, MESSAGES = 80 };
enum { HURRY = 128, MTU_LINES = 11 };

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
      .cc = &harp_cc_target,
      .superframe_packets = 64,
      .paths = {[DATAGRAMS] = {.lines_max = MTU_LINES},
                [TCP] = {.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true}},
      .tcp = {.room_bytes = TCPNET_ROOM_BYTES, .read_bytes = 1 << 20, .timeout_ns = HARP_SEC(1)},
      .hurry = HURRY,
  };
  duo_start(&duo, &c);
  strcpy(duo.label, name);
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 8});
  set_rate(DATAGRAMS, datagrams_bytes_s);
  set_rate(TCP, tcp_bytes_s);
}

static const struct harp_experiments *experiments(void) {
  return &duo.ends[0].sender->experiments;
}

static const struct harp_trial_report *report(void) {
  return &experiments()->carrier_report;
}

static void move(uint32_t bytes, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) duo_add(&duo, bytes, bytes, duo.now, duo.now);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(100)));
  duo_check_buffers(&duo);
  print_message("%-24s %u experiments, %u and %u %%, datagrams %d, %llu records\n", duo.label,
                report()->count, report()->time_percent, report()->cpu_percent, experiments()->datagrams,
                (unsigned long long)duo.path_packets[TCP]);
}

static void test_the_quicker_carrier_is_found(void **state) {
  (void)state;
  start("TCP at a half", 250000000, 125000000);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(experiments()->datagrams);
  assert_true(duo.ends[0].counters.experiment_changes == 1);
}

static void test_the_quicker_carrier_is_kept(void **state) {
  (void)state;
  start("datagrams at a half", 125000000, 250000000);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(report()->count >= 1);
  assert_false(experiments()->datagrams);
  assert_int_equal(report()->verdict, HARP_VERDICT_LOST);
}

static void test_as_good_is_no_reason(void **state) {
  (void)state;
  start("both alike", 125000000, 125000000);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(report()->count >= 2);
  assert_false(experiments()->datagrams);
}

static void test_datagrams_that_do_not_get_through_are_left(void **state) {
  (void)state;
  start("datagrams at 1 %", 2000000, 200000000);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(report()->count >= 1);
  assert_false(experiments()->datagrams);
}

/* Four flows of datagrams that are capped, together twice what TCP moves: the search for flows takes place
 * while the carrier is tried, and does not end the experiment. */
static void test_capped_flows_are_found_while_their_carrier_is_tried(void **state) {
  (void)state;
  enum { FLOWS = 4, CAP = 31250000, CALM = 16 };
  struct duo_config c = {
      .seed = 11,
      .path_count = FLOWS + 1,
      .window_bytes = 4 << 20,
      .cc = &harp_cc_target,
      .superframe_packets = 64,
      .tcp = {.room_bytes = TCPNET_ROOM_BYTES, .read_bytes = 1 << 20, .timeout_ns = HARP_SEC(1)},
      .hurry = CALM,
  };
  for (unsigned i = 0; i < FLOWS; i++) c.paths[i].lines_max = MTU_LINES;
  c.paths[FLOWS] = (struct harp_path_config){.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true};
  duo_start(&duo, &c);
  strcpy(duo.label, "4 capped flows");
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 8});
  for (unsigned i = 0; i < FLOWS; i++) set_rate(i, CAP);
  set_rate(FLOWS, 2 * CAP);
  move(MESSAGE_BYTES, MESSAGES);
  assert_true(report()->count >= 1);
  assert_int_equal(report()->verdict, HARP_VERDICT_QUICKER);
  assert_int_equal(duo.ends[0].sender->pairs.flows[0].proven, FLOWS);
}

static void test_small_messages_are_no_experiment(void **state) {
  (void)state;
  start("small messages alone", 250000000, 125000000);
  move(SMALL_BYTES, MESSAGES);
  assert_int_equal(report()->count, 0);
  assert_false(harp_experiment_is_under_way(&experiments()->trial));
}

/* Moves messages over TCP, which is the quicker one, and lets the network lose all of these paths for a
 * while; returns when a path that is silent has long been found DOWN. */
static void silence(const char *name, unsigned first, unsigned last) {
  start(name, 125000000, 250000000);
  duo.ends[0].sender->experiments.hurry = 1;
  for (uint32_t i = 0; i < MESSAGES; i++) duo_add(&duo, MESSAGE_BYTES, MESSAGE_BYTES, duo.now, duo.now);
  harp_ns from_ns = duo.now + HARP_MS(20), until_ns = from_ns + HARP_MS(90);
  while (duo_step(&duo, from_ns)) assert_false(experiments()->datagrams);
  for (unsigned i = first; i <= last; i++)
    for (unsigned way = 0; way < SIMNET_WAYS; way++)
      simnet_blackhole(&duo.net.links[way][i], duo.now, duo.now + HARP_MS(200));
  while (duo_step(&duo, until_ns)) continue;
}

/* Datagrams carry its messages meanwhile, and it carries them again when it answers. */
static void test_tcp_that_falls_silent_alone_is_taken_again(void **state) {
  (void)state;
  silence("TCP is silent", TCP, TCP);
  assert_true(harp_sender_is_down(duo.ends[0].sender, TCP));
  uint64_t datagrams = duo.path_packets[DATAGRAMS], records = duo.path_packets[TCP];
  for (harp_ns until_ns = duo.now + HARP_MS(20); duo_step(&duo, until_ns);) continue;
  assert_true(duo.path_packets[DATAGRAMS] > datagrams + 1000);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(100)));
  duo_check_buffers(&duo);
  assert_false(experiments()->datagrams);
  assert_true(duo.path_packets[TCP] > records + 8);
}

static void test_a_network_that_is_silent_decides_nothing(void **state) {
  (void)state;
  silence("all is silent", DATAGRAMS, TCP);
  assert_false(experiments()->datagrams);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(100)));
  assert_false(experiments()->datagrams);
}

/* Runs for so long, or until all has arrived; the size of the only path stays. */
static void run_with_one_size(harp_ns for_ns) {
  harp_ns until_ns = duo.now + for_ns;
  while (!duo_complete(&duo) && duo_step(&duo, until_ns))
    for (unsigned end = 0; end < DUO_ENDS; end++)
      assert_int_equal(duo.ends[end].sender->paths[0].size.lines, HARP_RECORD_MAX_LINES);
}

/* Records that are lost with a connection say nothing about the packets of the network: the kernel cuts them.
 */
static void test_records_that_are_lost_with_their_connection_leave_the_size(void **state) {
  (void)state;
  enum { COUNT = 200, BYTES = 12 << 10, OUTAGES = 8 };
  struct duo_config c = {
      .seed = 11,
      .path_count = 1,
      .window_bytes = 4 << 20,
      .cc = &harp_cc_target,
      .superframe_packets = 64,
      .paths = {{.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true}},
      .tcp = {.room_bytes = TCPNET_ROOM_BYTES, .read_bytes = 1 << 20, .timeout_ns = HARP_MS(100)},
  };
  duo_start(&duo, &c);
  strcpy(duo.label, "connections that end");
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 32});
  set_rate(0, 2000000);
  for (uint32_t i = 0; i < COUNT; i++) duo_add(&duo, BYTES, BYTES, duo.now, duo.now);
  for (unsigned i = 0; i < OUTAGES; i++) {
    run_with_one_size(HARP_MS(60));
    for (unsigned way = 0; way < SIMNET_WAYS; way++)
      simnet_blackhole(&duo.net.links[way][0], duo.now, duo.now + HARP_MS(300));
    run_with_one_size(HARP_MS(500));
  }
  run_with_one_size(HARP_SEC(100));
  assert_true(duo_complete(&duo));
  duo_check_buffers(&duo);
  assert_true(duo.ends[0].sender->paths[0].stats.lost_packets >= HARP_PATH_HOLE_PACKETS);
}

/* A second flow that is no quicker, and slow: the search for flows lets it rest while its kernel holds
 * records for a second. They arrive by their connection, are sent once, and the connection stays. */
static void test_records_of_a_flow_that_rests_arrive_by_its_connection(void **state) {
  (void)state;
  enum { FLOWS = 2, COUNT = 80, QUICK = 64000000, SLOW = 4000000 };
  struct duo_config c = {
      .seed = 11,
      .path_count = FLOWS,
      .window_bytes = 4 << 20,
      .cc = &harp_cc_target,
      .superframe_packets = 64,
      .tcp = {.room_bytes = TCPNET_ROOM_BYTES, .read_bytes = 1 << 20, .timeout_ns = HARP_SEC(4)},
  };
  for (unsigned i = 0; i < FLOWS; i++)
    c.paths[i] = (struct harp_path_config){.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true};
  duo_start(&duo, &c);
  strcpy(duo.label, "a slow second flow");
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 8});
  set_rate(0, QUICK);
  set_rate(1, SLOW);
  for (uint32_t i = 0; i < COUNT; i++) duo_add(&duo, MESSAGE_BYTES, MESSAGE_BYTES, duo.now, duo.now);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(100)));
  duo_check_buffers(&duo);
  struct duo_tcp_tally tally = duo_tcp_tally(&duo);
  assert_true(duo.path_packets[1] >= 2);
  assert_int_equal(duo.ends[0].sender->pairs.flows[0].proven, 1);
  assert_int_equal(duo.ends[0].counters.lost_packets, 0);
  assert_int_equal(tally.ended, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_quicker_carrier_is_found),
      cmocka_unit_test(test_the_quicker_carrier_is_kept),
      cmocka_unit_test(test_as_good_is_no_reason),
      cmocka_unit_test(test_datagrams_that_do_not_get_through_are_left),
      cmocka_unit_test(test_capped_flows_are_found_while_their_carrier_is_tried),
      cmocka_unit_test(test_small_messages_are_no_experiment),
      cmocka_unit_test(test_tcp_that_falls_silent_alone_is_taken_again),
      cmocka_unit_test(test_a_network_that_is_silent_decides_nothing),
      cmocka_unit_test(test_records_that_are_lost_with_their_connection_leave_the_size),
      cmocka_unit_test(test_records_of_a_flow_that_rests_arrive_by_its_connection),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
