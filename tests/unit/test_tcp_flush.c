/* SPDX-License-Identifier: Apache-2.0 */
/* A record that waits for the kernel: what is sent of its payload, and when no more of it may be; and the end
 * of its connection. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/tcp_path.h"
#include "lib/addresses.h"

enum { UDP, TCP, PATHS, NUMBER = 5, BYTES = 512 << 10 };
static struct harp_engine *engine;
static struct harp_peer *peer;
static struct harp_tcp_path *p;
static struct harp_tx_stream st;
static struct harp_counters counters;
static uint8_t data[BYTES], received[BYTES];
static int other; /* the peer's end of the connection */
static harp_ns now;

static void make_sender(void) {
  static const struct harp_sender_config c = {
      .first_number = NUMBER,
      .stream_max = 1,
      .path_count = PATHS,
      .paths = {{.lines_max = 11}, {.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true}},
      .window_bytes = 4 << 20,
      .cc = &harp_cc_target,
  };
  static const struct harp_receiver_config rc = {
      .first_number = NUMBER, .path_count = PATHS, .stream_max = 1};
  static const struct harp_tx_stream_config stream = {.id = 0};
  static const struct harp_session_keys keys = {.tx_token = 1, .rx_token = 2};
  struct harp_sender *s = malloc(harp_sender_bytes(&c));
  struct harp_receiver *r = malloc(harp_receiver_bytes(&rc));
  assert_true(s && r);
  harp_sender_init(s, &c, NULL, &counters, now);
  harp_sender_open(s, &st, &stream);
  harp_receiver_init(r, &rc, NULL, &counters);
  harp_session_init(&peer->session, &keys, s, r);
}

static void make_connection(const int fds[2]) {
  p->peer = peer;
  p->path = TCP;
  p->fd = fds[0];
  p->retry_ns = p->report_ns = HARP_NEVER;
  other = fds[1];
  engine->tcp->open_count = 1;
  harp_sender_unblock(peer->session.sender, TCP, now);
}

static void make(const int fds[2]) {
  now = HARP_MS(1);
  engine = calloc(1, sizeof *engine);
  peer = calloc(1, sizeof *peer);
  p = calloc(1, sizeof *p);
  assert_true(engine && peer && p);
  engine->tcp = calloc(1, sizeof *engine->tcp);
  assert_non_null(engine->tcp);
  engine->tcp->fd = epoll_create1(EPOLL_CLOEXEC);
  peer->engine = engine;
  harp_log_limit_init(&peer->log, &counters.log_left_out);
  peer->tcp = p;
  peer->tcp_count = 1;
  make_sender();
  make_connection(fds);
}

static int init(void **state) {
  int fds[2];
  (void)state;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  make(fds);
  return 0;
}

/* The same with a TCP connection, whose payload goes without a copy. */
static int init_uncopied(void **state) {
  struct sockaddr_storage to = address("127.0.0.1", 0);
  const struct harp_tcp_options options = {.local = &to, .timeout_ns = HARP_SEC(60)};
  int fds[2], listener = socket(AF_INET, SOCK_STREAM, 0);
  socklen_t bytes = sizeof to;
  (void)state;
  fds[0] = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&to, harp_address_bytes(&to)), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&to, &bytes), 0);
  assert_int_equal(connect(fds[0], (struct sockaddr *)&to, bytes), 0);
  fds[1] = accept(listener, NULL, NULL);
  assert_true(fds[0] >= 0 && fds[1] >= 0);
  close(listener);
  harp_tcp_socket_set_options(fds[0], &options);
  assert_int_equal(harp_tcp_socket_allow_zerocopy(fds[0]), 0);
  make(fds);
  p->can_reference = true;
  engine->instance.zerocopy = HARP_ZEROCOPY_MODE_ON;
  return 0;
}

static int fini(void **state) {
  (void)state;
  harp_sender_check(peer->session.sender);
  if (p->fd >= 0) close(p->fd);
  close(other);
  close(engine->tcp->fd);
  free(peer->session.sender), free(peer->session.receiver);
  free(engine->tcp), free(engine), free(peer), free(p);
  return 0;
}

/* Sends what is chosen for the tcp path, until a record of data has gone there. */
static void send_record(void) {
  struct harp_sender *s = peer->session.sender;
  struct harp_packet ack = {.type = HARP_PACKET_ACK, .path = TCP};
  struct harp_tx_choice c = harp_sender_choose(s, now);
  struct harp_tx_run run;
  while (c.kind == HARP_TX_PROBE) {
    if (c.path == TCP)
      harp_tcp_send(peer, &c, now);
    else
      harp_sender_take(s, &c, 1, &run, now);
    c = harp_sender_choose(s, now);
  }
  ack.ack.range_count = 1;
  ack.ack.ranges[0].begin = NUMBER, ack.ack.ranges[0].end = NUMBER + 1;
  ack.ack.credit_count = 1;
  ack.ack.credits[0] = (struct harp_credit){0, 8};
  ack.ack.window_bytes = HARP_WINDOW_MAX_BYTES;
  ack.ack.echo_time = harp_ticks_from_ns(now);
  now += HARP_US(10);
  assert_int_equal(harp_sender_on_ack(s, &ack, harp_sender_ack_number(s, &ack), now), HARP_DROP_NONE);
  assert_int_equal(harp_sender_post(s, &st, data, BYTES, NULL, true, now), 0);
  c = harp_sender_choose(s, now);
  assert_int_equal(c.kind, HARP_TX_NEW);
  assert_int_equal(c.path, TCP);
  harp_tcp_send(peer, &c, now);
}

/* Reads what the connection holds; returns how much that was. */
static size_t drain(void) {
  size_t bytes = 0;
  for (ssize_t n; (n = recv(other, received, sizeof received, MSG_DONTWAIT)) > 0;) bytes += (size_t)n;
  return bytes;
}

/* Reads the whole record that was sent, and the probe before it. */
static void drain_record(void) {
  struct pollfd arrival = {.fd = other, .events = POLLIN};
  size_t bytes = 0;
  for (unsigned i = 0; i < 1000 && bytes < 2 * HARP_RECORD_HEAD_BYTES + BYTES; i++) {
    poll(&arrival, 1, 100);
    bytes += drain();
    harp_tcp_path_flush(p, now);
  }
  assert_int_equal(bytes, 2 * HARP_RECORD_HEAD_BYTES + BYTES);
  assert_false(p->is_waiting || p->payload_bytes);
}

static void test_the_rest_of_a_record_follows(void **state) {
  (void)state;
  send_record();
  assert_true(p->is_waiting && p->payload_bytes);
  drain_record();
}

/* The head of a record whose payload follows in a call of its own is sent with MSG_MORE: with that, the
 * kernel would keep what is alone for 200 ms. */
static void test_an_acknowledgement_after_uncopied_payload_goes_at_once(void **state) {
  struct harp_packet probe = {.type = HARP_PACKET_PROBE, .path = TCP, .token = 1};
  struct harp_placement place;
  struct pollfd arrival = {.fd = other, .events = POLLIN};
  (void)state;
  send_record();
  drain_record();
  assert_int_equal(engine->counters.tx_zerocopy, 1);
  assert_int_equal(harp_receiver_on_packet(peer->session.receiver, &probe, NUMBER, &place, now),
                   HARP_DROP_NONE);
  harp_tcp_send_ack(peer, TCP, TCP, now);
  assert_int_equal(poll(&arrival, 1, 100), 1);
}

/* Its lines were lost, wrongly, on another path, and arrived there after all. */
static void test_nothing_is_sent_from_a_buffer_that_was_given_back(void **state) {
  (void)state;
  void *cookie;
  send_record();
  assert_true(p->payload_bytes);
  drain();
  harp_tx_stream_on_delivered(&st, BYTES / HARP_LINE_BYTES, now);
  assert_true(harp_tx_stream_poll_done(&st, &cookie));
  harp_tcp_path_flush(p, now);
  assert_int_equal(p->fd, -1);
  assert_int_equal(drain(), 0);
  assert_true(harp_sender_is_down(peer->session.sender, TCP));
}

/* Answers what goes out over datagrams, and keeps what is for the connection. */
static void pass_once(void) {
  struct harp_sender *s = peer->session.sender;
  struct harp_packet ack = {.type = HARP_PACKET_ACK, .path = UDP};
  struct harp_tx_run run;
  now += HARP_MS(1);
  harp_tcp_note_progress(peer, now);
  harp_session_on_timeout(&peer->session, now);
  harp_tcp_review(peer, now);
  for (struct harp_tx_choice c; (c = harp_sender_choose(s, now)).kind != HARP_TX_NOTHING;) {
    assert_int_equal(c.path, UDP);
    harp_sender_take(s, &c, 1, &run, now);
    ack.ack.range_count = 1;
    ack.ack.ranges[0].begin = (uint32_t)run.number, ack.ack.ranges[0].end = (uint32_t)run.number + 1;
    ack.ack.window_bytes = HARP_WINDOW_MAX_BYTES;
    ack.ack.echo_time = harp_ticks_from_ns(now);
    assert_int_equal(harp_sender_on_ack(s, &ack, harp_sender_ack_number(s, &ack), now), HARP_DROP_NONE);
  }
}

/* The peer's data come, and nothing of ours arrives. */
static void test_one_that_takes_no_acknowledgement_is_given_up(void **state) {
  (void)state;
  send_record();
  for (unsigned i = 0; i < 1000 && p->is_waiting; i++) drain(), harp_tcp_path_flush(p, now);
  drain();
  harp_tx_stream_on_delivered(&st, BYTES / HARP_LINE_BYTES, now);
  struct harp_packet all = {.type = HARP_PACKET_ACK, .path = TCP};
  all.ack.range_count = 1;
  all.ack.ranges[0].begin = NUMBER, all.ack.ranges[0].end = NUMBER + 2;
  all.ack.window_bytes = HARP_WINDOW_MAX_BYTES;
  all.ack.echo_time = harp_ticks_from_ns(now);
  now += HARP_US(10);
  assert_int_equal(
      harp_sender_on_ack(peer->session.sender, &all, harp_sender_ack_number(peer->session.sender, &all), now),
      HARP_DROP_NONE);
  for (unsigned i = 0; i < 300; i++) pass_once(); /* it idles, and stays */
  assert_true(p->fd >= 0);
  for (uint64_t n = NUMBER; harp_tcp_ready(peer, TCP); n++) {
    struct harp_packet probe = {.type = HARP_PACKET_PROBE, .path = TCP, .token = 1};
    struct harp_placement place;
    assert_int_equal(harp_receiver_on_packet(peer->session.receiver, &probe, n, &place, now), HARP_DROP_NONE);
    harp_tcp_send_ack(peer, TCP, TCP, now);
  }
  harp_ns since = now;
  while (p->fd >= 0 && now - since < HARP_SEC(1)) pass_once();
  assert_in_range(now - since, HARP_MS(10), HARP_MS(100));
}

static unsigned report_count;

static void count_reports(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  report_count += level == HARP_LOG_INFO && strstr(text, "has ended (reset by the test); its data") != NULL;
}

/* Ends the connection, with a link that needs it; returns how often that is reported within 10 ms. */
static unsigned reports_of_end(bool peer_leaves) {
  static struct harp_link link;
  report_count = 0;
  harp_log_set_sink(count_reports);
  harp_tcp_path_end(p, now, "reset by the test");
  peer->links = &link;
  assert_true(harp_tcp_review(peer, now) > now);
  assert_int_equal(report_count, 0);
  peer->monitor.final_received = peer_leaves;
  for (unsigned i = 0; i < 2; i++) harp_tcp_review(peer, now += HARP_MS(10));
  peer->links = NULL;
  harp_log_set_sink(NULL);
  return report_count;
}

static void test_an_end_is_reported_once(void **state) {
  (void)state;
  assert_int_equal(reports_of_end(false), 1);
}

/* At the end of a job all connections with the peer end, and the message that it leaves comes by another
 * one. */
static void test_an_end_with_the_peer_is_not_reported(void **state) {
  (void)state;
  assert_int_equal(reports_of_end(true), 0);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, init, fini)
  const struct CMUnitTest tests[] = {
      T(test_the_rest_of_a_record_follows),
      cmocka_unit_test_setup_teardown(test_an_acknowledgement_after_uncopied_payload_goes_at_once,
                                      init_uncopied, fini),
      T(test_nothing_is_sent_from_a_buffer_that_was_given_back),
      T(test_an_end_is_reported_once),
      T(test_an_end_with_the_peer_is_not_reported),
      T(test_one_that_takes_no_acknowledgement_is_given_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
