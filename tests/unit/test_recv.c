/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving half: placement, early data, bounds, contradictions, and when it acknowledges. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/acks.h"
#include "proto/recv.h"

static struct harp_receiver *r;
static struct harp_rx_stream stream;
static struct harp_counters counters;
static struct harp_placement place;
static struct harp_rx_stream second; /* opened by tests that need it */
static uint8_t staging[HARP_STAGING_BYTES], buffer[1 << 20], payload[HARP_PACKET_MAX_PAYLOAD_BYTES];
static uint8_t second_staging[HARP_STAGING_BYTES];
enum { LINE = 1000, MESSAGE = 7, NUMBER = 5, STREAM = 3, SECOND = 1 };
enum {
  EARLY = 2000 /* bytes of a message that comes before its receive */,
  ROOM = 9000 /* enough for any acknowledgement */
};
#define BEFORE_WRAP 0xFFFFFFE0u           /* message number shortly before the wrap */
#define LINES(n)    ((n)*HARP_LINE_BYTES) /* bytes of whole lines */
static const struct harp_receiver_config config = {
    .first_number = NUMBER, .path_count = 2, .stream_max = STREAM + 1};

static void start(uint32_t first_message) {
  struct harp_rx_stream_config sc = {
      .id = STREAM, .first_line = LINE, .first_message = first_message, .staging = staging};
  memset(&counters, 0, sizeof counters);
  harp_receiver_init(r, &config, NULL, &counters);
  harp_receiver_open(r, &stream, &sc);
}

static int init(void **state) {
  (void)state;
  r = malloc(harp_receiver_bytes(&config));
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
  return harp_receiver_post(r, &stream, buffer, capacity, false, buffer, &place, early, HARP_US(1));
}

static enum harp_drop feed(uint32_t number, uint32_t message, uint32_t line, uint32_t offset, uint32_t length,
                           uint32_t size) {
  struct harp_packet p = {.type = HARP_PACKET_DATA, .number = number};
  p.data.stream = STREAM;
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

static void test_a_posted_message_is_placed_and_done(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  assert_int_equal(post(5000, &early), 0);
  assert_null(early);
  /* the end comes first */
  assert_int_equal(feed(NUMBER, MESSAGE, LINE + 8, LINES(8), 276, LINES(8) + 276), HARP_DROP_NONE);
  assert_ptr_equal(place.dst, buffer + LINES(8));
  assert_int_equal(place.count, 1);
  assert_int_equal(place.runs[0].from, 0);
  assert_int_equal(place.runs[0].bytes, 276);
  assert_false(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
  assert_int_equal(stream.delivered, LINE);
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE, 0, LINES(8), LINES(8) + 276), HARP_DROP_NONE);
  assert_int_equal(stream.delivered, LINE + 11);
  assert_true(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
  assert_ptr_equal(cookie, buffer);
  assert_int_equal(bytes, LINES(8) + 276);
  assert_int_equal(feed(NUMBER + 2, MESSAGE, LINE, 0, LINES(8), LINES(8) + 276), HARP_DROP_DUPLICATE);
  assert_false(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
}

static void test_only_new_lines_are_placed(void **state) {
  (void)state;
  const uint8_t *early;
  assert_int_equal(post(5000, &early), 0);
  assert_int_equal(feed(NUMBER, MESSAGE, LINE + 2, LINES(2), LINES(1), LINES(10)), HARP_DROP_NONE);
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE + 5, LINES(5), LINES(2), LINES(10)), HARP_DROP_NONE);
  assert_int_equal(feed(NUMBER + 2, MESSAGE, LINE, 0, LINES(10), LINES(10)), HARP_DROP_NONE);
  assert_int_equal(place.count, 3); /* 0-2, 3-5, 7-10 */
  assert_int_equal(place.runs[0].from, 0);
  assert_int_equal(place.runs[0].bytes, LINES(2));
  assert_int_equal(place.runs[1].from, LINES(3));
  assert_int_equal(place.runs[1].bytes, LINES(2));
  assert_int_equal(place.runs[2].from, LINES(7));
  assert_int_equal(place.runs[2].bytes, LINES(3));
}

/* The map of what has arrived is a ring of one window: behind the window its bits are those of other
 * lines. */
static void test_an_early_message_at_the_edge_of_the_window(void **state) {
  (void)state;
  enum { BIG = HARP_WINDOW_LINES - 3, LOST = 11, ARRIVED = 3 * HARP_LINE_BYTES };
  const uint8_t *early;
  uint32_t number = NUMBER, step;
  assert_int_equal(post(BIG * HARP_LINE_BYTES, &early), 0);
  for (uint32_t at = LOST; at < BIG; at += step) { /* all but its first packet */
    step = HARP_MIN(BIG - at, 11u);
    assert_int_equal(feed(number++, MESSAGE, LINE + at, at * HARP_LINE_BYTES, step * HARP_LINE_BYTES,
                          BIG * HARP_LINE_BYTES),
                     HARP_DROP_NONE);
  }
  assert_int_equal(feed(number, MESSAGE + 1, LINE + BIG, 0, ARRIVED, HARP_EARLY_MAX_BYTES), HARP_DROP_NONE);
  assert_int_equal(post(HARP_EARLY_MAX_BYTES, &early), 0);
  assert_non_null(early);
  assert_int_equal(place.count, 1);
  assert_int_equal(place.runs[0].from, 0);
  assert_int_equal(place.runs[0].bytes, ARRIVED);
}

static void test_early_data_waits_in_staging(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  /* the packet of the second message */
  assert_int_equal(feed(NUMBER, MESSAGE + 1, LINE + 10, LINES(8), EARLY - LINES(8), EARLY), HARP_DROP_NONE);
  uint8_t *slot = staging + (MESSAGE + 1) % HARP_EARLY_MESSAGES * HARP_EARLY_MAX_BYTES;
  assert_ptr_equal(place.dst, slot + LINES(8));
  assert_int_equal(post(100, &early), 0);
  assert_null(early);
  assert_int_equal(post(EARLY, &early), 0);
  assert_ptr_equal(early, slot);
  assert_int_equal(place.count, 1);
  assert_int_equal(place.runs[0].from, LINES(8));
  assert_int_equal(place.runs[0].bytes, EARLY - LINES(8));
  assert_int_equal(feed(NUMBER + 1, MESSAGE + 1, LINE + 2, 0, LINES(8), EARLY), HARP_DROP_NONE);
  assert_ptr_equal(place.dst, buffer); /* the rest goes straight there */
  assert_false(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
  assert_int_equal(feed(NUMBER + 2, MESSAGE, LINE, 0, 100, 100), HARP_DROP_NONE);
  assert_true(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
  assert_int_equal(bytes, 100);
}

static void test_early_data_is_bounded(void **state) {
  (void)state;
  assert_int_equal(feed(NUMBER, MESSAGE, LINE, 0, LINES(8), HARP_EARLY_MAX_BYTES + 1), HARP_DROP_CREDIT);
  assert_int_equal(feed(NUMBER + 1, MESSAGE + HARP_EARLY_MESSAGES, LINE + 900, 0, 100, 100),
                   HARP_DROP_CREDIT);
  assert_int_equal(feed(NUMBER + 2, MESSAGE + HARP_EARLY_MESSAGES - 1, LINE + 900, 0, 100, 100),
                   HARP_DROP_NONE);
}

static void test_bounds_and_contradictions(void **state) {
  (void)state;
  const uint8_t *early;
  assert_int_equal(post(5000, &early), 0);
  assert_int_equal(feed(NUMBER, MESSAGE, LINE + HARP_WINDOW_LINES, 0, LINES(1), LINES(1)), HARP_DROP_WINDOW);
  assert_int_equal(feed(NUMBER, MESSAGE + 5000, LINE, 0, LINES(1), LINES(1)), HARP_DROP_WINDOW);
  assert_int_equal(feed(NUMBER, MESSAGE, LINE, 0, LINES(1), INT32_MAX), HARP_DROP_FIELD);
  /* would start before its turn */
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE, LINES(1), LINES(1), LINES(4)), HARP_DROP_CONTRADICTION);
  assert_int_equal(feed(NUMBER, MESSAGE, LINE, 0, LINES(1), LINES(4)), HARP_DROP_NONE);
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE + 1, LINES(1), LINES(1), LINES(5)),
                   HARP_DROP_CONTRADICTION); /* another size */
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE + 2, LINES(1), LINES(1), LINES(4)),
                   HARP_DROP_CONTRADICTION); /* another start */
  /* What was refused is not acknowledged, so it may come again. */
  struct harp_packet ack;
  uint64_t number;
  assert_true(poll_ack(r, &ack, &number, HARP_MS(1)));
  assert_int_equal(ack.ack.range_count, 1);
  assert_int_equal(ack.ack.ranges[0].begin, NUMBER);
  assert_int_equal(ack.ack.ranges[0].end, NUMBER + 1);
  assert_int_equal(stream.delivered, LINE + 1);
  assert_int_equal(ack.ack.credit_count, 1);
  assert_int_equal(ack.ack.credits[0].stream, STREAM);
  assert_int_equal(ack.ack.credits[0].posted, MESSAGE + 1);
  assert_false(poll_ack(r, &ack, &number, HARP_MS(1)));
}

static void test_too_large_is_noted_and_never_written(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  assert_int_equal(post(100, &early), 0);
  assert_int_equal(feed(NUMBER, MESSAGE, LINE, 0, 101, 101), HARP_DROP_CONTRADICTION);
  assert_true(stream.too_large);
  assert_int_equal(stream.too_large_message, MESSAGE);
  assert_int_equal(stream.too_large_size, 101);
  assert_int_equal(stream.too_large_capacity, 100);
  assert_int_equal(place.count, 0);
  assert_false(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
}

/* A message that had begun before its receive, too small, was posted: nothing more of it may reach the
 * buffer. */
static void test_too_large_early_data_stays_out_of_the_buffer(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  assert_int_equal(feed(NUMBER, MESSAGE, LINE, 0, LINES(8), EARLY), HARP_DROP_NONE);
  assert_int_equal(post(1500, &early), 0);
  assert_null(early);
  assert_int_equal(place.count, 0);
  assert_true(stream.too_large);
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE + 8, LINES(8), EARLY - LINES(8), EARLY),
                   HARP_DROP_CONTRADICTION);
  assert_int_equal(place.count, 0);
  assert_false(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
}

/* A message larger than its receive never counts as delivered, though its stream is closed. */
static void test_what_is_too_large_stays_unacknowledged(void **state) {
  (void)state;
  const uint8_t *early;
  struct harp_packet ack;
  uint64_t number;
  assert_int_equal(post(1000, &early), 0);
  while (poll_ack(r, &ack, &number, HARP_MS(1))) continue;
  assert_int_equal(feed(NUMBER, MESSAGE, LINE, 0, LINES(8), 5000), HARP_DROP_CONTRADICTION);
  harp_receiver_close(r, &stream);
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE, 0, LINES(8), 5000), HARP_DROP_STREAM);
  assert_false(poll_ack(r, &ack, &number, HARP_MS(2)));
}

/* What is still under way to a stream that was closed is acknowledged, since the sender must not take it for
 * loss on the path; what comes for one that never was open is not. */
static void test_packets_of_a_closed_stream_are_acknowledged(void **state) {
  (void)state;
  struct harp_packet ack;
  uint64_t number;
  struct harp_packet p = {.type = HARP_PACKET_DATA, .number = NUMBER, .data = {.stream = STREAM - 1}};
  assert_int_equal(harp_receiver_on_packet(r, &p, NUMBER, &place, HARP_US(2)), HARP_DROP_STREAM);
  assert_false(poll_ack(r, &ack, &number, HARP_MS(1)));
  harp_receiver_close(r, &stream);
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE, 0, 100, 100), HARP_DROP_STREAM);
  assert_int_equal(place.count, 0);
  assert_true(poll_ack(r, &ack, &number, HARP_MS(1)));
  assert_int_equal(ack.ack.range_count, 1);
  assert_int_equal(ack.ack.ranges[0].begin, NUMBER + 1);
  p.data.stream = STREAM + 1; /* beyond what the receiver has */
  assert_int_equal(harp_receiver_on_packet(r, &p, NUMBER + 2, &place, HARP_MS(2)), HARP_DROP_STREAM);
  assert_false(poll_ack(r, &ack, &number, HARP_MS(3)));
  struct harp_rx_stream_config sc = {
      .id = STREAM, .first_line = LINE + 5000, .first_message = MESSAGE + 900, .staging = staging};
  harp_receiver_open(r, &stream, &sc); /* the id is used again */
  assert_int_equal(feed(NUMBER + 3, MESSAGE + 1, LINE + 5000, 0, 100, 100), HARP_DROP_DUPLICATE);
  assert_int_equal(feed(NUMBER + 4, MESSAGE + 900, LINE + 5000, 0, 100, 100), HARP_DROP_NONE);
}

/* One that went by another path, which may have lost it, goes by its own as well: nothing more may come that
 * would bring another. */
static void test_an_acknowledgement_that_took_another_path_is_repeated(void **state) {
  (void)state;
  const uint8_t *early;
  struct harp_packet ack;
  uint64_t number;
  assert_int_equal(post(5000, &early), 0);
  for (unsigned alone = 0; alone < 2; alone++) {
    assert_int_equal(feed(NUMBER + alone, MESSAGE, LINE + alone, LINES(alone), LINES(1), LINES(8)),
                     HARP_DROP_NONE);
    harp_receiver_take_ack(r, 0, &ack, &number, HARP_US(3));
    assert_false(harp_receiver_ride_bytes(r, 0, HARP_MS(1)));
    harp_receiver_on_ack_elsewhere(r, 0);
    assert_int_equal(harp_receiver_elsewhere(r), 1);
    assert_int_equal(harp_receiver_next_ack(r, 0, HARP_MS(1)), -1); /* not by another path again */
    if (alone) {
      harp_receiver_repeat_ack(r, 0, HARP_MS(1));
      assert_int_equal(harp_receiver_next_ack(r, 0, HARP_MS(1)), 0);
      harp_receiver_take_ack(r, 0, &ack, &number, HARP_MS(1));
    } else {
      assert_true(harp_receiver_ride_ack(r, 0, ROOM, &ack, &number, HARP_MS(1)));
    }
    assert_int_equal(ack.ack.ranges[0].end, NUMBER + 1 + alone);
    assert_int_equal(harp_receiver_elsewhere(r), 0);
    assert_int_equal(harp_receiver_next_ack(r, 0, HARP_MS(2)), -1);
  }
}

/* An acknowledgement goes with data that is about to leave on its path when it is due or nearly so, and fits
 * with all the credit that was not sent yet. */
static void test_an_acknowledgement_rides_on_data(void **state) {
  (void)state;
  enum { ONE_RANGE = HARP_ACK_HEADER_BYTES + HARP_ACK_RANGE_BYTES, ALL = ONE_RANGE + HARP_ACK_CREDIT_BYTES };
  const uint8_t *early;
  struct harp_packet ack;
  uint64_t number;
  assert_false(harp_receiver_ride_ack(r, 0, ROOM, &ack, &number, HARP_US(1))); /* nothing has come */
  assert_int_equal(post(50000, &early), 0);
  assert_int_equal(feed(NUMBER, MESSAGE, LINE, 0, LINES(8), 50000), HARP_DROP_NONE);
  assert_false(harp_receiver_ride_ack(r, 1, ROOM, &ack, &number, HARP_US(2))); /* another path's data */
  assert_false(harp_receiver_ride_ack(r, 0, ALL - 1, &ack, &number, HARP_US(2)));
  assert_true(harp_receiver_ride_ack(r, 0, ALL, &ack, &number, HARP_US(2)));
  assert_int_equal(ack.path, 0);
  assert_int_equal(number, NUMBER);
  assert_int_equal(ack.ack.range_count, 1);
  assert_int_equal(ack.ack.credit_count, 1);
  assert_int_equal(harp_receiver_deadline_ns(r, 0), HARP_NEVER);
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE + 8, LINES(8), LINES(8), 50000), HARP_DROP_NONE);
  assert_false(harp_receiver_ride_ack(r, 0, ROOM, &ack, &number, HARP_US(3))); /* more is to come first */
  assert_true(harp_receiver_ride_ack(r, 0, ONE_RANGE, &ack, &number, harp_receiver_deadline_ns(r, 0)));
  assert_int_equal(ack.ack.credit_count, 0); /* it was sent, and will be again where there is room */
}

static void test_receives_are_bounded(void **state) {
  (void)state;
  const uint8_t *early;
  for (int i = 0; i < HARP_MESSAGES_MAX; i++) assert_int_equal(post(10, &early), 0);
  assert_int_equal(post(10, &early), -EAGAIN);
}

static void test_empty_messages_complete_in_turn(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes = 1;
  assert_int_equal(feed(NUMBER, MESSAGE + 1, LINE + 1, 0, 0, 0), HARP_DROP_NONE);
  assert_int_equal(place.count, 0);
  assert_int_equal(post(0, &early), 0);
  assert_int_equal(post(100, &early), 0);
  assert_int_equal(place.count, 0);
  assert_false(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
  assert_int_equal(feed(NUMBER + 1, MESSAGE, LINE, 0, 0, 0), HARP_DROP_NONE);
  assert_true(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
  assert_int_equal(bytes, 0);
  assert_true(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
  assert_false(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
}

/* Message numbers wrap; 64 receives and 8 early messages around the wrap each need a place of their own. */
static void test_messages_keep_apart_across_the_wrap(void **state) {
  (void)state;
  const uint8_t *early;
  void *cookie;
  uint32_t bytes;
  start(BEFORE_WRAP);
  for (uint32_t i = 0; i < HARP_MESSAGES_MAX; i++) assert_int_equal(post(i, &early), 0);
  for (uint32_t i = HARP_MESSAGES_MAX + HARP_EARLY_MESSAGES; i-- > 0;)
    assert_int_equal(feed(NUMBER + i, BEFORE_WRAP + i, LINE + i, 0, i, i), HARP_DROP_NONE);
  for (uint32_t i = 0; i < HARP_MESSAGES_MAX; i++) {
    assert_true(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
    assert_int_equal(bytes, i);
  }
  for (uint32_t i = HARP_MESSAGES_MAX; i < HARP_MESSAGES_MAX + HARP_EARLY_MESSAGES; i++) {
    assert_int_equal(post(i, &early), 0);
    assert_non_null(early);
    assert_true(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
    assert_int_equal(bytes, i);
  }
}

/* A large message waits for its credit, so that is sent at once; a small one comes early, and its credit is
 * sent with what else goes, until two early places are left. */
static void test_credit_of_small_receives_waits_for_more(void **state) {
  (void)state;
  const uint8_t *early;
  for (unsigned i = 0; i < HARP_EARLY_MESSAGES - 2; i++) {
    void *cookie;
    uint32_t bytes;
    assert_int_equal(post(HARP_EARLY_MAX_BYTES, &early), 0);
    assert_int_equal(harp_receiver_next_ack(r, 0, HARP_US(10)), -1);
    assert_int_equal(feed(NUMBER + i, MESSAGE + i, LINE + i, 0, 8, 8), HARP_DROP_NONE);
    assert_true(harp_rx_stream_poll_done(&stream, &cookie, &bytes));
  }
  assert_int_equal(post(HARP_EARLY_MAX_BYTES, &early), 0);
  assert_true(harp_receiver_next_ack(r, 0, HARP_US(10)) >= 0);
  start(MESSAGE);
  assert_int_equal(post(HARP_EARLY_MAX_BYTES + 1, &early), 0);
  assert_true(harp_receiver_next_ack(r, 0, HARP_US(10)) >= 0);
}

static void open_second(void) {
  struct harp_rx_stream_config sc = {
      .id = SECOND, .first_line = LINE, .first_message = MESSAGE, .staging = second_staging};
  harp_receiver_open(r, &second, &sc);
}

static void post_on(struct harp_rx_stream *st) {
  const uint8_t *early;
  assert_int_equal(harp_receiver_post(r, st, buffer, EARLY, false, buffer, &place, &early, HARP_US(1)), 0);
}

/* Where not all credit fits, what is new goes before what is repeated: no acknowledgement follows alone. */
static void test_new_credit_goes_before_repeated_credit(void **state) {
  (void)state;
  enum { ONE_CREDIT = HARP_ACK_HEADER_BYTES + HARP_ACK_RANGE_BYTES + HARP_ACK_CREDIT_BYTES };
  struct harp_packet ack;
  uint64_t number;
  open_second();
  post_on(&stream);
  assert_true(poll_ack(r, &ack, &number, HARP_MS(1)));
  assert_int_equal(ack.ack.credits[0].stream, STREAM);
  assert_int_equal(feed(NUMBER, MESSAGE, LINE, 0, 8, 8), HARP_DROP_NONE);
  post_on(&second);
  assert_true(harp_receiver_ride_ack(r, 0, ONE_CREDIT, &ack, &number, HARP_MS(1)));
  assert_int_equal(ack.ack.credit_count, 1);
  assert_int_equal(ack.ack.credits[0].stream, SECOND);
  assert_int_equal(ack.ack.credits[0].posted, MESSAGE + 1);
  assert_false(poll_ack(r, &ack, &number, HARP_MS(2)));

  assert_int_equal(feed(NUMBER + 1, MESSAGE + 1, LINE + 1, 0, 8, 8), HARP_DROP_NONE);
  assert_true(poll_ack(r, &ack, &number, HARP_MS(3)));
  assert_int_equal(ack.ack.credit_count, 2); /* both again, each once */
  assert_int_equal(ack.ack.credits[0].stream, STREAM);
  assert_int_equal(ack.ack.credits[1].stream, SECOND);
  harp_receiver_close(r, &second);
}

/* A request for credit is answered with that of all open streams, also of those announced often enough. */
static void test_all_credit_is_reported_on_request(void **state) {
  (void)state;
  struct harp_packet ack, p = {.type = HARP_PACKET_PROBE, .flags = HARP_FLAG_CREDIT | HARP_FLAG_ACK_SOON};
  uint64_t number;
  uint32_t next = 0;
  open_second();
  post_on(&stream);
  assert_true(poll_ack(r, &ack, &number, HARP_MS(1)));
  while (stream.announces_left) { /* until the acknowledgements tell it no more */
    assert_int_equal(feed(NUMBER + next, MESSAGE + next, LINE + next, 0, 8, 8), HARP_DROP_NONE);
    next++;
    assert_true(poll_ack(r, &ack, &number, HARP_MS(1)));
  }
  assert_int_equal(harp_receiver_on_packet(r, &p, NUMBER + next, &place, HARP_MS(2)), HARP_DROP_NONE);
  harp_receiver_check(r);
  assert_true(poll_ack(r, &ack, &number, HARP_MS(3)));
  assert_int_equal(ack.ack.credit_count, 2);
  assert_int_equal(ack.ack.credits[0].stream, SECOND); /* it was not announced yet */
  assert_int_equal(ack.ack.credits[0].posted, MESSAGE);
  assert_int_equal(ack.ack.credits[1].stream, STREAM);
  assert_int_equal(ack.ack.credits[1].posted, MESSAGE + 1);

  harp_receiver_close(r, &second);
  assert_int_equal(harp_receiver_on_packet(r, &p, NUMBER + next + 1, &place, HARP_MS(4)), HARP_DROP_NONE);
  assert_true(poll_ack(r, &ack, &number, HARP_MS(5)));
  assert_int_equal(ack.ack.credit_count, 1);
  assert_int_equal(ack.ack.credits[0].stream, STREAM);
}

static void feed_probe(uint8_t path, uint32_t number, uint8_t flags, harp_ns now) {
  struct harp_packet ack, p = {.type = HARP_PACKET_PROBE, .path = path, .number = number, .flags = flags};
  uint64_t ack_number;
  assert_int_equal(harp_receiver_on_packet(r, &p, harp_receiver_number(r, &p), &place, now), HARP_DROP_NONE);
  while (poll_ack(r, &ack, &ack_number, now + HARP_MS(1))) assert_int_equal(ack.path, path);
}

/* Posts a receive; returns the path over which its credit leaves. */
static int path_of_credit(harp_ns now) {
  struct harp_packet ack;
  uint64_t number;
  const uint8_t *early;
  assert_int_equal(harp_receiver_post(r, &stream, buffer, sizeof buffer, false, NULL, &place, &early, now),
                   0);
  assert_true(poll_ack(r, &ack, &number, now + HARP_MS(1)));
  assert_int_equal(ack.ack.credits[0].posted, stream.posted);
  assert_false(poll_ack(r, &ack, &number, now + HARP_MS(1)));
  return ack.path;
}

/* New credit goes over a path that the sender takes for one that works. */
static void test_credit_goes_where_it_was_requested(void **state) {
  (void)state;
  feed_probe(1, NUMBER, HARP_FLAG_ACK_SOON, HARP_MS(1)); /* the first packet: path 0 may not work at all */
  assert_int_equal(path_of_credit(HARP_MS(10)), 1);
  feed_probe(0, NUMBER, HARP_FLAG_ACK_SOON, HARP_MS(20)); /* it may be probed since nothing answers there */
  assert_int_equal(path_of_credit(HARP_MS(30)), 1);
  feed_probe(0, NUMBER + 1, HARP_FLAG_ACK_SOON | HARP_FLAG_CREDIT, HARP_MS(40));
  assert_int_equal(path_of_credit(HARP_MS(50)), 0);
}

/* ---- paths whose address may be a third party's ---- */

enum { CREDITORS = 60, ANSWERED = 2000, HEADERS_BYTES = 28 /* the least headers of IPv4 and UDP */ };

/* Feeds a packet on path 1 that requests all credit. Returns its bytes, with all headers. */
static uint64_t request_credit(struct harp_receiver *to, uint64_t number, harp_ns now) {
  struct harp_packet p = {.type = HARP_PACKET_PROBE,
                          .flags = HARP_FLAG_CREDIT | HARP_FLAG_ACK_SOON,
                          .path = 1,
                          .number = (uint32_t)number};
  assert_int_equal(harp_receiver_on_packet(to, &p, number, &place, now), HARP_DROP_NONE);
  return HARP_DATA_HEADER_BYTES + HEADERS_BYTES;
}

/* Takes all acknowledgements that are due. Returns their bytes, with all headers. */
static uint64_t take_all(struct harp_receiver *from, harp_ns now) {
  struct harp_packet ack;
  uint64_t number, bytes = 0;
  while (poll_ack(from, &ack, &number, now))
    bytes += HARP_ACK_HEADER_BYTES + ack.ack.range_count * HARP_ACK_RANGE_BYTES +
             ack.ack.credit_count * HARP_ACK_CREDIT_BYTES + HEADERS_BYTES;
  return bytes;
}

/* Feeds requests whose numbers leave gaps, as long as an attacker likes, to a receiver with many streams.
 * Returns the bytes of its answers for each byte of them. */
static double amplification(uint64_t unproved) {
  static struct harp_rx_stream streams[CREDITORS];
  const struct harp_receiver_config c = {
      .first_number = NUMBER, .path_count = 2, .stream_max = CREDITORS, .unproved = unproved};
  struct harp_receiver *many = malloc(harp_receiver_bytes(&c));
  uint64_t came = 0, went = 0;
  assert_non_null(many);
  harp_receiver_init(many, &c, NULL, &counters);
  for (unsigned i = 0; i < CREDITORS; i++)
    harp_receiver_open(many, &streams[i],
                       &(struct harp_rx_stream_config){.id = (uint16_t)i, .staging = staging});
  for (unsigned i = 0; i < ANSWERED; i++) {
    came += request_credit(many, NUMBER + 2 * i, HARP_MS(i));
    went += take_all(many, HARP_MS(i) + HARP_US(500));
    harp_receiver_check(many);
    assert_true(!unproved || went <= came);
  }
  free(many);
  return (double)went / (double)came;
}

static void test_answers_on_an_unproved_path_are_bounded(void **state) {
  (void)state;
  assert_true(amplification(0) > 6); /* what the bound is for */
  assert_true(amplification(1 << 1) > 0.5);
}

/* The first probe of a path brings an acknowledgement. */
static void test_a_padded_probe_brings_an_answer(void **state) {
  (void)state;
  struct harp_packet ack, p = {.type = HARP_PACKET_PROBE, .flags = HARP_FLAG_ACK_SOON, .number = NUMBER};
  uint64_t number;
  r->unproved = 1;
  assert_int_equal(harp_receiver_on_packet(r, &p, NUMBER, &place, HARP_MS(1)), HARP_DROP_NONE);
  assert_false(poll_ack(r, &ack, &number, HARP_MS(2)));
  p.number++;
  p.data.length = HARP_PROBE_PADDING_BYTES;
  r->paths[0].allowance_bytes = 0;
  assert_int_equal(harp_receiver_on_packet(r, &p, NUMBER + 1, &place, HARP_MS(3)), HARP_DROP_NONE);
  assert_true(poll_ack(r, &ack, &number, HARP_MS(4)));
}

/* The MAC behind an acknowledgement counts: these bytes allow one without. */
static void test_a_mac_counts_as_part_of_an_answer(void **state) {
  enum {
    MAC_BYTES = 8,
    PADDING_BYTES = HARP_ACK_HEADER_BYTES + HARP_ACK_RANGE_BYTES - HARP_DATA_HEADER_BYTES
  };
  struct harp_packet ack, p = {.type = HARP_PACKET_PROBE,
                               .flags = HARP_FLAG_ACK_SOON,
                               .number = NUMBER,
                               .data.length = PADDING_BYTES};
  uint64_t number;
  (void)state;
  r->unproved = 1;
  r->mac_bytes = MAC_BYTES;
  assert_int_equal(harp_receiver_on_packet(r, &p, NUMBER, &place, HARP_MS(1)), HARP_DROP_NONE);
  assert_false(poll_ack(r, &ack, &number, HARP_MS(2)));
  p.number++;
  p.data.length = MAC_BYTES + PADDING_BYTES;
  r->paths[0].allowance_bytes = 0;
  assert_int_equal(harp_receiver_on_packet(r, &p, NUMBER + 1, &place, HARP_MS(3)), HARP_DROP_NONE);
  assert_true(poll_ack(r, &ack, &number, HARP_MS(4)));
}

/* A mark has a packet acknowledged at once; its gap makes the acknowledgement longer than is allowed. */
static void test_a_marked_packet_behind_a_gap_keeps_to_the_bound(void **state) {
  (void)state;
  struct harp_packet ack,
      p = {.type = HARP_PACKET_PROBE, .flags = HARP_FLAG_ACK_SOON, .ce = true, .data.length = 5};
  uint64_t number, came = 0, went = 0;
  r->unproved = 1;
  for (uint32_t n = 0; n < 20; n += 1 + n % 3) {
    p.number = NUMBER + n;
    assert_int_equal(harp_receiver_on_packet(r, &p, p.number, &place, HARP_MS(n)), HARP_DROP_NONE);
    harp_receiver_check(r);
    came += HARP_DATA_HEADER_BYTES + p.data.length;
    while (poll_ack(r, &ack, &number, HARP_MS(n)))
      went += HARP_ACK_HEADER_BYTES + ack.ack.range_count * HARP_ACK_RANGE_BYTES +
              ack.ack.credit_count * HARP_ACK_CREDIT_BYTES;
    assert_true(went <= came);
  }
  assert_true(went > 0);
}

/* ---- packets that are sent again ---- */

/* One packet that was seen on its way is sent again and again: each copy brought an acknowledgement of
 * several hundred bytes at once, and one that requests credit as many as there are streams for. */
static void test_a_replayed_packet_brings_nothing(void **state) {
  (void)state;
  struct harp_packet ack;
  uint64_t number;
  feed_probe(0, NUMBER, HARP_FLAG_CREDIT, HARP_MS(1));
  feed_probe(0, NUMBER + 2, 0, HARP_MS(2));
  struct harp_packet p = {.type = HARP_PACKET_PROBE, .flags = HARP_FLAG_CREDIT | HARP_FLAG_ACK_SOON};
  for (unsigned i = 0; i < 3; i++) {
    p.number = NUMBER + i;
    enum harp_drop drop = harp_receiver_on_packet(r, &p, p.number, &place, HARP_MS(3 + i));
    assert_int_equal(drop, i == 1 ? HARP_DROP_NONE : HARP_DROP_REPLAY); /* number 1 is only late */
    assert_int_equal(poll_ack(r, &ack, &number, HARP_MS(4 + i)), i == 1);
  }
}

/* Numbers of which the sender knows what became of them are forgotten: they are no new ones, either. */
static void test_a_packet_from_before_what_is_settled_brings_nothing(void **state) {
  (void)state;
  struct harp_packet ack;
  uint64_t number;
  feed_probe(0, NUMBER, 0, HARP_MS(1));
  feed_probe(0, NUMBER + 10, HARP_FLAG_SETTLED, HARP_MS(2));
  feed_probe(0, NUMBER + 20, HARP_FLAG_SETTLED, HARP_MS(3));
  for (unsigned i = 0; i < 12; i++) {
    struct harp_packet p = {
        .type = HARP_PACKET_PROBE, .number = NUMBER + i, .flags = HARP_FLAG_CREDIT | HARP_FLAG_ACK_SOON};
    enum harp_drop drop = harp_receiver_on_packet(r, &p, p.number, &place, HARP_MS(4));
    assert_int_equal(drop, i == 11 ? HARP_DROP_NONE : HARP_DROP_REPLAY);
    assert_int_equal(poll_ack(r, &ack, &number, HARP_MS(5)), i == 11);
  }
}

/* Nothing goes before anything has come; what was held back goes as soon as the path is proved. */
static void test_what_was_held_back_goes_when_the_path_is_proved(void **state) {
  (void)state;
  const uint8_t *early;
  struct harp_packet ack;
  uint64_t number;
  r->unproved = 3;
  assert_int_equal(post(50000, &early), 0);
  assert_false(poll_ack(r, &ack, &number, HARP_SEC(1)));
  harp_receiver_on_proved(r, 1, HARP_SEC(1)); /* new credit does not go there */
  assert_false(poll_ack(r, &ack, &number, HARP_SEC(1)));
  harp_receiver_on_proved(r, 0, HARP_SEC(1));
  assert_true(poll_ack(r, &ack, &number, HARP_SEC(1)));
  assert_int_equal(ack.path, 0);
  assert_int_equal(ack.ack.credit_count, 1);
  harp_receiver_check(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_posted_message_is_placed_and_done, init, fini),
      cmocka_unit_test_setup_teardown(test_only_new_lines_are_placed, init, fini),
      cmocka_unit_test_setup_teardown(test_an_early_message_at_the_edge_of_the_window, init, fini),
      cmocka_unit_test_setup_teardown(test_early_data_waits_in_staging, init, fini),
      cmocka_unit_test_setup_teardown(test_early_data_is_bounded, init, fini),
      cmocka_unit_test_setup_teardown(test_bounds_and_contradictions, init, fini),
      cmocka_unit_test_setup_teardown(test_too_large_is_noted_and_never_written, init, fini),
      cmocka_unit_test_setup_teardown(test_too_large_early_data_stays_out_of_the_buffer, init, fini),
      cmocka_unit_test_setup_teardown(test_what_is_too_large_stays_unacknowledged, init, fini),
      cmocka_unit_test_setup_teardown(test_packets_of_a_closed_stream_are_acknowledged, init, fini),
      cmocka_unit_test_setup_teardown(test_an_acknowledgement_that_took_another_path_is_repeated, init, fini),
      cmocka_unit_test_setup_teardown(test_an_acknowledgement_rides_on_data, init, fini),
      cmocka_unit_test_setup_teardown(test_receives_are_bounded, init, fini),
      cmocka_unit_test_setup_teardown(test_empty_messages_complete_in_turn, init, fini),
      cmocka_unit_test_setup_teardown(test_messages_keep_apart_across_the_wrap, init, fini),
      cmocka_unit_test_setup_teardown(test_credit_of_small_receives_waits_for_more, init, fini),
      cmocka_unit_test_setup_teardown(test_new_credit_goes_before_repeated_credit, init, fini),
      cmocka_unit_test_setup_teardown(test_all_credit_is_reported_on_request, init, fini),
      cmocka_unit_test_setup_teardown(test_credit_goes_where_it_was_requested, init, fini),
      cmocka_unit_test_setup_teardown(test_answers_on_an_unproved_path_are_bounded, init, fini),
      cmocka_unit_test_setup_teardown(test_a_mac_counts_as_part_of_an_answer, init, fini),
      cmocka_unit_test_setup_teardown(test_a_padded_probe_brings_an_answer, init, fini),
      cmocka_unit_test_setup_teardown(test_a_marked_packet_behind_a_gap_keeps_to_the_bound, init, fini),
      cmocka_unit_test_setup_teardown(test_a_replayed_packet_brings_nothing, init, fini),
      cmocka_unit_test_setup_teardown(test_a_packet_from_before_what_is_settled_brings_nothing, init, fini),
      cmocka_unit_test_setup_teardown(test_what_was_held_back_goes_when_the_path_is_proved, init, fini),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
