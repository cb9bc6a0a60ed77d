/* SPDX-License-Identifier: Apache-2.0 */
/* What the streams of one connection make of what they share, on the virtual clock: equal shares, small
 * messages beside large ones, superframes filled by several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/crowd.h"

static struct duo duo;
enum { GBIT = 125000000, STREAMS_MAX = 32 };

static void start_ways(const char *name, uint64_t rate_bytes_s, bool both, bool ride) {
  struct duo_config c = {.seed = 5,
                         .is_one_way = !both,
                         .ride = ride,
                         .pad = true,
                         .path_count = 1,
                         .paths = {{.lines_max = 11}},
                         .stream_max = STREAMS_MAX,
                         .window_bytes = 4 << 20,
                         .cc = &harp_cc_target,
                         .superframe_packets = 64,
                         .batch = true};
  duo_start(&duo, &c);
  snprintf(duo.label, sizeof duo.label, "%s", name);
  for (unsigned way = 0; way < SIMNET_WAYS; way++) {
    struct simnet_link *l = &duo.net.links[way][0];
    l->own.rate_bytes_s = both || way == SIMNET_THERE ? rate_bytes_s : 0;
    l->own.queue_bytes = 1 << 20;
    l->delay_ns = HARP_US(25);
  }
}

static void start(const char *name, uint64_t rate_bytes_s) {
  start_ways(name, rate_bytes_s, false, false);
}

/* A stream with `count` messages, one each `gap_ns`, as many as it likes at once. */
static struct duo_stream *add(uint16_t id, uint32_t bytes, uint32_t count, harp_ns gap_ns) {
  struct duo_stream *s = duo_open(&duo, &(struct duo_stream_config){.id = id, .first_line = 77u * id});
  for (uint32_t k = 0; k < count; k++) duo_add(&duo, bytes, bytes, duo.now + gap_ns * k, duo.now);
  return s;
}

static uint64_t received_bytes(const struct duo_stream *s) {
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < s->received_count; k++) bytes += duo.messages[s->first + k].bytes;
  return bytes;
}

static void test_equal_streams_share_a_path(void **state) {
  (void)state;
  enum { STREAMS = 8 };
  uint64_t got[STREAMS];
  start("8 streams of 128 KiB messages", 2 * (uint64_t)GBIT);
  for (uint16_t i = 0; i < STREAMS; i++) add(i, 128 << 10, 40, 0);
  duo_run(&duo, duo.now + HARP_MS(100)); /* more than half of it */
  assert_false(duo_complete(&duo));
  for (unsigned i = 0; i < STREAMS; i++) got[i] = received_bytes(&duo.streams[i]);
  uint32_t jain = crowd_jain_permille(got, STREAMS);
  print_message("%s: Jain %u permille\n", duo.label, jain);
  assert_true(got[0] > 2 << 20);
  assert_true(jain >= 995);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(1)));
}

/* The longest that a message of the stream took, but for the first ones, which meet a window that grows. */
static harp_ns worst_ns(const struct duo_stream *s, uint32_t from) {
  harp_ns worst = 0;
  for (uint32_t k = from; k < s->count; k++) {
    const struct duo_message *m = &duo.messages[s->first + k];
    worst = HARP_MAX(worst, m->received_at - m->posted_at);
  }
  return worst;
}

static void test_small_messages_do_not_wait_for_large_ones(void **state) {
  (void)state;
  enum { LARGE = 16, SMALL = 60 };
  harp_ns worst[3];
  for (unsigned round = 0; round < 3; round++) { /* alone, beside one stream, beside many */
    unsigned large = round == 0 ? 0 : round == 1 ? 1 : LARGE;
    start("8 bytes beside 1 MiB", 10 * (uint64_t)GBIT);
    for (uint16_t i = 0; i < large; i++) add(i, 1 << 20, LARGE * 2 / large, 0);
    struct duo_stream *s = add(LARGE, 8, SMALL, HARP_US(400));
    assert_true(duo_run(&duo, duo.now + HARP_SEC(1)));
    worst[round] = worst_ns(s, 5);
  }
  print_message("an 8-byte message: alone %llu us, beside one stream %llu us, beside 16 streams %llu us\n",
                (unsigned long long)worst[0] / 1000, (unsigned long long)worst[1] / 1000,
                (unsigned long long)worst[2] / 1000);
  assert_true(worst[2] <= worst[1] + HARP_US(60)); /* it waits for the wire, and not for the streams */
}

/* Streams of small messages that never end leave large ones their half. */
static void test_small_messages_do_not_starve_large_ones(void **state) {
  (void)state;
  start("64 KiB beside a flood of 8 KiB", GBIT);
  add(0, 64 << 10, 60, 0);
  for (uint16_t i = 1; i <= 4; i++) add(i, 8 << 10, 200, 0);
  while (!duo_complete(&duo) && duo.streams[1].received_count < 150) duo_step(&duo, HARP_SEC(1));
  uint64_t large = received_bytes(&duo.streams[0]), small = 0;
  for (unsigned i = 1; i <= 4; i++) small += received_bytes(&duo.streams[i]);
  print_message("%s: %llu permille\n", duo.label, (unsigned long long)(large * 1000 / (large + small)));
  assert_in_range(large * 1000 / (large + small), 350, 600);
}

static void test_a_superframe_carries_several_streams(void **state) {
  (void)state;
  start("8 streams of 1 KiB", 10 * (uint64_t)GBIT);
  duo.config.superframe_packets = 64;
  for (uint16_t i = 0; i < 8; i++) {
    duo_open(&duo, &(struct duo_stream_config){.id = i});
    duo_add(&duo, 1024, 1024, duo.now + HARP_MS(1), duo.now);
  }
  duo_run(&duo, duo.now + HARP_US(900)); /* the path is up */
  uint64_t before = duo.ends[0].superframes;
  assert_true(duo_run(&duo, duo.now + HARP_SEC(1)));
  assert_int_equal(duo.ends[0].superframes - before, 1);
}

/* With traffic both ways, acknowledgements ride on data. One that is due while the pace holds data back
 * does not wait for it. */
static void test_acknowledgements_ride_on_data(void **state) {
  (void)state;
  static const uint32_t sizes[] = {1 << 10, 64 << 10};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(sizes); i++) {
    uint64_t alone[2], all[2], rides = 0;
    for (unsigned ride = 0; ride < 2; ride++) {
      start_ways("4 streams each way", 10 * (uint64_t)GBIT, true, ride);
      for (uint16_t k = 0; k < 8; k++) {
        duo_open(&duo, &(struct duo_stream_config){
                           .id = k / 2, .way = (enum simnet_way)(k % 2), .in_flight_max = 4});
        for (unsigned m = 0; m < 60; m++) duo_add(&duo, sizes[i], sizes[i], duo.now, duo.now);
      }
      assert_true(duo_run(&duo, duo.now + HARP_SEC(1)));
      duo_check_buffers(&duo);
      assert_int_equal(duo.ends[0].counters.lost_packets, 0);
      alone[ride] = duo.ends[0].acks_alone + duo.ends[1].acks_alone;
      rides = duo.ends[0].rides + duo.ends[1].rides;
      all[ride] = duo.ends[0].superframes + duo.ends[1].superframes;
    }
    print_message(
        "%u bytes both ways: %llu of %llu superframes are acknowledgements; if those may ride on data, "
        "%llu of %llu, and %llu ride\n",
        sizes[i], (unsigned long long)alone[0], (unsigned long long)all[0], (unsigned long long)alone[1],
        (unsigned long long)all[1], (unsigned long long)rides);
    assert_true(rides && all[1] <= all[0] * 21 / 20);
    assert_true(alone[1] <= alone[0] * 9 / 8); /* riders change what the windows do */
    if (sizes[i] > 1 << 14) assert_true(2 * alone[1] <= all[1] - alone[1]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equal_streams_share_a_path),
      cmocka_unit_test(test_small_messages_do_not_wait_for_large_ones),
      cmocka_unit_test(test_small_messages_do_not_starve_large_ones),
      cmocka_unit_test(test_a_superframe_carries_several_streams),
      cmocka_unit_test(test_acknowledgements_ride_on_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
