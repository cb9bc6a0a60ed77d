/* SPDX-License-Identifier: Apache-2.0 */
/* The sending half: posting, bounds, numbering, and acknowledgements that make no sense. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/seq.h"
#include "lib/acks.h"
#include "lib/bring_up.h"
#include "proto/recv.h"
#include "proto/send.h"

static struct harp_sender *s;
static struct harp_tx_stream st;
static struct harp_counters counters;
static struct harp_tx_stream own_stream; /* the stream of a test's own sender */
static uint8_t data[1 << 20];
enum {
  FIRST_LINE = 1000,
  FIRST_MESSAGE = 7,
  FIRST_NUMBER = 5,
  STREAM = 2,
  PACKET_LINES = 8, /* the lines of a full packet */
  PACKET_BYTES = PACKET_LINES * HARP_LINE_BYTES,
  MESSAGE_BYTES = 2500, /* the bytes of a message of three packets */
};
static const struct harp_tx_stream_config stream = {
    .id = STREAM, .first_line = FIRST_LINE, .first_message = FIRST_MESSAGE};

static int init(void **state) {
  (void)state;
  struct harp_sender_config c = {
      .first_number = FIRST_NUMBER - 1,
      .stream_max = STREAM + 1,
      .path_count = 2,
      .paths = {{.lines_max = PACKET_LINES}, {.lines_max = PACKET_LINES, .local_eni = 1}},
      .window_bytes = 4 << 20,
      .cc = &harp_cc_target};
  s = malloc(harp_sender_bytes(&c));
  assert_non_null(s);
  memset(&counters, 0, sizeof counters);
  harp_sender_init(s, &c, NULL, &counters, 0);
  harp_sender_open(s, &st, &stream);
  bring_up(s, 0);
  return 0;
}

static int fini(void **state) {
  (void)state;
  harp_sender_check(s);
  free(s);
  return 0;
}

/* Takes what there is to send, within the time that small messages may wait for others. */
static bool take(struct harp_tx_run *run, uint32_t max) {
  for (harp_ns now = HARP_US(1); now <= HARP_US(50); now += HARP_US(1)) {
    if (send_next(s, max, run, now)) return true;
  }
  return false;
}

static enum harp_drop feed(struct harp_packet p) {
  return harp_sender_on_ack(s, &p, harp_sender_ack_number(s, &p), HARP_US(100));
}

static void test_posting_is_bounded(void **state) {
  (void)state;
  for (int i = 0; i < HARP_MESSAGES_MAX; i++)
    assert_int_equal(harp_sender_post(s, &st, data, 1, NULL, true, 0), 0);
  assert_int_equal(harp_sender_post(s, &st, data, 1, NULL, true, 0), -EAGAIN);
}

static void test_a_message_is_cut_into_packets(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, &st, data, MESSAGE_BYTES, NULL, true, 0), 0);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS));
  assert_int_equal(run.type, HARP_PACKET_DATA);
  assert_int_equal(run.count, 3);
  assert_int_equal(run.number, FIRST_NUMBER);
  assert_int_equal(run.message, FIRST_MESSAGE);
  assert_int_equal(run.line, FIRST_LINE);
  assert_int_equal(run.lines_per_packet, PACKET_LINES);
  assert_int_equal(run.last_bytes, MESSAGE_BYTES - 2 * PACKET_BYTES);
  assert_int_equal(run.size, MESSAGE_BYTES);
  assert_ptr_equal(run.data, data);
  assert_int_equal(run.flags & HARP_FLAG_ACK_SOON, HARP_FLAG_ACK_SOON);
  assert_int_equal(run.stream, STREAM);
  assert_false(take(&run, HARP_BURST_MAX_PACKETS));
}

static void test_a_superframe_takes_no_more_than_requested(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, &st, data, MESSAGE_BYTES, NULL, true, 0), 0);
  assert_true(take(&run, 2));
  assert_int_equal(run.count, 2);
  assert_int_equal(run.last_bytes, PACKET_BYTES);
  assert_true(take(&run, 2));
  assert_int_equal(run.count, 1);
  assert_int_equal(run.offset, 2 * PACKET_BYTES);
  assert_int_equal(run.line, FIRST_LINE + 2 * PACKET_LINES);
  assert_ptr_equal(run.data, data + 2 * PACKET_BYTES);
}

static void test_an_empty_message_takes_one_line_and_no_bytes(void **state) {
  (void)state;
  struct harp_tx_run run;
  void *cookie;
  assert_int_equal(harp_sender_post(s, &st, NULL, 0, data, true, 0), 0);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS));
  assert_int_equal(run.count, 1);
  assert_int_equal(run.last_bytes, 0);
  assert_false(harp_tx_stream_poll_done(&st, &cookie));
  assert_int_equal(feed(make_ack(STREAM, run.path, FIRST_NUMBER, FIRST_NUMBER + 1, FIRST_MESSAGE)),
                   HARP_DROP_NONE);
  assert_true(harp_tx_stream_poll_done(&st, &cookie));
  assert_ptr_equal(cookie, data);
}

static void test_early_messages_are_small_and_few(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, &st, data, HARP_EARLY_MAX_BYTES + 1, NULL, true, 0), 0);
  assert_false(take(&run, HARP_BURST_MAX_PACKETS)); /* too large without credit */
  assert_int_equal(feed(make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + 1)), HARP_DROP_NONE);
  while (take(&run, HARP_BURST_MAX_PACKETS)) assert_int_equal(run.message, FIRST_MESSAGE);
  for (int i = 0; i < 12; i++) assert_int_equal(harp_sender_post(s, &st, data, 8, NULL, true, 0), 0);
  uint32_t sent = 0;
  for (; take(&run, HARP_BURST_MAX_PACKETS); sent++) {
  }
  assert_int_equal(sent, HARP_EARLY_MESSAGES);
}

static void test_nonsense_is_dropped_and_changes_nothing(void **state) {
  (void)state;
  struct harp_tx_run run;
  void *cookie;
  assert_int_equal(harp_sender_post(s, &st, data, MESSAGE_BYTES, NULL, true, 0), 0);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS));
  uint32_t n = FIRST_NUMBER;
  assert_int_equal(feed(make_ack(STREAM, run.path, n, n + 4, FIRST_MESSAGE)), HARP_DROP_STALE_ACK);
  assert_int_equal(feed(make_ack(STREAM, run.path, n + 1, n, FIRST_MESSAGE)), HARP_DROP_FIELD);
  struct harp_packet credit = make_ack(STREAM, run.path, 0, 0, FIRST_MESSAGE + 9);
  for (uint32_t id = STREAM + 1; id < 0x10000; id += 0x7ffe) { /* streams that are not open */
    credit.ack.credits[0].stream = (uint16_t)id;
    assert_int_equal(feed(credit), HARP_DROP_NONE);
  }
  assert_int_equal(st.posted, FIRST_MESSAGE);
  /* Ranges that reach below zero, where packet numbers are still small. */
  assert_int_equal(feed(make_ack(STREAM, run.path, 0xFFFFFFF0, n + 1, FIRST_MESSAGE)), HARP_DROP_STALE_ACK);
  assert_int_equal(feed(make_ack(STREAM, run.path, 0xFFFFFFF0, 0xFFFFFFF8, FIRST_MESSAGE)),
                   HARP_DROP_STALE_ACK);
  assert_int_equal(feed(make_ack(STREAM, run.path, 0x80000010, n + 1, FIRST_MESSAGE)), HARP_DROP_STALE_ACK);
  assert_int_equal(st.delivered, FIRST_LINE);
  assert_int_equal(s->paths[run.path].inflight_bytes, 3 * (HARP_DATA_HEADER_BYTES + PACKET_BYTES));
  assert_false(harp_tx_stream_poll_done(&st, &cookie));
  /* Numbers below the first: never sent, harmless. */
  assert_int_equal(feed(make_ack(STREAM, run.path, 1, 3, FIRST_MESSAGE)), HARP_DROP_NONE);
  assert_int_equal(s->paths[run.path].inflight_bytes, 3 * (HARP_DATA_HEADER_BYTES + PACKET_BYTES));
}

/* The credit of an earlier stream of the same id may come late: it must not count as this one's. */
static void test_credit_that_no_receiver_can_give_is_ignored(void **state) {
  (void)state;
  assert_int_equal(harp_sender_post(s, &st, data, 100000, NULL, true, 0), 0);
  assert_int_equal(feed(make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + HARP_MESSAGES_MAX + 1)), HARP_DROP_NONE);
  assert_int_equal(st.posted, FIRST_MESSAGE);
  assert_int_equal(feed(make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + HARP_MESSAGES_MAX)), HARP_DROP_NONE);
  assert_int_equal(st.posted, FIRST_MESSAGE + HARP_MESSAGES_MAX);
}

/* A large message that waits for its receive is not under way yet: meanwhile messages that nobody waits for
 * request no acknowledgement each. */
static void test_a_message_without_credit_hurries_no_other(void **state) {
  (void)state;
  enum { LARGE = HARP_EARLY_MAX_BYTES + 1, SMALL = 8 };
  const struct harp_tx_stream_config other = {.id = STREAM - 1, .first_message = FIRST_MESSAGE};
  struct harp_tx_run run;
  harp_sender_open(s, &own_stream, &other);
  assert_int_equal(harp_sender_post(s, &own_stream, data, LARGE, NULL, true, 0), 0);
  assert_int_equal(harp_sender_post(s, &st, data, SMALL, NULL, false, 0), 0);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS));
  assert_int_equal(run.stream, STREAM);
  assert_int_equal(run.flags & HARP_FLAG_ACK_SOON, 0);
  harp_sender_check(s);

  struct harp_packet credit = make_ack(STREAM, run.path, 0, 0, FIRST_MESSAGE + 1);
  credit.ack.credits[0].stream = STREAM - 1;
  assert_int_equal(feed(credit), HARP_DROP_NONE);
  while (take(&run, HARP_BURST_MAX_PACKETS)) assert_int_equal(run.stream, STREAM - 1);
  assert_int_equal(run.flags, HARP_FLAG_ACK_SOON); /* the last of it */
  assert_int_equal(harp_sender_post(s, &st, data, SMALL, NULL, false, 0), 0);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS));
  assert_int_equal(run.flags, HARP_FLAG_ACK_SOON); /* now somebody waits for what is under way */
  harp_sender_check(s);
  harp_sender_close(s, &own_stream);
}

/* All acknowledgements with a stream's credit may have been lost while other streams continued. */
static void test_credit_is_requested_while_others_are_busy(void **state) {
  (void)state;
  const struct harp_tx_stream_config other = {.id = STREAM - 1, .first_message = FIRST_MESSAGE};
  struct harp_tx_run run;
  struct harp_packet last = make_ack(STREAM, 0, 0, 0, 0); /* something is always in flight */
  unsigned requested = 0;
  harp_ns first_ns = 0, now = 0;
  harp_sender_open(s, &own_stream, &other);
  assert_int_equal(harp_sender_post(s, &st, data, 100000, NULL, true, now), 0);
  for (; now <= HARP_MS(20); now += HARP_US(20)) {
    void *cookie;
    while (harp_tx_stream_poll_done(&own_stream, &cookie)) {
    }
    if (own_stream.tail - own_stream.done < 4)
      assert_int_equal(harp_sender_post(s, &own_stream, data, 1000, NULL, true, now), 0);
    harp_sender_on_timeout(s, now);
    while (send_next(s, HARP_BURST_MAX_PACKETS, &run, now)) {
      assert_int_equal(harp_sender_on_ack(s, &last, harp_sender_ack_number(s, &last), now), HARP_DROP_NONE);
      last = make_ack(STREAM, run.path, (uint32_t)run.number, (uint32_t)(run.number + run.count), 0);
      requested += (run.flags & HARP_FLAG_CREDIT) != 0;
      if (requested && !first_ns) first_ns = now;
    }
  }
  assert_true(first_ns && first_ns <= HARP_MS(3));
  assert_in_range(requested, 2, 5);
  harp_sender_close(s, &own_stream);
}

/* Sends what there is at each 100 us of a span; everything is acknowledged after 50 us but the data of
 * STREAM. */
static void refuse_stream(struct harp_sender *own, harp_ns *now, harp_ns span_ns) {
  struct harp_tx_run run;
  for (harp_ns end = *now + span_ns; *now < end; *now += HARP_US(100)) {
    harp_sender_on_timeout(own, *now);
    while (send_next(own, HARP_BURST_MAX_PACKETS, &run, *now)) {
      if (run.type == HARP_PACKET_DATA && run.stream == STREAM) continue;
      struct harp_packet p =
          make_ack(STREAM, run.path, (uint32_t)run.number, (uint32_t)(run.number + run.count), 0);
      p.ack.echo_time = harp_ticks_from_ns(*now);
      *now += HARP_US(50);
      p.ack.time = harp_ticks_from_ns(*now);
      assert_int_equal(harp_sender_on_ack(own, &p, harp_sender_ack_number(own, &p), *now), HARP_DROP_NONE);
    }
  }
}

/* The receiver drops all that comes for a stream, for its content. To the sender that is a path that loses
 * nearly all packets: the window goes to its least. Other streams must not wait for long. */
static void test_a_stream_that_is_refused_holds_up_no_other(void **state) {
  (void)state;
  struct harp_sender_config c = {.first_number = FIRST_NUMBER - 1,
                                 .stream_max = STREAM + 1,
                                 .path_count = 1,
                                 .paths = {{.lines_max = 69}},
                                 .window_bytes = 4 << 20,
                                 .cc = &harp_cc_target};
  const struct harp_tx_stream_config other = {.id = 0, .first_message = FIRST_MESSAGE};
  static struct harp_tx_stream refused;
  struct harp_sender *own = malloc(harp_sender_bytes(&c));
  harp_ns now = HARP_MS(1), longest = 0;
  assert_non_null(own);
  memset(own, 0xa5, harp_sender_bytes(&c));
  harp_sender_init(own, &c, NULL, &counters, now);
  harp_sender_open(own, &refused, &stream);
  harp_sender_open(own, &own_stream, &other);
  bring_up(own, now);
  assert_true(harp_tx_stream_on_credit(&own_stream, FIRST_MESSAGE + 30));
  assert_int_equal(harp_sender_post(own, &refused, data, 9000, NULL, true, now), 0);
  for (unsigned k = 0; k < 20; k++) {
    void *cookie;
    refuse_stream(own, &now, HARP_MS(30) * k);
    assert_int_equal(harp_sender_post(own, &own_stream, data, 100, NULL, true, now), 0);
    harp_ns posted = now;
    while (!harp_tx_stream_poll_done(&own_stream, &cookie)) {
      refuse_stream(own, &now, HARP_US(100));
      assert_true(now < posted + HARP_SEC(2));
    }
    longest = HARP_MAX(longest, now - posted);
  }
  print_message("a message beside a stream that is refused took up to %llu us\n",
                (unsigned long long)longest / 1000);
  assert_true(longest <= HARP_MS(250));
  harp_sender_check(own);
  free(own);
}

static void test_an_old_acknowledgement_takes_nothing_back(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, &st, data, MESSAGE_BYTES, NULL, true, 0), 0);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS));
  assert_int_equal(feed(make_ack(STREAM, run.path, FIRST_NUMBER, FIRST_NUMBER + 2, FIRST_MESSAGE + 3)),
                   HARP_DROP_NONE);
  assert_int_equal(feed(make_ack(STREAM, run.path, FIRST_NUMBER, FIRST_NUMBER + 1, FIRST_MESSAGE + 1)),
                   HARP_DROP_NONE);
  assert_int_equal(st.delivered, FIRST_LINE + 2 * PACKET_LINES);
  assert_int_equal(st.posted, FIRST_MESSAGE + 3);
}

static void test_messages_complete_in_order(void **state) {
  (void)state;
  struct harp_tx_run run;
  void *cookie;
  struct harp_packet acks[3];
  for (int i = 0; i < 3; i++) {
    assert_int_equal(harp_sender_post(s, &st, data, 100, data + i, true, 0), 0);
    assert_true(take(&run, HARP_BURST_MAX_PACKETS));
    acks[i] = make_ack(STREAM, run.path, (uint32_t)run.number, (uint32_t)run.number + 1, FIRST_MESSAGE);
  }
  feed(acks[1]); /* the second arrives first */
  assert_false(harp_tx_stream_poll_done(&st, &cookie));
  feed(acks[0]);
  assert_true(harp_tx_stream_poll_done(&st, &cookie));
  assert_ptr_equal(cookie, data);
  assert_true(harp_tx_stream_poll_done(&st, &cookie));
  assert_ptr_equal(cookie, data + 1);
  assert_false(harp_tx_stream_poll_done(&st, &cookie));
  harp_tx_stream_on_delivered(&st, FIRST_LINE + 3, HARP_US(200)); /* over the control connection */
  assert_true(harp_tx_stream_poll_done(&st, &cookie));
  assert_ptr_equal(cookie, data + 2);
  harp_tx_stream_on_delivered(&st, FIRST_LINE + 1, HARP_US(200)); /* less than is known */
  assert_int_equal(counters.absurd_deliveries, 0);
  harp_tx_stream_on_delivered(&st, FIRST_LINE + 4, HARP_US(200)); /* more than was ever sent */
  harp_tx_stream_on_delivered(&st, FIRST_LINE + (uint32_t)INT32_MAX, HARP_US(200));
  assert_int_equal(counters.absurd_deliveries, 2);
  assert_int_equal(st.delivered, FIRST_LINE + 3);
}

static void test_a_choice_contains_the_size_that_comes(void **state) {
  (void)state;
  static const uint32_t sizes[][2] = {{0, 0}, {300, 300}, {9000, PACKET_BYTES}};
  struct harp_tx_choice choice = harp_sender_choose(s, HARP_US(1));
  struct harp_tx_run run;
  assert_int_equal(choice.kind, HARP_TX_NOTHING);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(sizes); i++) {
    harp_ns now = HARP_US(20) * (i + 1);
    assert_int_equal(harp_sender_post(s, &st, data, sizes[i][0], NULL, true, now), 0);
    choice = harp_sender_choose(s, now);
    if (choice.kind == HARP_TX_NOTHING) choice = harp_sender_choose(s, choice.deadline_ns); /* corked */
    assert_int_equal(choice.kind, HARP_TX_NEW);
    assert_int_equal(choice.bytes, sizes[i][1]);
    harp_sender_take(s, &choice, HARP_BURST_MAX_PACKETS, &run, now);
  }
  choice = harp_sender_choose_more(s, choice.path, HARP_US(100));
  assert_int_equal(choice.kind, HARP_TX_NOTHING);
}

static void test_a_path_that_is_down_moves_its_flight(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, &st, data, MESSAGE_BYTES, NULL, true, 0), 0);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS));
  unsigned first = run.path;
  harp_sender_path_down(s, first, HARP_US(2));
  assert_int_equal(s->paths[first].inflight_bytes, 0);
  assert_int_equal(counters.lost_packets, 3);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS)); /* the probe of the path that is down */
  assert_int_equal(run.type, HARP_PACKET_PROBE);
  assert_int_equal(run.path, first);
  assert_true(take(&run, HARP_BURST_MAX_PACKETS));
  assert_int_equal(run.type, HARP_PACKET_DATA);
  assert_int_not_equal(run.path, first);
  assert_int_equal(run.line, FIRST_LINE);
  assert_int_equal(run.count, 3);
}

/* ---- the window that the peer announces ---- */

enum { COST = HARP_DATA_HEADER_BYTES + 8 * HARP_LINE_BYTES + HARP_WINDOW_PACKET_BYTES };

/* Sends all that may go; returns how much of the window that takes. */
static uint32_t fill(harp_ns now) {
  struct harp_tx_run run;
  while (send_next(s, HARP_BURST_MAX_PACKETS, &run, now)) {
  }
  harp_sender_check(s);
  return s->windows.by_eni[0].inflight_bytes;
}

static enum harp_drop announce(uint32_t window_bytes, uint32_t number, harp_ns now) {
  struct harp_packet p = make_ack(STREAM, 0, 0, 0, 0);
  p.number = number;
  p.ack.credit_count = 0;
  p.ack.window_bytes = window_bytes;
  return harp_sender_on_ack(s, &p, harp_sender_ack_number(s, &p), now);
}

static void test_all_paths_to_an_interface_share_its_window(void **state) {
  (void)state;
  uint32_t window = 100 << 10;
  assert_int_equal(harp_sender_post(s, &st, data, sizeof data, NULL, true, HARP_US(1)), 0);
  assert_int_equal(feed(make_ack(STREAM, 1, 0, 0, FIRST_MESSAGE + 1)), HARP_DROP_NONE);
  assert_int_equal(announce(window, FIRST_NUMBER, HARP_US(2)), HARP_DROP_NONE);
  assert_in_range(fill(HARP_US(3)), window - 2 * COST, window);
  assert_true(s->paths[0].inflight_bytes && s->paths[1].inflight_bytes);
  assert_int_equal(harp_sender_choose(s, HARP_US(4)).kind, HARP_TX_NOTHING);
  /* An acknowledgement that was overtaken changes nothing; a smaller window takes nothing back. */
  assert_int_equal(announce(4 << 20, FIRST_NUMBER - 1, HARP_US(4)), HARP_DROP_NONE);
  assert_in_range(fill(HARP_US(5)), window - 2 * COST, window);
  assert_int_equal(announce(window / 2, FIRST_NUMBER + 1, HARP_US(6)), HARP_DROP_NONE);
  assert_in_range(fill(HARP_US(7)), window - 2 * COST, window);
  assert_int_equal(announce(2 * window, FIRST_NUMBER + 2, HARP_US(8)), HARP_DROP_NONE);
  assert_in_range(fill(HARP_US(9)), 2 * window - 2 * COST, 2 * window);
}

/* Many paths that do not answer must not stop those that do. */
static void test_probes_of_a_path_that_is_down_take_nothing_of_the_window(void **state) {
  (void)state;
  struct harp_path *down = &s->paths[1];
  harp_path_health_down(s, down, HARP_US(1));
  assert_int_equal(fill(HARP_US(2)), 0);
  assert_int_equal(down->flight.tail - down->flight.head, 1);
  assert_int_equal(down->inflight_bytes, HARP_DATA_HEADER_BYTES + HARP_PROBE_PADDING_BYTES);
}

static void test_an_absurd_window_is_bounded_and_counted(void **state) {
  (void)state;
  assert_int_equal(counters.absurd_windows, 0);
  assert_int_equal(harp_sender_post(s, &st, data, sizeof data, NULL, true, HARP_US(1)), 0);
  assert_int_equal(feed(make_ack(STREAM, 1, 0, 0, FIRST_MESSAGE + 1)), HARP_DROP_NONE);
  assert_int_equal(announce(0, FIRST_NUMBER, HARP_US(2)), HARP_DROP_NONE);
  assert_int_equal(counters.absurd_windows, 1);
  assert_in_range(fill(HARP_US(3)), HARP_WINDOW_MIN_BYTES - 2 * COST, HARP_WINDOW_MIN_BYTES);
  assert_int_equal(announce(HARP_WINDOW_UNIT_BYTES * 65535u, FIRST_NUMBER + 1, HARP_US(4)), HARP_DROP_NONE);
  assert_int_equal(counters.absurd_windows, 2);
  assert_int_equal(s->windows.by_eni[0].bytes, HARP_WINDOW_MAX_BYTES);
  /* What acknowledges packets that were never sent announces nothing. */
  struct harp_packet p = make_ack(STREAM, 0, FIRST_NUMBER, FIRST_NUMBER + 100000, FIRST_MESSAGE + 1);
  p.number = FIRST_NUMBER + 2;
  p.ack.window_bytes = 1 << 20;
  assert_int_equal(feed(p), HARP_DROP_STALE_ACK);
  assert_int_equal(s->windows.by_eni[0].bytes, HARP_WINDOW_MAX_BYTES);
}

static void test_absurd_credit_is_ignored_and_counted(void **state) {
  enum { FAR = 1 << 20 };
  (void)state;
  static const uint32_t never[] = {HARP_MESSAGES_MAX + 1, FAR, INT32_MAX, 1u << 31, -FAR, -1};
  static const uint16_t never_open[] = {0, STREAM - 1, STREAM + 1, HARP_STREAMS_MAX, UINT16_MAX};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(never); i++) {
    assert_int_equal(feed(make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + never[i])), HARP_DROP_NONE);
    assert_int_equal(counters.absurd_credits, i + 1);
    assert_int_equal(st.posted, FIRST_MESSAGE);
  }
  counters.absurd_credits = 0;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(never_open); i++) {
    struct harp_packet p = make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + 1);
    p.ack.credits[0].stream = never_open[i];
    assert_int_equal(feed(p), HARP_DROP_NONE);
    assert_int_equal(counters.absurd_credits, i + 1);
  }
}

/* What is told again, was overtaken or is of a stream that has just been closed. */
static void test_late_credit_is_not_absurd(void **state) {
  static const uint32_t posted[] = {0, HARP_MESSAGES_MAX, 1, HARP_MESSAGES_MAX, 0};
  (void)state;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(posted); i++)
    assert_int_equal(feed(make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + posted[i])), HARP_DROP_NONE);
  assert_int_equal(st.posted, FIRST_MESSAGE + HARP_MESSAGES_MAX);
  harp_sender_close(s, &st);
  assert_int_equal(feed(make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE)), HARP_DROP_NONE);
  assert_int_equal(counters.absurd_credits, 0);
}

/* After a while without work the receiver may have given the window to others. */
static void test_a_stale_window_is_not_used(void **state) {
  (void)state;
  harp_ns later = HARP_MS(60);
  assert_int_equal(harp_sender_post(s, &st, data, sizeof data, NULL, true, later), 0);
  harp_tx_stream_on_credit(&st, FIRST_MESSAGE + 1);
  assert_in_range(fill(later), COST, 64 << 10);
  uint32_t low = s->windows.by_eni[0].inflight_bytes;
  assert_int_equal(announce(4 << 20, FIRST_NUMBER, later + HARP_US(10)), HARP_DROP_NONE);
  assert_true(fill(later + HARP_US(20)) > 2 * low);
}

/* A message that waits for credit changes nothing about that. */
static void test_a_stale_window_is_not_used_beside_a_message_that_waits(void **state) {
  (void)state;
  harp_ns later = HARP_MS(60);
  assert_int_equal(harp_sender_post(s, &st, data, sizeof data, NULL, true, 0), 0);
  assert_int_equal(harp_sender_post(s, &st, data, sizeof data, NULL, true, later), 0);
  harp_tx_stream_on_credit(&st, FIRST_MESSAGE + 2);
  assert_in_range(fill(later), COST, HARP_WINDOW_MIN_BYTES);
  assert_int_equal(announce(4 << 20, FIRST_NUMBER, later + HARP_US(10)), HARP_DROP_NONE);
  assert_true(fill(later + HARP_US(20)) > 2 * HARP_WINDOW_MIN_BYTES);
}

/* A request for credit goes on the path that answers, though the probe of another one leaves first. */
static void test_credit_is_requested_on_a_path_that_answers(void **state) {
  (void)state;
  struct harp_tx_run run;
  harp_ns later = HARP_MS(3);
  harp_sender_path_down(s, 0, HARP_US(1));
  assert_int_equal(harp_sender_post(s, &st, data, sizeof data, NULL, true, HARP_US(1)), 0);
  harp_sender_on_timeout(s, later);
  unsigned requests = 0;
  while (send_next(s, HARP_BURST_MAX_PACKETS, &run, later)) {
    assert_int_equal(run.type, HARP_PACKET_PROBE);
    if (!(run.flags & HARP_FLAG_CREDIT)) continue;
    assert_int_equal(run.path, 1);
    requests++;
  }
  assert_int_equal(requests, 1);
}

/* Connections begin with different ENIs, equally often with each, though most of their paths are standby. */
static void test_connections_begin_with_different_paths(void **state) {
  (void)state;
  enum { PRIMARY = 4, PATHS = 16, CONNECTIONS = 64 };
  unsigned chosen[PATHS] = {0};
  struct harp_sender *own = NULL;
  for (uint32_t i = 0; i < CONNECTIONS; i++) {
    struct harp_sender_config c = {.first_number = i,
                                   .stream_max = STREAM + 1,
                                   .path_count = PATHS,
                                   .window_bytes = 4 << 20,
                                   .cc = &harp_cc_target};
    for (unsigned k = 0; k < PATHS; k++)
      c.paths[k] = (struct harp_path_config){.lines_max = 8,
                                             .local_eni = (uint8_t)(k % PRIMARY),
                                             .remote_eni = (uint8_t)(k / PRIMARY + k % PRIMARY) % PRIMARY,
                                             .standby = k >= PRIMARY};
    own = realloc(own, harp_sender_bytes(&c));
    assert_non_null(own);
    harp_sender_init(own, &c, NULL, &counters, 0);
    harp_sender_open(own, &own_stream, &stream);
    bring_up(own, 0);
    assert_int_equal(harp_sender_post(own, &own_stream, data, 8, NULL, true, 0), 0);
    struct harp_tx_choice choice = {.kind = HARP_TX_NOTHING};
    for (harp_ns now = HARP_US(1); choice.kind == HARP_TX_NOTHING && now <= HARP_US(50); now += HARP_US(1))
      choice = harp_sender_choose(own, now);
    assert_int_equal(choice.kind, HARP_TX_NEW);
    chosen[choice.path]++;
  }
  for (unsigned k = 0; k < PATHS; k++) assert_int_equal(chosen[k], k < PRIMARY ? CONNECTIONS / PRIMARY : 0);
  free(own);
}

/* Chooses, every 5 us from *now on, until that is a tail copy; takes what else is chosen. */
static struct harp_tx_choice choose_copy(struct harp_sender *own, harp_ns *now) {
  struct harp_tx_choice choice = {.kind = HARP_TX_NOTHING};
  struct harp_tx_run run;
  for (harp_ns end = *now + HARP_MS(60); *now < end; *now += HARP_US(5)) {
    choice = harp_sender_choose(own, *now);
    if (choice.kind == HARP_TX_TAIL_DUPLICATE) break;
    if (choice.kind != HARP_TX_NOTHING) harp_sender_take(own, &choice, HARP_BURST_MAX_PACKETS, &run, *now);
  }
  return choice;
}

/* Makes a sender with three paths: a message in flight on each of two, and a copy of the first chosen, for
 * which the driver has no frame. *on is the path of the first; *now is when the copy was chosen. */
static struct harp_sender *choose_without_frame(unsigned *on, harp_ns *now) {
  struct harp_sender_config c = {.first_number = FIRST_NUMBER - 1,
                                 .stream_max = STREAM + 1,
                                 .path_count = 3,
                                 .paths = {{.lines_max = 11},
                                           {.lines_max = 11, .local_eni = 1, .remote_eni = 1},
                                           {.lines_max = 11, .local_eni = 2, .remote_eni = 2}},
                                 .window_bytes = 4 << 20,
                                 .cc = &harp_cc_target};
  struct harp_packet credit = make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + 50);
  struct harp_tx_run run;
  struct harp_sender *own = malloc(harp_sender_bytes(&c));
  assert_non_null(own);
  memset(own, 0xa5, harp_sender_bytes(&c));
  harp_sender_init(own, &c, NULL, &counters, 0);
  harp_sender_open(own, &own_stream, &stream);
  bring_up(own, *now);
  assert_int_equal(harp_sender_post(own, &own_stream, data, 1408, NULL, true, *now), 0);
  harp_sender_on_ack(own, &credit, harp_sender_ack_number(own, &credit), *now);
  assert_true(send_next(own, HARP_BURST_MAX_PACKETS, &run, *now));
  *on = run.path;
  assert_int_equal(harp_sender_post(own, &own_stream, data, 1408, NULL, true, *now), 0);
  while (!send_next(own, HARP_BURST_MAX_PACKETS, &run, *now)) *now += HARP_US(1);
  assert_int_equal(choose_copy(own, now).line, FIRST_LINE);
  return own;
}

static void test_a_copy_that_found_no_frame_is_chosen_again(void **state) {
  (void)state;
  harp_ns now = HARP_MS(1);
  unsigned first;
  struct harp_sender *own = choose_without_frame(&first, &now);
  struct harp_tx_choice choice = choose_copy(own, &now);
  assert_int_equal(choice.kind, HARP_TX_TAIL_DUPLICATE);
  assert_int_equal(choice.line, FIRST_LINE);
  harp_sender_check(own);
  free(own);
}

/* What was to be copied arrives meanwhile, and a probe timeout falls due. */
static void test_a_copy_that_found_no_frame_is_forgotten(void **state) {
  (void)state;
  harp_ns now = HARP_MS(1);
  unsigned first;
  struct harp_sender *own = choose_without_frame(&first, &now);
  struct harp_tx_run run;
  now += HARP_MS(30);
  struct harp_packet late =
      make_ack(STREAM, (uint8_t)first, FIRST_NUMBER, FIRST_NUMBER + 1, FIRST_MESSAGE + 50);
  assert_int_equal(harp_sender_on_ack(own, &late, harp_sender_ack_number(own, &late), now), HARP_DROP_NONE);
  harp_sender_on_timeout(own, now);
  for (unsigned sent = 0; sent < 8 && send_next(own, HARP_BURST_MAX_PACKETS, &run, now); sent++)
    assert_false(harp_seq_before(run.line, FIRST_LINE + 11) && run.type == HARP_PACKET_DATA);
  harp_sender_check(own);
  free(own);
}

/* Connections are many: their memory hardly grows with their paths. */
static void test_memory_is_bounded_with_many_paths(void **state) {
  (void)state;
  struct harp_sender_config c = {.path_count = 1, .stream_max = 1};
  struct harp_receiver_config rc = {.path_count = 1, .stream_max = 1};
  assert_true(harp_sender_bytes(&c) <= 72 * 1024);
  assert_true(harp_receiver_bytes(&rc) <= 2 * 1024);
  for (c.path_count = rc.path_count = 2; c.path_count <= 16; rc.path_count = ++c.path_count)
    assert_true(harp_sender_bytes(&c) <= 160 * 1024 && harp_receiver_bytes(&rc) <= 16 * 1024);
  assert_true(sizeof(struct harp_tx_stream) <= 40 * 1024 && sizeof(struct harp_rx_stream) <= 32 * 1024);
  for (unsigned i = 8; i < HARP_PATHS_MAX; i++) c.paths[i].standby = true; /* 8 ENIs meet 8 */
  c.path_count = HARP_PATHS_MAX;
  assert_true(harp_sender_bytes(&c) <= 416 * 1024);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_is_bounded_with_many_paths),
      cmocka_unit_test_setup_teardown(test_connections_begin_with_different_paths, init, fini),
      cmocka_unit_test_setup_teardown(test_a_copy_that_found_no_frame_is_chosen_again, init, fini),
      cmocka_unit_test_setup_teardown(test_a_copy_that_found_no_frame_is_forgotten, init, fini),
      cmocka_unit_test_setup_teardown(test_posting_is_bounded, init, fini),
      cmocka_unit_test_setup_teardown(test_a_message_is_cut_into_packets, init, fini),
      cmocka_unit_test_setup_teardown(test_a_superframe_takes_no_more_than_requested, init, fini),
      cmocka_unit_test_setup_teardown(test_an_empty_message_takes_one_line_and_no_bytes, init, fini),
      cmocka_unit_test_setup_teardown(test_early_messages_are_small_and_few, init, fini),
      cmocka_unit_test_setup_teardown(test_nonsense_is_dropped_and_changes_nothing, init, fini),
      cmocka_unit_test_setup_teardown(test_an_old_acknowledgement_takes_nothing_back, init, fini),
      cmocka_unit_test_setup_teardown(test_credit_that_no_receiver_can_give_is_ignored, init, fini),
      cmocka_unit_test_setup_teardown(test_a_message_without_credit_hurries_no_other, init, fini),
      cmocka_unit_test_setup_teardown(test_credit_is_requested_while_others_are_busy, init, fini),
      cmocka_unit_test_setup_teardown(test_a_stream_that_is_refused_holds_up_no_other, init, fini),
      cmocka_unit_test_setup_teardown(test_messages_complete_in_order, init, fini),
      cmocka_unit_test_setup_teardown(test_a_choice_contains_the_size_that_comes, init, fini),
      cmocka_unit_test_setup_teardown(test_a_path_that_is_down_moves_its_flight, init, fini),
      cmocka_unit_test_setup_teardown(test_all_paths_to_an_interface_share_its_window, init, fini),
      cmocka_unit_test_setup_teardown(test_probes_of_a_path_that_is_down_take_nothing_of_the_window, init,
                                      fini),
      cmocka_unit_test_setup_teardown(test_an_absurd_window_is_bounded_and_counted, init, fini),
      cmocka_unit_test_setup_teardown(test_absurd_credit_is_ignored_and_counted, init, fini),
      cmocka_unit_test_setup_teardown(test_late_credit_is_not_absurd, init, fini),
      cmocka_unit_test_setup_teardown(test_a_stale_window_is_not_used, init, fini),
      cmocka_unit_test_setup_teardown(test_credit_is_requested_on_a_path_that_answers, init, fini),
      cmocka_unit_test_setup_teardown(test_a_stale_window_is_not_used_beside_a_message_that_waits, init,
                                      fini),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
