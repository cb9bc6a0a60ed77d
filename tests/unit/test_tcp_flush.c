/* SPDX-License-Identifier: Apache-2.0 */
/* A record that waits for the kernel: what is sent of its payload, copied or by reference, and when no more
 * of it may be; and the end of its connection. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/tcp/tcp_bytes.h"
#include "engine/tcp/tcp_path.h"
#include "lib/addresses.h"

enum { UDP, TCP, PATHS, NUMBER = 5, BYTES = 512 << 10 };
static struct harp_engine *engine;
static struct harp_peer *peer;
static struct harp_tcp_path *p;
static struct harp_tx_stream st;
static struct harp_counters counters;
static uint8_t data[BYTES], received[2 * BYTES];
static size_t received_bytes;
static int other; /* the peer's end of the connection */
static harp_ns now;

/* ---- the kernel's part of payload by reference, whose calls fail or do a part as the test wants ---- */

static struct {
  int pipe_error, size_error, vmsplice_error, splice_error;
  size_t vmsplice_most, splice_most; /* bytes of a call; 0: no bound */
  unsigned vmsplice_calls;           /* so many before vmsplice_error */
} fake;

int pipe2(int ends[2], int flags) {
  errno = fake.pipe_error;
  return errno ? -1 : (int)syscall(SYS_pipe2, ends, flags);
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  long argument = va_arg(list, long);
  va_end(list);
  errno = command == F_SETPIPE_SZ ? fake.size_error : 0;
  return errno ? -1 : (int)syscall(SYS_fcntl, fd, command, argument);
}

ssize_t vmsplice(int fd, const struct iovec *iov, size_t count, unsigned flags) {
  struct iovec part = *iov;
  assert_int_equal(count, 1);
  errno = fake.vmsplice_calls ? 0 : fake.vmsplice_error;
  if (errno) return -1;
  if (fake.vmsplice_calls) fake.vmsplice_calls--;
  if (fake.vmsplice_most) part.iov_len = HARP_MIN(part.iov_len, fake.vmsplice_most);
  return syscall(SYS_vmsplice, fd, &part, 1, flags);
}

ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes, unsigned flags) {
  errno = out == p->fd ? fake.splice_error : 0;
  if (errno) return -1;
  if (out == p->fd && fake.splice_most) bytes = HARP_MIN(bytes, fake.splice_most);
  return syscall(SYS_splice, in, in_at, out, out_at, bytes, flags);
}

/* ---- the connection ---- */

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
  harp_path_pairs_on_large(peer->session.sender, now);
  harp_sender_unblock(peer->session.sender, TCP, now);
}

static void make(const int fds[2]) {
  now = HARP_MS(1);
  memset(&fake, 0, sizeof fake);
  received_bytes = 0;
  for (unsigned i = 0; i < BYTES; i++) data[i] = (uint8_t)(i * 7 + i / 251);
  engine = calloc(1, sizeof *engine);
  peer = calloc(1, sizeof *peer);
  p = calloc(1, sizeof *p);
  assert_true(engine && peer && p);
  engine->tcp = calloc(1, sizeof *engine->tcp);
  assert_non_null(engine->tcp);
  harp_page_pipe_init(&engine->tcp->pages);
  assert_int_equal(harp_io_ready_open(&engine->ready), 0);
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

/* The same with a TCP connection, whose payload goes by reference. */
static int init_referenced(void **state) {
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
  assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
  make(fds);
  engine->instance.zerocopy = HARP_ZEROCOPY_MODE_ON;
  return 0;
}

static int fini(void **state) {
  (void)state;
  harp_sender_check(peer->session.sender);
  if (p->fd >= 0) close(p->fd);
  close(other);
  assert_int_equal(engine->tcp->pages.bytes, 0);
  harp_page_pipe_close(&engine->tcp->pages);
  harp_io_ready_close(&engine->ready);
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
  size_t before = received_bytes;
  for (ssize_t n;
       (n = recv(other, received + received_bytes, sizeof received - received_bytes, MSG_DONTWAIT)) > 0;)
    received_bytes += (size_t)n;
  return received_bytes - before;
}

/* Reads the whole record that was sent, and the probe before it. */
static void drain_record(void) {
  struct pollfd arrival = {.fd = other, .events = POLLIN};
  for (unsigned i = 0; i < 1000 && received_bytes < 2 * HARP_RECORD_HEAD_BYTES + BYTES; i++) {
    poll(&arrival, 1, 100);
    drain();
    harp_tcp_path_flush(p, now);
  }
  assert_int_equal(received_bytes, 2 * HARP_RECORD_HEAD_BYTES + BYTES);
  assert_memory_equal(received + 2 * HARP_RECORD_HEAD_BYTES, data, BYTES);
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
static void test_an_acknowledgement_after_payload_by_reference_goes_at_once(void **state) {
  struct harp_packet probe = {.type = HARP_PACKET_PROBE, .path = TCP, .token = 1};
  struct harp_placement place;
  struct pollfd arrival = {.fd = other, .events = POLLIN};
  (void)state;
  send_record();
  drain_record();
  assert_int_equal(engine->counters.tx_by_reference, 1);
  assert_int_equal(harp_receiver_on_packet(peer->session.receiver, &probe, NUMBER, &place, now),
                   HARP_DROP_NONE);
  harp_tcp_send_ack(peer, TCP, TCP, now);
  assert_int_equal(poll(&arrival, 1, 100), 1);
}

/* ---- payload by reference ---- */

static unsigned refusal_count;

static void count_refusals(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  refusal_count +=
      level == HARP_LOG_INFO && strstr(text, "is copied, not handed to TCP by reference") != NULL;
}

/* Sends a record; it arrives whole, once. Returns how many refusals the log has. */
static unsigned refusals_of_record(void) {
  refusal_count = 0;
  harp_log_set_sink(count_refusals);
  send_record();
  drain_record();
  harp_log_set_sink(NULL);
  return refusal_count;
}

static void test_payload_by_reference_in_parts(void **state) {
  (void)state;
  fake.vmsplice_most = 300001;
  fake.splice_most = 10007;
  assert_int_equal(refusals_of_record(), 0);
  assert_int_equal(engine->counters.tx_by_reference, 1);
  assert_int_equal(engine->counters.reference_refusals, 0);
}

/* What is refused, at once or in the middle of a record, is copied; and so is what comes later. */
static void assert_copied(bool began) {
  assert_int_equal(refusals_of_record(), 1);
  assert_int_equal(engine->counters.tx_by_reference, began);
  assert_int_equal(engine->counters.reference_refusals, 1);
  assert_true(engine->tcp->refuses_references);
  assert_false(harp_page_pipe_is_open(&engine->tcp->pages));
  assert_false(p->by_reference);
}

static void test_memory_that_cannot_be_referenced_is_copied(void **state) {
  (void)state;
  fake.vmsplice_error = EFAULT;
  assert_copied(true);
}

static void test_the_rest_of_a_record_is_copied(void **state) {
  (void)state;
  fake.vmsplice_error = EFAULT;
  fake.vmsplice_calls = 2;
  fake.vmsplice_most = 100000;
  fake.splice_most = 30000;
  assert_copied(true);
}

static void test_without_vmsplice_payload_is_copied(void **state) {
  (void)state;
  fake.vmsplice_error = ENOSYS;
  assert_copied(true);
}

static void test_where_splice_is_denied_payload_is_copied(void **state) {
  (void)state;
  fake.splice_error = EPERM;
  assert_copied(true);
}

static void test_where_splice_is_unknown_payload_is_copied(void **state) {
  (void)state;
  fake.splice_error = EINVAL;
  assert_copied(true);
}

static void test_without_files_payload_is_copied(void **state) {
  (void)state;
  fake.pipe_error = EMFILE;
  assert_copied(false);
}

static void test_without_a_large_pipe_payload_is_copied(void **state) {
  (void)state;
  fake.size_error = EPERM;
  assert_copied(false);
}

/* Returns whether a record of so many bytes goes by reference, after the engine has sent and received so much
 * since the last one. */
static bool is_referenced(uint32_t bytes, uint64_t sent, uint64_t got) {
  struct harp_tx_run run = {.type = HARP_PACKET_DATA, .path = TCP, .count = 1, .data = data};
  run.size = run.last_bytes = bytes;
  engine->counters.tx_bytes += sent;
  engine->counters.rx_bytes += got;
  harp_tcp_bytes_put_record(p, &run, &st, now);
  bool is = p->by_reference;
  harp_tcp_bytes_drop(p);
  return is;
}

static void test_an_engine_that_receives_as_much_copies_more(void **state) {
  const uint64_t look = HARP_TCP_DIRECTION_BYTES;
  const uint32_t one_way = HARP_REFERENCE_MIN_BYTES, both_ways = HARP_TCP_REFERENCE_BOTH_WAYS_MIN_BYTES;
  (void)state;
  engine->instance.zerocopy = HARP_ZEROCOPY_MODE_AUTO;
  assert_false(is_referenced(one_way, 0, 0)); /* no turn has chosen it yet */
  for (unsigned k = 0; k < HARP_REFERENCE_CLASSES; k++)
    engine->tcp->reference_choice.classes[k].by_reference = true;
  assert_false(is_referenced(one_way - 1, 0, 0));
  assert_true(is_referenced(one_way, look, look / 4 - 1));
  assert_true(is_referenced(one_way, look - 1, look)); /* not looked at yet */
  assert_false(is_referenced(both_ways - 1, 1, 0));
  assert_true(is_referenced(both_ways, 0, 0));
  assert_true(is_referenced(one_way, look, 0)); /* one way again */
}

/* Sends a record that the kernel takes in part. */
static void send_part_of_record(void) {
  int room = 64 << 10;
  assert_int_equal(setsockopt(p->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
  send_record();
  assert_true(p->payload_bytes && p->payload_bytes < BYTES && p->is_waiting);
}

/* The pipe keeps nothing of a path that has ended. */
static void test_the_end_of_a_path_empties_the_pipe(void **state) {
  (void)state;
  send_part_of_record();
  assert_true(engine->tcp->pages.bytes);
  harp_tcp_path_end(p, now, "the test");
  assert_int_equal(engine->tcp->pages.bytes, 0);
}

/* Returns what the other side reads at the end of the connection: 0, or -errno. */
static int end_of_stream(void) {
  struct pollfd arrival = {.fd = other, .events = POLLIN};
  for (unsigned i = 0; i < 100; i++) {
    poll(&arrival, 1, 100);
    ssize_t n = recv(other, received, sizeof received, MSG_DONTWAIT);
    if (n <= 0 && errno != EAGAIN) return n ? -errno : 0;
  }
  return -ETIMEDOUT;
}

/* The kernel would go on to send from buffers whose messages go another way. */
static void test_a_connection_that_holds_references_is_reset(void **state) {
  (void)state;
  send_part_of_record();
  harp_tcp_path_end(p, now, "the test");
  assert_int_equal(end_of_stream(), -ECONNRESET);
}

static void test_one_that_holds_none_is_closed(void **state) {
  (void)state;
  send_record();
  drain_record();
  for (unsigned i = 0; i < 100 && harp_tcp_socket_acked(p->fd, p->sent_bytes) < p->sent_bytes; i++)
    poll(NULL, 0, 1);
  harp_tcp_path_end(p, now, "the test");
  errno = 0;
  assert_int_equal(end_of_stream(), 0);
}

/* Its messages are not delivered, and its buffers are given back; the records wait in the kernel alone. */
static void test_a_stream_that_is_closed_resets_its_connection(void **state) {
  (void)state;
  int room = 4 * BYTES;
  assert_int_equal(setsockopt(p->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
  send_record();
  if (p->payload_bytes) skip(); /* the host's buffers are too small */
  harp_tcp_forget(peer, &st, now);
  assert_int_equal(p->fd, -1);
  assert_int_equal(end_of_stream(), -ECONNRESET);
}

/* The other side closes, and then refuses what comes; splice, other than sendmsg, raises SIGPIPE. */
static void test_a_closed_connection_raises_no_signal(void **state) {
  sigset_t before, after;
  (void)state;
  signal(SIGPIPE, SIG_DFL);
  send_part_of_record();
  assert_true(p->peer->engine->tcp->pages.masks_sigpipe);
  assert_int_equal(pthread_sigmask(0, NULL, &before), 0);
  shutdown(p->fd, SHUT_WR); /* as a reset whose error was read */
  harp_tcp_path_flush(p, now);
  assert_int_equal(p->fd, -1);
  assert_string_equal(p->why, strerror(EPIPE));
  assert_int_equal(pthread_sigmask(0, NULL, &after), 0);
  assert_int_equal(sigismember(&after, SIGPIPE), sigismember(&before, SIGPIPE));
  assert_int_equal(sigpending(&after), 0);
  assert_false(sigismember(&after, SIGPIPE));
}

/* Python's programs ignore it: no call is needed to keep it away. */
static void test_a_signal_that_is_ignored_needs_no_mask(void **state) {
  (void)state;
  signal(SIGPIPE, SIG_IGN);
  send_part_of_record();
  assert_false(p->peer->engine->tcp->pages.masks_sigpipe);
  shutdown(p->fd, SHUT_WR);
  harp_tcp_path_flush(p, now);
  assert_string_equal(p->why, strerror(EPIPE));
  signal(SIGPIPE, SIG_DFL);
}

/* Where the thread's own SIGPIPE waits, it stays. */
static void test_a_pending_signal_stays(void **state) {
  const struct timespec at_once = {0};
  sigset_t sigpipe, old;
  (void)state;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  assert_int_equal(pthread_sigmask(SIG_BLOCK, &sigpipe, &old), 0);
  pthread_kill(pthread_self(), SIGPIPE);
  send_part_of_record();
  shutdown(p->fd, SHUT_WR);
  harp_tcp_path_flush(p, now);
  assert_int_equal(p->fd, -1);
  assert_int_equal(sigtimedwait(&sigpipe, NULL, &at_once), SIGPIPE);
  assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
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
  harp_tcp_report_progress(peer, now);
  harp_session_on_timeout(&peer->session, now);
  harp_tcp_on_time(peer, now);
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
  assert_true(harp_tcp_on_time(peer, now) > now);
  assert_int_equal(report_count, 0);
  peer->monitor.final_received = peer_leaves;
  for (unsigned i = 0; i < 2; i++) harp_tcp_on_time(peer, now += HARP_MS(10));
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
#define R(test) cmocka_unit_test_setup_teardown(test, init_referenced, fini)
  const struct CMUnitTest tests[] = {
      T(test_the_rest_of_a_record_follows),
      R(test_an_acknowledgement_after_payload_by_reference_goes_at_once),
      R(test_payload_by_reference_in_parts),
      R(test_memory_that_cannot_be_referenced_is_copied),
      R(test_the_rest_of_a_record_is_copied),
      R(test_without_vmsplice_payload_is_copied),
      R(test_where_splice_is_denied_payload_is_copied),
      R(test_where_splice_is_unknown_payload_is_copied),
      R(test_without_files_payload_is_copied),
      R(test_without_a_large_pipe_payload_is_copied),
      R(test_an_engine_that_receives_as_much_copies_more),
      R(test_the_end_of_a_path_empties_the_pipe),
      R(test_a_connection_that_holds_references_is_reset),
      R(test_one_that_holds_none_is_closed),
      R(test_a_stream_that_is_closed_resets_its_connection),
      R(test_a_closed_connection_raises_no_signal),
      R(test_a_signal_that_is_ignored_needs_no_mask),
      R(test_a_pending_signal_stays),
      T(test_nothing_is_sent_from_a_buffer_that_was_given_back),
      T(test_an_end_is_reported_once),
      T(test_an_end_with_the_peer_is_not_reported),
      T(test_one_that_takes_no_acknowledgement_is_given_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
