/* The receiving half: placement, early data, bounds, contradictions, and when it acknowledges. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/recv.h"

static struct harp_receiver *r;
static struct harp_counters counters;
static struct harp_placement place;
static uint8_t staging[HARP_STAGING_BYTES], buffer[1 << 20], payload[HARP_PACKET_MAX_PAYLOAD_BYTES];
enum { LINE = 1000, MESSAGE = 7, NUMBER = 5 };

static void start(uint32_t first_message) {
  struct harp_receiver_config c = {.first_line = LINE,
                                   .first_message = first_message,
                                   .first_number = NUMBER,
                                   .path_count = 2,
                                   .staging = staging};
  memset(&counters, 0, sizeof counters);
  harp_receiver_init(r, &c, NULL, &counters);
}

static int init(void **state) {
  (void)state;
  r = malloc(sizeof *r);
  assert_non_null(r);
  start(MESSAGE);
  return 0;
}

static int fini(void **state) {
  (void)state;
  harp_receiver_check(r);
  free(r);
  return 0;
}

static int post(uint32_t capacity, const uint8_t **early) {
  return harp_receiver_post(r, buffer, capacity, buffer, &place, early, HARP_US(1));
}

static enum harp_drop feed(uint32_t number, uint32_t message, uint32_t line, uint32_t offset, uint32_t length,
                           uint32_t size) {
  struct harp_packet p = {.type = HARP_PACKET_DATA, .number = number};
  p.data.message = message;
  p.data.line = line;
  p.data.offset = offset;
  p.data.length = length;
  p.data.size = size;
  p.data.payload = payload;
  enum harp_drop drop = harp_receiver_on_packet(r, &p, harp_receiver_number(r, &p), &place, HARP_US(2));
  harp_receiver_check(r);
  return drop;
}

static void a_posted_message_is_placed_and_done(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  assert_int_equal(post(5000, &early), 0);
  assert_null(early);
  assert_int_equal(feed(5, MESSAGE, LINE + 8, 1024, 276, 1300), HARP_DROP_NONE); /* the end comes first */
  assert_ptr_equal(place.dst, buffer + 1024);
  assert_int_equal(place.count, 1);
  assert_int_equal(place.runs[0].from, 0);
  assert_int_equal(place.runs[0].bytes, 276);
  assert_false(harp_receiver_poll_done(r, &cookie, &bytes));
  assert_int_equal(r->delivered, LINE);
  assert_int_equal(feed(6, MESSAGE, LINE, 0, 1024, 1300), HARP_DROP_NONE);
  assert_int_equal(r->delivered, LINE + 11);
  assert_true(harp_receiver_poll_done(r, &cookie, &bytes));
  assert_ptr_equal(cookie, buffer);
  assert_int_equal(bytes, 1300);
  assert_int_equal(feed(7, MESSAGE, LINE, 0, 1024, 1300), HARP_DROP_DUPLICATE);
  assert_false(harp_receiver_poll_done(r, &cookie, &bytes));
}

static void only_new_lines_are_placed(void **state) {
  (void)state;
  const uint8_t *early;
  assert_int_equal(post(5000, &early), 0);
  assert_int_equal(feed(5, MESSAGE, LINE + 2, 256, 128, 1280), HARP_DROP_NONE);
  assert_int_equal(feed(6, MESSAGE, LINE + 5, 640, 256, 1280), HARP_DROP_NONE);
  assert_int_equal(feed(7, MESSAGE, LINE, 0, 1280, 1280), HARP_DROP_NONE);
  assert_int_equal(place.count, 3); /* 0-2, 3-5, 7-10 */
  assert_int_equal(place.runs[0].from, 0);
  assert_int_equal(place.runs[0].bytes, 256);
  assert_int_equal(place.runs[1].from, 384);
  assert_int_equal(place.runs[1].bytes, 256);
  assert_int_equal(place.runs[2].from, 896);
  assert_int_equal(place.runs[2].bytes, 384);
}

static void early_data_waits_in_staging(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  assert_int_equal(feed(5, MESSAGE + 1, LINE + 10, 1024, 976, 2000),
                   HARP_DROP_NONE); /* of the second message */
  uint8_t *slot = staging + (MESSAGE + 1) % HARP_EARLY_MESSAGES * HARP_EARLY_MAX_BYTES;
  assert_ptr_equal(place.dst, slot + 1024);
  assert_int_equal(post(100, &early), 0);
  assert_null(early);
  assert_int_equal(post(2000, &early), 0);
  assert_ptr_equal(early, slot);
  assert_int_equal(place.count, 1);
  assert_int_equal(place.runs[0].from, 1024);
  assert_int_equal(place.runs[0].bytes, 976);
  assert_int_equal(feed(6, MESSAGE + 1, LINE + 2, 0, 1024, 2000), HARP_DROP_NONE);
  assert_ptr_equal(place.dst, buffer); /* the rest goes straight there */
  assert_false(harp_receiver_poll_done(r, &cookie, &bytes));
  assert_int_equal(feed(7, MESSAGE, LINE, 0, 100, 100), HARP_DROP_NONE);
  assert_true(harp_receiver_poll_done(r, &cookie, &bytes));
  assert_int_equal(bytes, 100);
}

static void early_data_is_bounded(void **state) {
  (void)state;
  assert_int_equal(feed(5, MESSAGE, LINE, 0, 1024, HARP_EARLY_MAX_BYTES + 1), HARP_DROP_CREDIT);
  assert_int_equal(feed(6, MESSAGE + HARP_EARLY_MESSAGES, LINE + 900, 0, 100, 100), HARP_DROP_CREDIT);
  assert_int_equal(feed(7, MESSAGE + HARP_EARLY_MESSAGES - 1, LINE + 900, 0, 100, 100), HARP_DROP_NONE);
}

static void bounds_and_contradictions(void **state) {
  (void)state;
  const uint8_t *early;
  assert_int_equal(post(5000, &early), 0);
  assert_int_equal(feed(5, MESSAGE, LINE + HARP_WINDOW_LINES, 0, 128, 128), HARP_DROP_WINDOW);
  assert_int_equal(feed(5, MESSAGE + 5000, LINE, 0, 128, 128), HARP_DROP_WINDOW);
  assert_int_equal(feed(5, MESSAGE, LINE, 0, 128, 0x7FFFFFFF), HARP_DROP_FIELD);
  assert_int_equal(feed(6, MESSAGE, LINE, 128, 128, 512),
                   HARP_DROP_CONTRADICTION); /* would start before its turn */
  assert_int_equal(feed(5, MESSAGE, LINE, 0, 128, 512), HARP_DROP_NONE);
  assert_int_equal(feed(6, MESSAGE, LINE + 1, 128, 128, 640), HARP_DROP_CONTRADICTION); /* another size */
  assert_int_equal(feed(6, MESSAGE, LINE + 2, 128, 128, 512), HARP_DROP_CONTRADICTION); /* another start */
  /* What was refused is not acknowledged, so it may come again. */
  struct harp_packet ack;
  uint64_t number;
  assert_true(harp_receiver_poll_ack(r, &ack, &number, HARP_MS(1)));
  assert_int_equal(ack.ack.range_count, 1);
  assert_int_equal(ack.ack.ranges[0].begin, 5);
  assert_int_equal(ack.ack.ranges[0].end, 6);
  assert_int_equal(ack.ack.delivered, LINE + 1);
  assert_int_equal(ack.ack.posted, MESSAGE + 1);
  assert_false(harp_receiver_poll_ack(r, &ack, &number, HARP_MS(1)));
}

static void too_large_is_noted_and_never_written(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  assert_int_equal(post(100, &early), 0);
  assert_int_equal(feed(5, MESSAGE, LINE, 0, 101, 101), HARP_DROP_CONTRADICTION);
  assert_true(r->too_large);
  assert_int_equal(r->too_large_message, MESSAGE);
  assert_int_equal(r->too_large_size, 101);
  assert_int_equal(r->too_large_capacity, 100);
  assert_int_equal(place.count, 0);
  assert_false(harp_receiver_poll_done(r, &cookie, &bytes));
}

/* A message that had begun before its receive, too small, was posted: nothing more of it may reach the
 * buffer. */
static void too_large_early_data_stays_out_of_the_buffer(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  assert_int_equal(feed(5, MESSAGE, LINE, 0, 1024, 2000), HARP_DROP_NONE);
  assert_int_equal(post(1500, &early), 0);
  assert_null(early);
  assert_int_equal(place.count, 0);
  assert_true(r->too_large);
  assert_int_equal(feed(6, MESSAGE, LINE + 8, 1024, 976, 2000), HARP_DROP_CONTRADICTION);
  assert_int_equal(place.count, 0);
  assert_false(harp_receiver_poll_done(r, &cookie, &bytes));
}

static void receives_are_bounded(void **state) {
  (void)state;
  const uint8_t *early;
  for (int i = 0; i < HARP_MESSAGES_MAX; i++) assert_int_equal(post(10, &early), 0);
  assert_int_equal(post(10, &early), -EAGAIN);
}

static void empty_messages_complete_in_turn(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes = 1;
  assert_int_equal(feed(5, MESSAGE + 1, LINE + 1, 0, 0, 0), HARP_DROP_NONE);
  assert_int_equal(place.count, 0);
  assert_int_equal(post(0, &early), 0);
  assert_int_equal(post(100, &early), 0);
  assert_int_equal(place.count, 0);
  assert_false(harp_receiver_poll_done(r, &cookie, &bytes));
  assert_int_equal(feed(6, MESSAGE, LINE, 0, 0, 0), HARP_DROP_NONE);
  assert_true(harp_receiver_poll_done(r, &cookie, &bytes));
  assert_int_equal(bytes, 0);
  assert_true(harp_receiver_poll_done(r, &cookie, &bytes));
  assert_false(harp_receiver_poll_done(r, &cookie, &bytes));
}

/* Message numbers wrap; 64 receives and 8 early messages around the wrap each need a place of their own. */
static void messages_keep_apart_across_the_wrap(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  start(0xFFFFFFE0);
  for (uint32_t i = 0; i < HARP_MESSAGES_MAX; i++) assert_int_equal(post(i, &early), 0);
  for (uint32_t i = HARP_MESSAGES_MAX + HARP_EARLY_MESSAGES; i-- > 0;)
    assert_int_equal(feed(NUMBER + i, 0xFFFFFFE0 + i, LINE + i, 0, i, i), HARP_DROP_NONE);
  for (uint32_t i = 0; i < HARP_MESSAGES_MAX; i++) {
    assert_true(harp_receiver_poll_done(r, &cookie, &bytes));
    assert_int_equal(bytes, i);
  }
  for (uint32_t i = HARP_MESSAGES_MAX; i < HARP_MESSAGES_MAX + HARP_EARLY_MESSAGES; i++) {
    assert_int_equal(post(i, &early), 0);
    assert_non_null(early);
    assert_true(harp_receiver_poll_done(r, &cookie, &bytes));
    assert_int_equal(bytes, i);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_posted_message_is_placed_and_done, init, fini),
      cmocka_unit_test_setup_teardown(only_new_lines_are_placed, init, fini),
      cmocka_unit_test_setup_teardown(early_data_waits_in_staging, init, fini),
      cmocka_unit_test_setup_teardown(early_data_is_bounded, init, fini),
      cmocka_unit_test_setup_teardown(bounds_and_contradictions, init, fini),
      cmocka_unit_test_setup_teardown(too_large_is_noted_and_never_written, init, fini),
      cmocka_unit_test_setup_teardown(too_large_early_data_stays_out_of_the_buffer, init, fini),
      cmocka_unit_test_setup_teardown(receives_are_bounded, init, fini),
      cmocka_unit_test_setup_teardown(empty_messages_complete_in_turn, init, fini),
      cmocka_unit_test_setup_teardown(messages_keep_apart_across_the_wrap, init, fini),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
