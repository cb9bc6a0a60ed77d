/* SPDX-License-Identifier: Apache-2.0 */
/* A tcp path beside one of datagrams, from the sender's side: what takes which, and what happens when it
 * takes nothing, stops, or is given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/bring_up.h"
#include "wire/record.h"

enum { UDP, FIRST = UDP, TCP, PATHS, NUMBER = 5, STREAM = 0, CREDIT_MESSAGES = 8, PACKET_LINES = 11 };
enum { LARGE = 1 << 20, MEDIUM = LARGE / 4, SMALL = 1000, WINDOW_BYTES = 4 * LARGE, PASSES_MAX = 1000 };
#define RTT_NS           HARP_US(50)
#define STEP_NS          HARP_MS(1)
#define PROBE_STEP_NS    HARP_MS(20)   /* a path that is not UP would be probed once in so long */
#define PROBING_NS       HARP_MS(100)  /* several probes of a path that does not answer */
#define PROGRESS_NS      HARP_MS(200)  /* progress without an acknowledgement, until the path is probed */
#define HANDSHAKE_MAX_NS HARP_MS(300)  /* a connection that does not stand then has no time left */
#define SILENCE_MAX_NS   HARP_MS(80)   /* the silence after which connections replace datagrams */
#define REST_NS          HARP_SEC(120) /* without a large message: the path needs no connection */
#define PAUSE_NS         HARP_SEC(1)   /* nothing is in flight for so long, or nobody answers */
#define SLOW_NS          HARP_SEC(2)   /* what a slow connection takes for a message */
#define UNSEEN_NS        HARP_MS(50)   /* a timeout passes, and nobody looks */
#define CORK_PASSED_NS   HARP_US(20)   /* small messages wait no longer */
#define GIVE_UP_MIN_NS   HARP_MS(10)   /* a path that makes no progress */
#define GIVE_UP_MAX_NS   HARP_MS(100)
#define LATE_MAX_NS      HARP_MS(600) /* the same with one that answered late */
static struct harp_sender *s;
static struct harp_tx_stream st;
static struct harp_counters counters;
static uint8_t data[LARGE];
static harp_ns now;

static int init_with(bool has_udp) {
  struct harp_sender_config c = {
      .first_number = NUMBER,
      .stream_max = 1,
      .path_count = PATHS,
      .paths = {{.lines_max = has_udp ? PACKET_LINES : HARP_RECORD_MAX_LINES, .is_tcp = !has_udp},
                {.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true}},
      .window_bytes = WINDOW_BYTES,
      .cc = &harp_cc_target,
  };
  static const struct harp_tx_stream_config stream = {.id = STREAM};
  s = malloc(harp_sender_bytes(&c));
  assert_non_null(s);
  memset(&counters, 0, sizeof counters);
  now = HARP_MS(1);
  harp_sender_init(s, &c, NULL, &counters, now);
  harp_sender_open(s, &st, &stream);
  return 0;
}

static int init(void **state) {
  (void)state;
  return init_with(true);
}

/* Two tcp paths between the same ENIs, of which the second is dormant. */
static int init_alone(void **state) {
  (void)state;
  return init_with(false);
}

static int fini(void **state) {
  (void)state;
  harp_sender_check(s);
  free(s);
  return 0;
}

/* Takes what goes out next; false: nothing does. */
static bool take(struct harp_tx_run *run) {
  harp_sender_on_timeout(s, now);
  struct harp_tx_choice c = harp_sender_choose(s, now);
  if (c.kind == HARP_TX_NOTHING) {
    assert_true(c.deadline_ns > now); /* or its caller would never sleep */
    return false;
  }
  harp_sender_take(s, &c, HARP_BURST_MAX_PACKETS, run, now);
  harp_sender_check(s);
  return true;
}

static void acknowledge_after(harp_ns rtt_ns, unsigned path, uint64_t end) {
  struct harp_packet p = {.type = HARP_PACKET_ACK, .path = (uint8_t)path};
  p.ack.window_bytes = HARP_WINDOW_MAX_BYTES;
  p.ack.echo_time = harp_ticks_from_ns(now - rtt_ns);
  p.ack.credit_count = 1;
  p.ack.credits[0] = (struct harp_credit){STREAM, CREDIT_MESSAGES};
  p.ack.range_count = 1;
  p.ack.ranges[0].begin = NUMBER;
  p.ack.ranges[0].end = (uint32_t)end;
  assert_int_equal(harp_sender_on_ack(s, &p, harp_sender_ack_number(s, &p), now), HARP_DROP_NONE);
}

static void acknowledge(unsigned path, uint64_t end) {
  acknowledge_after(RTT_NS, path, end);
}

/* Answers what is sent on a path, while nothing else is. */
static void answer_after(harp_ns rtt_ns, unsigned path) {
  struct harp_tx_run run;
  assert_true(take(&run));
  assert_int_equal(run.path, path);
  assert_int_equal(run.type, HARP_PACKET_PROBE);
  now += rtt_ns;
  acknowledge_after(rtt_ns, path, run.number + 1);
}

static void answer(unsigned path) {
  answer_after(RTT_NS, path);
}

static void bring_both_up_after(harp_ns tcp_rtt_ns) {
  answer(UDP);
  harp_path_pairs_on_large(s, now);
  harp_sender_unblock(s, TCP, now);
  answer_after(tcp_rtt_ns, TCP);
  assert_true(harp_sender_is_up(s, TCP));
}

static void bring_both_up(void) {
  bring_both_up_after(RTT_NS);
}

static void post(uint32_t bytes) {
  assert_int_equal(harp_sender_post(s, &st, data, bytes, NULL, true, now), 0);
}

static void test_one_that_is_not_connected_takes_nothing(void **state) {
  (void)state;
  enum { TRIES = 20 };
  struct harp_tx_run run;
  answer(UDP);
  for (unsigned i = 0; i < TRIES; i++, now += PROBE_STEP_NS) assert_false(take(&run)); /* no probe either */
  post(MEDIUM);
  assert_true(take(&run));
  assert_int_equal(run.path, UDP);
}

/* Messages that datagrams carry need no connection. The first large one goes by datagrams, too. */
static void test_it_is_of_use_from_the_first_large_message_on(void **state) {
  (void)state;
  struct harp_tx_run run;
  answer(UDP);
  assert_true(harp_sender_is_dormant(s, TCP));
  post(HARP_SMALL_MAX_BYTES);
  assert_true(take(&run));
  assert_true(harp_sender_is_dormant(s, TCP));
  post(HARP_SMALL_MAX_BYTES + 1);
  assert_false(harp_sender_is_dormant(s, TCP)); /* its connection is to be opened */
  assert_true(take(&run));
  assert_int_equal(run.path, UDP);
  harp_sender_unblock(s, TCP, now);
  do assert_true(take(&run));
  while (run.path == UDP);
  assert_int_equal(run.type, HARP_PACKET_PROBE);
}

/* Takes what goes out next beside probes of what was idle meanwhile, over a path. */
static struct harp_tx_run take_data(unsigned path) {
  struct harp_tx_run run;
  do assert_true(take(&run));
  while (run.type == HARP_PACKET_PROBE);
  assert_int_equal(run.path, path);
  return run;
}

static void finish_message(unsigned path) {
  void *cookie;
  post(MEDIUM);
  struct harp_tx_run run = take_data(path);
  acknowledge(path, run.number + run.count);
  assert_true(harp_tx_stream_poll_done(&st, &cookie));
}

static void test_it_is_of_no_use_after_long_without_a_large_message(void **state) {
  (void)state;
  bring_both_up();
  finish_message(TCP);
  now += REST_NS - 1;
  assert_false(harp_sender_rest(s, now));
  assert_true(harp_sender_is_up(s, TCP));
  now++;
  assert_true(harp_sender_rest(s, now));
  assert_true(harp_sender_is_dormant(s, TCP));
  harp_sender_block(s, TCP, now); /* its connection is closed */
  assert_false(harp_sender_rest(s, now));
  post(MEDIUM);
  assert_false(harp_sender_is_dormant(s, TCP));
}

/* Nothing else would take their place. */
static void test_it_stays_of_use_where_datagrams_are_down(void **state) {
  (void)state;
  bring_both_up();
  finish_message(TCP);
  harp_sender_path_down(s, UDP, now);
  now += REST_NS;
  assert_false(harp_sender_rest(s, now));
  assert_true(harp_sender_is_up(s, TCP));
}

/* Passes time, in which datagrams go and are not answered, until the connection of the tcp path is to be
 * opened. */
static void wait_for_need(harp_ns most_ns) {
  struct harp_tx_run run;
  for (harp_ns since = now; harp_sender_is_dormant(s, TCP); now += STEP_NS) {
    while (take(&run)) assert_int_equal(run.path, UDP);
    assert_true(now - since < most_ns);
  }
}

/* A small message, which nothing takes to the peer. */
static void test_silence_of_the_datagrams_has_it_connected(void **state) {
  (void)state;
  struct harp_tx_run run;
  answer(UDP);
  post(SMALL);
  harp_ns since = now;
  wait_for_need(SILENCE_MAX_NS);
  harp_sender_unblock(s, TCP, now);
  answer(TCP);
  do {
    assert_true(now - since < GIVE_UP_MAX_NS);
    now += STEP_NS;
    while (take(&run) && run.path == UDP) {
    }
  } while (run.path != TCP || run.type != HARP_PACKET_DATA);
}

/* Nothing waits for it: idle peers are silent, too, while their hosts lack a core. */
static void test_silence_while_nothing_is_under_way_has_it_rest(void **state) {
  (void)state;
  struct harp_tx_run run;
  answer(UDP);
  harp_sender_keepalive(s, 0, now);
  for (harp_ns end = now + HARP_SEC(2); now < end; now += STEP_NS) {
    while (take(&run)) assert_int_equal(run.path, UDP);
    assert_true(harp_sender_is_dormant(s, TCP));
  }
  post(SMALL);
  wait_for_need(HARP_SEC(1));
}

/* One that took the place of datagrams is of no use when these answer again. */
static void test_it_rests_when_datagrams_answer_again(void **state) {
  (void)state;
  struct harp_tx_run run;
  uint64_t last = 0;
  void *cookie;
  answer(UDP);
  post(SMALL);
  for (; harp_sender_is_dormant(s, TCP); now += STEP_NS)
    while (take(&run)) last = run.number + run.count;
  for (harp_ns since = now; !harp_tx_stream_poll_done(&st, &cookie); now += STEP_NS) {
    assert_true(now - since < HARP_SEC(1));
    acknowledge(UDP, last);
    while (take(&run)) last = run.number + HARP_MAX(run.count, 1u);
  }
  assert_true(harp_sender_rest(s, now));
  assert_true(harp_sender_is_dormant(s, TCP));
}

static void test_datagrams_that_never_answered_have_it_connected(void **state) {
  (void)state;
  wait_for_need(HARP_SEC(1));
}

static void test_it_carries_nothing_before_it_has_answered(void **state) {
  (void)state;
  struct harp_tx_run run;
  answer(UDP);
  harp_path_pairs_on_large(s, now);
  harp_sender_unblock(s, TCP, now);
  assert_true(take(&run));
  assert_int_equal(run.path, TCP);
  assert_int_equal(run.type, HARP_PACKET_PROBE);
  assert_int_equal(run.last_bytes, 0);
  post(MEDIUM);
  assert_true(take(&run));
  assert_int_equal(run.path, UDP);
}

static void test_large_messages_take_it_in_large_records(void **state) {
  (void)state;
  struct harp_tx_run run;
  bring_both_up();
  post(LARGE);
  for (unsigned i = 0; i < LARGE / HARP_RECORD_MAX_BYTES; i++) {
    assert_true(take(&run));
    assert_int_equal(run.path, TCP);
    assert_int_equal(run.count, 1);
    assert_int_equal(run.last_bytes, HARP_RECORD_MAX_BYTES);
    assert_int_equal(run.offset, i * HARP_RECORD_MAX_BYTES);
  }
  assert_false(take(&run));
  acknowledge(TCP, run.number + 1);
  void *cookie;
  assert_true(harp_tx_stream_poll_done(&st, &cookie));
}

static void test_small_messages_do_not(void **state) {
  (void)state;
  struct harp_tx_run run;
  bring_both_up();
  post(HARP_SMALL_MAX_BYTES);
  assert_true(take(&run));
  assert_int_equal(run.path, UDP);
}

/* Sends all that may go, answers what goes over UDP, and notes on which path each message began. */
static void send_all(unsigned path_of[HARP_MESSAGES_MAX]) {
  struct harp_tx_run run;
  for (; take(&run); now += CORK_PASSED_NS) {
    if (!run.offset) path_of[run.message] = run.path;
    if (run.path == UDP) acknowledge(UDP, run.number + run.count);
  }
}

static void test_while_messages_queue_larger_ones_do_not(void **state) {
  (void)state;
  enum { QUEUED = HARP_SMALL_QUEUED_MAX_BYTES, LONELY = 32 };
  unsigned path_of[HARP_MESSAGES_MAX];
  bring_both_up();
  for (unsigned i = 0; i < 3; i++) post(QUEUED);
  post(QUEUED + 1);
  send_all(path_of);
  assert_int_equal(path_of[0], TCP); /* found no other */
  assert_int_equal(path_of[1], UDP);
  assert_int_equal(path_of[2], UDP);
  assert_int_equal(path_of[3], TCP);
  acknowledge(TCP, NUMBER + 3); /* a probe and two messages */
  for (unsigned i = 4; i < 4 + LONELY; i++) {
    assert_true(harp_tx_stream_on_credit(&st, CREDIT_MESSAGES + i));
    post(QUEUED);
    send_all(path_of);
    assert_int_equal(path_of[i], i < 3 + LONELY ? UDP : TCP);
  }
}

/* Also where each is sent at once: the sender is the slower side. */
static void test_messages_under_way_are_a_queue(void **state) {
  (void)state;
  enum { FEW = 6 };
  unsigned path_of[HARP_MESSAGES_MAX];
  bring_both_up();
  for (unsigned i = 0; i < CREDIT_MESSAGES; i++) {
    post(HARP_SMALL_QUEUED_MAX_BYTES);
    send_all(path_of);
    assert_int_equal(path_of[i], i < FEW ? TCP : UDP);
  }
}

/* What the kernel shows decides nothing: it makes an experiment due, where there is another carrier. */
static void test_trouble_is_news_where_there_is_a_choice(void **state) {
  (void)state;
  struct harp_tx_run run;
  bring_both_up();
  assert_true(harp_sender_on_trouble(s, now));
  assert_int_equal(s->experiments.carrier.next_ns, now);
  assert_false(harp_sender_on_trouble(s, now)); /* the same one */
  post(MEDIUM);
  assert_true(take(&run));
  assert_int_equal(run.path, TCP);
  now += HARP_EXPERIMENTS_CALM_NS;
  assert_true(harp_sender_on_trouble(s, now));
  now += HARP_EXPERIMENTS_CALM_NS;
  harp_sender_path_down(s, UDP, now);
  assert_false(harp_sender_on_trouble(s, now)); /* TCP alone */
}

static void test_datagrams_alone_carry_all_and_so_does_tcp(void **state) {
  (void)state;
  struct harp_tx_run run;
  bring_both_up();
  harp_sender_path_down(s, UDP, now);
  assert_true(take(&run)); /* its probe */
  assert_int_equal(run.path, UDP);
  post(SMALL);
  assert_true(take(&run));
  assert_int_equal(run.path, TCP);
  harp_sender_block(s, TCP, now);
  harp_sender_path_down(s, TCP, now);
  assert_int_equal(harp_sender_inflight_bytes(s, TCP), 0);
}

static void test_what_is_blocked_is_waited_for(void **state) {
  (void)state;
  struct harp_tx_run run;
  bring_both_up();
  harp_sender_block(s, TCP, now);
  post(LARGE);
  assert_false(take(&run));
  harp_sender_unblock(s, TCP, now);
  assert_true(take(&run));
  assert_int_equal(run.path, TCP);
}

/* Answers what goes over UDP, for a millisecond. What is in flight on TCP is not repeated there. */
static void pass_once(void) {
  struct harp_tx_run run;
  harp_sender_on_timeout(s, now);
  if (harp_sender_is_down(s, TCP)) harp_sender_block(s, TCP, now); /* its connection is closed at once */
  while (take(&run)) {
    if (run.path == UDP)
      acknowledge(UDP, run.number + run.count);
    else
      assert_int_equal(run.type, HARP_PACKET_PROBE);
  }
  now += STEP_NS;
}

/* Passes time in steps, and answers what goes over UDP; returns when the tcp path went DOWN, 0: it did
 * not. */
static harp_ns pass(harp_ns span_ns, bool progress) {
  for (harp_ns end = now + span_ns; now < end;) {
    pass_once();
    if (progress) harp_sender_on_progress(s, TCP, now);
    if (harp_sender_is_down(s, TCP)) return now;
  }
  return 0;
}

/* Sees the tcp path go DOWN, and the message done over the other. */
static void see_it_given_up(harp_ns most_ns) {
  harp_ns since = now, down = pass(PAUSE_NS, false);
  assert_in_range(down - since, GIVE_UP_MIN_NS, most_ns);
  void *cookie;
  bool done = false;
  for (unsigned i = 0; i < PASSES_MAX && !(done = harp_tx_stream_poll_done(&st, &cookie)); i++) pass_once();
  assert_true(done);
}

/* Whether it takes something more or not. */
static void stop_and_give_up(bool blocked, harp_ns most_ns) {
  post(MEDIUM);
  take_data(TCP);
  if (blocked) harp_sender_block(s, TCP, now);
  see_it_given_up(most_ns);
  assert_int_equal(harp_sender_inflight_bytes(s, TCP), 0);
}

static void test_one_that_stops_is_given_up_to_the_other(void **state) {
  (void)state;
  bring_both_up();
  stop_and_give_up(false, GIVE_UP_MAX_NS);
}

static void test_so_is_one_that_is_blocked(void **state) {
  (void)state;
  bring_both_up();
  stop_and_give_up(true, GIVE_UP_MAX_NS);
}

/* The kernel has repeated what was lost: that took long, and says nothing of the network. */
static void test_so_is_one_that_answered_late(void **state) {
  (void)state;
  bring_both_up_after(SLOW_NS);
  stop_and_give_up(false, LATE_MAX_NS);
}

static void test_so_is_one_that_answered_late_and_is_blocked(void **state) {
  (void)state;
  bring_both_up_after(SLOW_NS);
  stop_and_give_up(true, LATE_MAX_NS);
}

/* Nothing of ours is in flight on it: acknowledgements are what it does not take. */
static void test_so_is_one_that_is_blocked_by_acknowledgements(void **state) {
  (void)state;
  bring_both_up();
  now += PAUSE_NS;
  harp_sender_block(s, TCP, now);
  post(MEDIUM);
  see_it_given_up(GIVE_UP_MAX_NS);
}

static void test_one_that_takes_acknowledgements_slowly_is_not(void **state) {
  (void)state;
  bring_both_up();
  harp_sender_block(s, TCP, now);
  post(MEDIUM);
  assert_int_equal(pass(SLOW_NS, true), 0);
  now += UNSEEN_NS; /* the timeout has passed once, and nobody has looked */
  harp_sender_on_timeout(s, now);
  harp_sender_unblock(s, TCP, now);
  take_data(TCP);
}

static void test_one_that_is_slow_is_not(void **state) {
  (void)state;
  struct harp_tx_run run;
  bring_both_up();
  post(MEDIUM);
  assert_true(take(&run));
  assert_int_equal(pass(SLOW_NS, true), 0);
  acknowledge(TCP, run.number + 1);
  void *cookie;
  assert_true(harp_tx_stream_poll_done(&st, &cookie));
}

static void test_it_comes_back_with_another_connection(void **state) {
  (void)state;
  bring_both_up();
  harp_sender_block(s, TCP, now);
  harp_sender_path_down(s, TCP, now);
  now += PAUSE_NS;
  harp_sender_unblock(s, TCP, now);
  answer(TCP);
  post(MEDIUM);
  take_data(TCP);
}

/* An acknowledgement may come by another path when its connection is gone. */
static void test_what_went_over_an_old_connection_proves_nothing(void **state) {
  (void)state;
  struct harp_tx_run run;
  bring_both_up();
  harp_sender_block(s, TCP, now);
  harp_sender_path_down(s, TCP, now);
  now += PAUSE_NS;
  harp_sender_unblock(s, TCP, now);
  assert_true(take(&run));
  assert_int_equal(run.path, TCP);
  harp_sender_block(s, TCP, now);
  harp_sender_path_down(s, TCP, now);
  acknowledge(TCP, run.number + 1);
  assert_false(harp_sender_is_up(s, TCP));
}

/* What goes on may be the other direction, and the acknowledgement was lost on its way. */
static void test_one_that_goes_on_without_an_acknowledgement_is_probed(void **state) {
  (void)state;
  struct harp_tx_run run = {.path = UDP};
  bring_both_up();
  post(MEDIUM);
  assert_true(take(&run));
  assert_int_equal(run.path, TCP);
  run.path = UDP;
  for (harp_ns end = now + PROGRESS_NS; now < end && run.path != TCP; now += STEP_NS) {
    harp_sender_on_progress(s, TCP, now);
    while (take(&run) && run.path != TCP) acknowledge(UDP, run.number + run.count);
  }
  assert_int_equal(run.path, TCP);
  assert_int_equal(run.type, HARP_PACKET_PROBE);
}

/* Small messages wait for others, but not on a tcp path. */
static void test_it_does_not_wait_for_what_holds_back_datagrams(void **state) {
  (void)state;
  struct harp_tx_run run;
  bring_both_up();
  do post(SMALL);
  while (take(&run));
  assert_int_not_equal(s->cork.until_ns, HARP_NEVER);
  harp_sender_path_down(s, UDP, now);
  do assert_true(take(&run)); /* its probe, then what was in flight */
  while (s->load.resend_lines);
  assert_int_equal(run.path, TCP);
  harp_sender_block(s, TCP, now);
  now += CORK_PASSED_NS;
  assert_false(take(&run)); /* it checks that there is a deadline */
}

/* Passes time, and answers nothing; returns whether a path sent something. */
static bool sends(unsigned path, harp_ns span_ns) {
  struct harp_tx_run run;
  bool sent = false;
  for (harp_ns end = now + span_ns; now < end; now += STEP_NS)
    while (take(&run)) sent |= run.path == path;
  return sent;
}

static void test_one_that_is_dormant_takes_the_place_of_one_that_does_not_connect(void **state) {
  (void)state;
  harp_sender_unblock(s, TCP, now);
  assert_true(harp_sender_is_dormant(s, TCP));
  post(MEDIUM);
  assert_false(sends(TCP, PROBING_NS)); /* a handshake may take so long */
  assert_true(sends(TCP, HANDSHAKE_MAX_NS));
}

static void test_where_none_connects_nothing_goes_on(void **state) {
  (void)state;
  post(MEDIUM);
  assert_false(sends(FIRST, PROBING_NS));
  assert_int_not_equal(harp_sender_stalled_since_ns(s), 0);
}

int main(void) {
#define A(test) cmocka_unit_test_setup_teardown(test, init_alone, fini)
#define T(test) cmocka_unit_test_setup_teardown(test, init, fini)
  const struct CMUnitTest tests[] = {
      T(test_one_that_is_not_connected_takes_nothing),
      T(test_it_is_of_use_from_the_first_large_message_on),
      T(test_it_is_of_no_use_after_long_without_a_large_message),
      T(test_it_stays_of_use_where_datagrams_are_down),
      T(test_silence_of_the_datagrams_has_it_connected),
      T(test_silence_while_nothing_is_under_way_has_it_rest),
      T(test_it_rests_when_datagrams_answer_again),
      T(test_datagrams_that_never_answered_have_it_connected),
      T(test_it_carries_nothing_before_it_has_answered),
      T(test_large_messages_take_it_in_large_records),
      T(test_small_messages_do_not),
      T(test_while_messages_queue_larger_ones_do_not),
      T(test_messages_under_way_are_a_queue),
      T(test_trouble_is_news_where_there_is_a_choice),
      T(test_datagrams_alone_carry_all_and_so_does_tcp),
      T(test_what_is_blocked_is_waited_for),
      T(test_one_that_stops_is_given_up_to_the_other),
      T(test_so_is_one_that_is_blocked),
      T(test_so_is_one_that_answered_late),
      T(test_so_is_one_that_answered_late_and_is_blocked),
      T(test_so_is_one_that_is_blocked_by_acknowledgements),
      T(test_one_that_takes_acknowledgements_slowly_is_not),
      T(test_one_that_is_slow_is_not),
      T(test_it_comes_back_with_another_connection),
      T(test_what_went_over_an_old_connection_proves_nothing),
      T(test_one_that_goes_on_without_an_acknowledgement_is_probed),
      T(test_it_does_not_wait_for_what_holds_back_datagrams),
      A(test_one_that_is_dormant_takes_the_place_of_one_that_does_not_connect),
      A(test_where_none_connects_nothing_goes_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
