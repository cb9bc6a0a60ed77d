/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection of a link: what its end, its silence and its answers do (lib/control_scene.h). */
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/address.h"
#include "base/log.h"
#include "engine/control/dispatch.h"
#include "engine/engine.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "io/sim.h"
#include "lib/control_scene.h"

#define SHORT_NS     HARP_MS(10)  /* in which the link handles what has come */
#define PASS_NS      HARP_US(500) /* between two passes */
#define LONG_PASS_NS HARP_MS(1)

enum {
  PINGS_MAX = 32, /* the PINGs of one stall */
  WAITS_MAX = 2000,
  OTHER_STREAM = 9,
  UNKNOWN_REASON = 77,
  UNKNOWN_STREAM = 0xffff,
};

static bool control_is_ready(const struct scene *s) {
  struct pollfd p = {.fd = s->engine->ready.fd, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

/* ---- a driver that is stuck ---- */

/* The system takes no packet any more, as with a lasting ENOBUFS. The peer is alive, and may wait for us: we
 * must not wait for ever. */
static void test_a_driver_that_takes_nothing(void **state) {
  (void)state;
  struct scene s;
  struct harp_tx_superframe sf;
  scene_open(&s, HARP_ROLE_SENDER);
  struct harp_io *io = s.engine->io;
  while (io->ops->tx_take(io, s.link->peer->routes[0], SCENE_MTU / 2, &sf))
    ;
  scene_submit(s.link);
  for (harp_ns end = scene_now_ns + 2 * SCENE_PEER_TIMEOUT_NS; scene_now_ns < end; scene_now_ns += PASS_NS) {
    scene_run_for(&s, PASS_NS, PASS_NS);
    scene_receive_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "nothing sent from sim0 to"));
  scene_close(&s);
}

/* ---- a peer that writes as fast as it can ---- */

enum { FLOOD_PINGS = 1000 };
#define FLOOD_NS HARP_MS(200) /* in which the link has read all of them */

/* Fills the control connection with PINGs, and what is given behind them. */
static void flood(struct scene *s, const uint8_t *last, size_t last_bytes) {
  static uint8_t out[FLOOD_PINGS * HARP_CONTROL_PING_BYTES + HARP_CONTROL_MAX_BYTES];
  size_t bytes = 0;
  for (uint32_t i = 0; i < FLOOD_PINGS; i++) bytes += harp_control_encode_ping(out + bytes, s->keys.rx, i);
  if (last_bytes) memcpy(out + bytes, last, last_bytes);
  bytes += last_bytes;
  assert_int_equal(send(s->peer, out, bytes, 0), bytes);
}

/* Reads what the link has sent; returns the number of messages of a type in it. */
static unsigned receive_count(struct scene *s, enum harp_control_type type) {
  static uint8_t in[SCENE_IN_BYTES];
  unsigned count = 0;
  ssize_t n = recv(s->peer, in, sizeof in, MSG_DONTWAIT);
  for (ssize_t at = 0; at < n;) {
    struct harp_control_message msg;
    int used = harp_control_decode(in + at, (size_t)(n - at), s->keys.tx, &msg);
    assert_true(used > 0);
    at += used;
    count += msg.type == type;
  }
  return count;
}

/* The lock is given back after one read and one answer, however much waits. */
static void test_a_flood_of_pings_is_read_in_parts(void **state) {
  (void)state;
  struct scene s;
  const struct harp_monitor *m;
  scene_open(&s, HARP_ROLE_RECEIVER);
  m = &s.link->peer->monitor;
  flood(&s, NULL, 0);
  while (m->rx_count < FLOOD_PINGS) {
    uint32_t before = m->rx_count;
    assert_true(control_is_ready(&s)); /* what is left is still reported */
    harp_dispatch_control(s.link->peer, scene_now_ns);
    assert_in_range(m->rx_count - before, 1, HARP_CONTROL_MAX_BYTES / HARP_CONTROL_PING_BYTES);
    assert_int_equal(receive_count(&s, HARP_CONTROL_PONG), 1);
  }
  assert_false(control_is_ready(&s));
  assert_int_equal(m->in_bytes, 0);
  scene_close(&s);
}

/* FINAL and the end come through behind it. */
static void test_end_behind_a_flood_is_seen(void **state) {
  (void)state;
  struct scene s;
  uint8_t final[HARP_CONTROL_MAX_BYTES];
  scene_open(&s, HARP_ROLE_RECEIVER);
  scene_submit(s.link);
  flood(&s, final, harp_control_encode_final(final, s.keys.rx, FLOOD_PINGS, &(struct harp_final){0}));
  shutdown(s.peer, SHUT_WR);
  scene_run_for(&s, FLOOD_NS, PASS_NS);
  assert_true(s.link->peer->monitor.final_received);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "closed its connection"));
  assert_false(control_is_ready(&s));
  scene_close(&s);
}

/* Nor does it hold up a close, which reads so that a reset does not overtake what it sends itself. */
static void test_close_reads_only_so_much(void **state) {
  (void)state;
  enum { READS_MAX = 4 };
  struct scene s;
  int before, after;
  scene_open(&s, HARP_ROLE_RECEIVER);
  flood(&s, NULL, 0);
  int fd = dup(s.link->peer->monitor.fd);
  assert_int_equal(ioctl(fd, FIONREAD, &before), 0);
  harp_monitor_close(s.link->peer);
  assert_int_equal(ioctl(fd, FIONREAD, &after), 0);
  assert_in_range(before - after, 1, READS_MAX * HARP_CONTROL_MAX_BYTES);
  close(fd);
  assert_int_equal(receive_count(&s, HARP_CONTROL_FINAL), 1);
  scene_close(&s);
}

/* A closed socket is readable for ever; an engine that went on polling for it would never sleep again. */
static void end_without_requests(enum harp_role role) {
  struct scene s;
  scene_open(&s, role);
  close(s.peer);
  s.peer = -1;
  assert_true(control_is_ready(&s));
  scene_run_for(&s, SHORT_NS, PASS_NS);
  assert_false(control_is_ready(&s));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK); /* nothing waits for the peer */
  scene_submit(s.link);
  scene_run_for(&s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE); /* now something does */
  scene_close(&s);
}

static void test_end_is_not_waited_for_again(void **state) {
  (void)state;
  end_without_requests(HARP_ROLE_SENDER);
  end_without_requests(HARP_ROLE_RECEIVER);
}

static bool has_ended(const struct scene *s) {
  uint8_t in[HARP_CONTROL_MAX_BYTES];
  ssize_t n;
  do n = recv(s->peer, in, sizeof in, 0);
  while (n > 0);
  return n == 0;
}

/* Nothing comes after it that could be read. The peer sees the end at once: its connects wait for answers. */
static void test_nonsense_is_not_waited_for_again(void **state) {
  (void)state;
  struct scene s;
  enum { JUNK_BYTES = 300 };
  static uint8_t junk[JUNK_BYTES];
  scene_open(&s, HARP_ROLE_RECEIVER);
  assert_int_equal(send(s.peer, junk, sizeof junk, 0), sizeof junk);
  scene_run_for(&s, SHORT_NS, PASS_NS);
  assert_false(control_is_ready(&s));
  assert_true(has_ended(&s));
  scene_close(&s);
}

/* The paths are broken and the peer's process answers: an error at the peer timeout, after a bounded number
 * of questions. */
static void test_answering_peer_without_packets_fails(void **state) {
  (void)state;
  struct scene s;
  unsigned pings = 0;
  scene_open(&s, HARP_ROLE_SENDER);
  scene_submit(s.link);
  harp_ns begin = scene_now_ns;
  while (!atomic_load(&s.link->status) && scene_now_ns < begin + 2 * SCENE_PEER_TIMEOUT_NS) {
    scene_run_for(&s, SHORT_NS / 2, PASS_NS);
    pings += scene_receive_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "is UDP allowed"));
  assert_true(scene_now_ns - begin >= SCENE_PEER_TIMEOUT_NS &&
              scene_now_ns - begin < SCENE_PEER_TIMEOUT_NS + HARP_SEC(1));
  assert_in_range(pings, 2, PINGS_MAX);
  scene_close(&s);
}

/* A peer that was stopped for longer than the peer timeout answers all that waited for it at once, in any
 * order: its first PONG may be here before its first acknowledgement. */
static void test_woken_peer_is_given_time(void **state) {
  (void)state;
  struct scene s;
  scene_open(&s, HARP_ROLE_SENDER);
  scene_submit(s.link);
  scene_run_for(&s, 3 * SCENE_PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_true(scene_receive_pings(&s, true) > 0);
  scene_run_for(&s, HARP_SEC(1), LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  /* But it is not given more than some time. */
  for (unsigned i = 0; i < WAITS_MAX && !atomic_load(&s.link->status); i++) {
    scene_run_for(&s, SHORT_NS / 2, LONG_PASS_NS);
    scene_receive_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  scene_close(&s);
}

/* It answered when the paths fell silent, and was stopped then: its silence is no sign about the paths. */
static void test_peer_stopped_in_a_stall_is_waited_for(void **state) {
  (void)state;
  struct scene s;
  scene_open(&s, HARP_ROLE_SENDER);
  scene_submit(s.link);
  for (unsigned i = 0; i < WAITS_MAX && !scene_receive_pings(&s, true); i++)
    scene_run_for(&s, SHORT_NS / 2, LONG_PASS_NS);
  assert_int_equal(s.pongs, 1);
  scene_run_for(&s, 3 * SCENE_PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  scene_close(&s);
}

/* Fills the socket towards the peer, so that no message fits. */
static size_t fill_socket(struct scene *s) {
  static const uint8_t junk[HARP_CONTROL_MAX_BYTES];
  size_t total = 0;
  ssize_t n;
  while ((n = send(s->link->peer->monitor.fd, junk, sizeof junk, MSG_DONTWAIT)) > 0) total += (size_t)n;
  return total;
}

static void drain_socket(struct scene *s, size_t bytes) {
  static uint8_t junk[HARP_CONTROL_MAX_BYTES];
  while (bytes) {
    ssize_t n = recv(s->peer, junk, HARP_MIN(bytes, sizeof junk), MSG_DONTWAIT);
    assert_true(n > 0);
    bytes -= (size_t)n;
  }
}

/* A PING that found no room is sent later; without it nobody would find out that UDP is blocked. */
static void test_dropped_ping_is_sent_later(void **state) {
  (void)state;
  struct scene s;
  scene_open(&s, HARP_ROLE_SENDER);
  scene_submit(s.link);
  size_t filled = fill_socket(&s);
  scene_run_for(&s, SCENE_PEER_TIMEOUT_NS / 2, LONG_PASS_NS);
  drain_socket(&s, filled);
  harp_ns begin = scene_now_ns;
  while (!atomic_load(&s.link->status) && scene_now_ns < begin + 2 * SCENE_PEER_TIMEOUT_NS) {
    scene_run_for(&s, SHORT_NS / 2, PASS_NS);
    scene_receive_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "is UDP allowed"));
  scene_close(&s);
}

/* ---- last words ---- */

/* Reads what was sent to the peer up to a message of this type; false: there is none. */
static bool receive(struct scene *s, enum harp_control_type type, struct harp_control_message *msg) {
  static uint8_t in[SCENE_IN_BYTES];
  ssize_t n = recv(s->peer, in, sizeof in, MSG_DONTWAIT);
  msg->type = HARP_CONTROL_PING;
  for (ssize_t at = 0; at < n && msg->type != type;) {
    int used = harp_control_decode(in + at, (size_t)(n - at), s->keys.tx, msg);
    assert_true(used > 0);
    at += used;
  }
  return msg->type == type;
}

/* A buffer that is taken away in use fails the link alone, and the peer gets the reason at once. */
static void quiesce_notifies_the_peer(enum harp_role role) {
  struct scene s;
  struct harp_control_message msg;
  scene_open(&s, role);
  scene_submit(s.link);
  scene_run_for(&s, SHORT_NS, PASS_NS);
  harp_link_quiesce(s.link, scene_payload, sizeof scene_payload);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_INTERNAL);
  assert_true(receive(&s, HARP_CONTROL_CLOSE, &msg));
  assert_int_equal(msg.close.stream, 0);
  assert_int_equal(msg.close.is_sender, role == HARP_ROLE_SENDER);
  assert_int_equal(msg.close.reason, HARP_ERR_INTERNAL);
  assert_int_equal(s.link->peer->session.state, HARP_SESSION_OPEN);
  assert_int_equal(recv(s.peer, &msg, 1, MSG_DONTWAIT), -1); /* the connection stays */
  scene_close(&s);
}

static void test_quiesce_notifies_the_peer(void **state) {
  (void)state;
  quiesce_notifies_the_peer(HARP_ROLE_SENDER);
  quiesce_notifies_the_peer(HARP_ROLE_RECEIVER);
}

static const struct {
  uint32_t reason;
  const char *text;
} reasons[] = {{HARP_ERR_REMOTE, "nothing from here reaches it"},
               {HARP_ERR_SYSTEM, "its operating system"},
               {UNKNOWN_REASON, "its side failed"},
               {HARP_ERR_INTERNAL, "deregistered a buffer"} /* CLOSE alone has it */};

static void fails_at_once(struct scene *s, const uint8_t *word, size_t bytes, const char *text) {
  assert_int_equal(send(s->peer, word, bytes, 0), bytes);
  scene_run_for(s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s->link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s->link->error, text));
  assert_non_null(strstr(s->link->error, s->link->peer->name));
}

/* Whatever reason the peer has, all links fail at once, with nothing under way too. */
static void test_final_with_a_reason_fails(void **state) {
  (void)state;
  for (unsigned i = 0; i < 2 * (HARP_ARRAY_COUNT(reasons) - 1); i++) {
    struct scene s;
    uint8_t out[HARP_CONTROL_MAX_BYTES];
    struct harp_final final = {.reason = reasons[i / 2].reason};
    scene_open(&s, i % 2 ? HARP_ROLE_SENDER : HARP_ROLE_RECEIVER);
    fails_at_once(&s, out, harp_control_encode_final(out, s.keys.rx, 0, &final), reasons[i / 2].text);
    assert_int_equal(s.link->peer->session.state, HARP_SESSION_FAILED);
    scene_close(&s);
  }
}

/* One end of a stream that failed fails the other one, and no other stream. */
static void test_close_with_a_reason_fails(void **state) {
  (void)state;
  for (unsigned i = 0; i < 2 * HARP_ARRAY_COUNT(reasons); i++) {
    struct scene s;
    struct harp_link *other;
    uint8_t out[HARP_CONTROL_MAX_BYTES];
    enum harp_role role = i % 2 ? HARP_ROLE_SENDER : HARP_ROLE_RECEIVER;
    scene_open(&s, role);
    assert_int_equal(harp_link_create(&other, s.link->peer,
                                      &(struct harp_link_config){.role = role, .stream = OTHER_STREAM}),
                     0);
    struct harp_close end = {.is_sender = role == HARP_ROLE_RECEIVER, .reason = reasons[i / 2].reason};
    fails_at_once(&s, out, harp_control_encode_close(out, s.keys.rx, 0, &end), reasons[i / 2].text);
    assert_int_equal(s.link->peer->session.state, HARP_SESSION_OPEN);
    assert_int_equal(atomic_load(&other->status), HARP_OK);
    harp_link_destroy(other);
    scene_close(&s);
  }
}

/* Words about streams that are not there change nothing. */
static void test_close_of_no_stream_is_ignored(void **state) {
  struct scene s;
  (void)state;
  scene_open(&s, HARP_ROLE_RECEIVER);
  for (unsigned i = 0; i < 4; i++) {
    uint8_t out[HARP_CONTROL_MAX_BYTES];
    struct harp_close end = {
        .stream = i % 2 ? UNKNOWN_STREAM : 1, .is_sender = i / 2, .reason = HARP_ERR_SYSTEM};
    size_t bytes = harp_control_encode_close(out, s.keys.rx, i, &end);
    assert_int_equal(send(s.peer, out, bytes, 0), bytes);
  }
  scene_run_for(&s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  scene_close(&s);
}

/* Nobody would ever learn that its peer is dead: so it fails at once on both sides. */
static void test_unwatched_link_fails(void **state) {
  struct scene s;
  struct harp_control_message msg;
  (void)state;
  scene_epoll_is_full = true;
  scene_open(&s, HARP_ROLE_RECEIVER);
  scene_epoll_is_full = false;
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_SYSTEM);
  assert_non_null(strstr(s.link->error, "cannot watch the control connection"));
  assert_non_null(strstr(s.link->error, strerror(EBADF)));
  assert_true(receive(&s, HARP_CONTROL_FINAL, &msg));
  assert_int_equal(msg.final.reason, HARP_ERR_SYSTEM);
  scene_close(&s);
}

/* ---- a peer that does not read ---- */

/* Sends CLOSE messages until one finds no room; returns how many had. */
static unsigned overflow(struct scene *s) {
  struct harp_close end = {.stream = UNKNOWN_STREAM};
  unsigned sent = 0;
  while (harp_monitor_send_close(s->link->peer, &end)) sent++;
  return sent;
}

static unsigned warn_count;
static char last_warn[HARP_LOG_LINE_BYTES];

static void count_warns(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  if (level != HARP_LOG_WARN) return;
  warn_count++;
  snprintf(last_warn, sizeof last_warn, "%s", text);
}

/* What had no room is lost, so nothing of the session can be relied on: all of its streams fail, whether they
 * wait for anything or not, with one WARN. */
static void test_message_without_room_fails_the_peer_at_once(void **state) {
  (void)state;
  for (enum harp_role role = HARP_ROLE_SENDER; role <= HARP_ROLE_RECEIVER; role++) {
    struct scene s;
    struct harp_link *other;
    scene_open(&s, role);
    assert_int_equal(harp_link_create(&other, s.link->peer,
                                      &(struct harp_link_config){.role = role, .stream = OTHER_STREAM}),
                     0);
    scene_submit(s.link);
    scene_run_for(&s, SHORT_NS, PASS_NS);
    fill_socket(&s);
    overflow(&s);
    assert_false(harp_peer_is_usable(s.link->peer)); /* no stream is opened on it from here on */
    assert_int_equal(atomic_load(&s.link->status), HARP_OK);
    scene_run_for(&s, SHORT_NS, PASS_NS);
    assert_int_equal(s.link->peer->session.state, HARP_SESSION_FAILED);
    warn_count = 0;
    harp_log_set_sink(count_warns);
    assert_int_equal(harp_link_error(s.link), HARP_ERR_REMOTE);
    assert_int_equal(harp_link_error(other), HARP_ERR_REMOTE);
    harp_log_set_sink(NULL);
    assert_int_equal(warn_count, 1);
    assert_non_null(strstr(last_warn, s.link->peer->name));
    assert_non_null(strstr(last_warn, "does not read its control connection"));
    harp_link_destroy(other);
    scene_close(&s);
  }
}

/* A peer that reads again finds every message that was taken, then why there are no more. */
static void test_final_is_behind_all_that_had_room(void **state) {
  (void)state;
  struct scene s;
  static uint8_t in[SCENE_IN_BYTES];
  struct harp_control_message msg = {0};
  scene_open(&s, HARP_ROLE_RECEIVER);
  size_t filled = fill_socket(&s), bytes = 0;
  unsigned closes = overflow(&s), got = 0;
  assert_in_range(closes, 1, HARP_MONITOR_OUT_BYTES / HARP_CONTROL_CLOSE_BYTES);
  scene_run_for(&s, SHORT_NS, PASS_NS);
  drain_socket(&s, filled);
  ssize_t n = 1;
  for (unsigned i = 0; i < WAITS_MAX && n; i++) {
    harp_engine_pass(s.engine);
    scene_now_ns += LONG_PASS_NS;
    n = recv(s.peer, in + bytes, sizeof in - bytes, MSG_DONTWAIT);
    bytes += n > 0 ? (size_t)n : 0;
  }
  assert_int_equal(n, 0); /* the end */
  for (size_t at = 0; at < bytes;) {
    int used = harp_control_decode(in + at, bytes - at, s.keys.tx, &msg);
    assert_true(used > 0);
    at += (size_t)used;
    got += msg.type == HARP_CONTROL_CLOSE;
  }
  assert_int_equal(got, closes);
  assert_int_equal(msg.type, HARP_CONTROL_FINAL);
  assert_int_equal(msg.final.reason, HARP_ERR_REMOTE);
  scene_close(&s);
}

/* ---- a peer that acknowledges what was never sent ---- */

/* Has the link receive the acknowledgement of one packet of its path. */
static void deliver_ack(struct scene *s, uint64_t number) {
  static uint32_t acks;
  uint8_t wire[HARP_ACK_MAX_BYTES];
  const struct harp_session_keys *keys = &s->link->peer->session.keys;
  struct harp_packet ack = {.type = HARP_PACKET_ACK, .token = keys->rx_token};
  ack.ack.window_bytes = HARP_WINDOW_MAX_BYTES;
  ack.ack.range_count = 1;
  ack.ack.ranges[0].begin = (uint32_t)number;
  ack.ack.ranges[0].end = (uint32_t)number + 1;
  size_t bytes = harp_packet_encode_ack(wire, &ack, acks++, keys->rx_seed);
  assert_true(harp_io_sim_deliver(s->engine->io, wire, (uint32_t)bytes, false));
  scene_run_for(s, SHORT_NS, PASS_NS);
}

/* It is not failed where the packet is read, in the middle of a pass, but at the review of its monitor: with
 * all of its streams, one WARN, and FINAL. */
static void test_a_false_acknowledgement_fails_the_peer(void **state) {
  (void)state;
  struct scene s;
  struct harp_link *other;
  struct harp_control_message msg;
  scene_open(&s, HARP_ROLE_SENDER);
  struct harp_peer *peer = s.link->peer;
  struct harp_path *path = &peer->session.sender->paths[0];
  assert_int_equal(
      harp_link_create(&other, peer,
                       &(struct harp_link_config){.role = HARP_ROLE_SENDER, .stream = OTHER_STREAM}),
      0);
  scene_run_for(&s, SHORT_NS, PASS_NS);
  deliver_ack(&s, path->stats.first_number); /* the number is a probe's, which was sent */
  assert_int_equal(path->state, HARP_PATH_UP);
  uint64_t skipped = path->skip.at_number = path->next_number;
  scene_submit(s.link);
  scene_run_for(&s, SHORT_NS, PASS_NS);
  assert_true(path->next_number > skipped);
  assert_int_equal(peer->session.state, HARP_SESSION_OPEN);
  deliver_ack(&s, skipped);
  assert_int_equal(s.engine->counters.drops[HARP_DROP_FALSE_ACK], 1);
  assert_int_equal(peer->session.state, HARP_SESSION_FAILED);
  warn_count = 0;
  harp_log_set_sink(count_warns);
  assert_int_equal(harp_link_error(s.link), HARP_ERR_REMOTE);
  assert_int_equal(harp_link_error(other), HARP_ERR_REMOTE);
  harp_log_set_sink(NULL);
  assert_int_equal(warn_count, 1);
  assert_non_null(strstr(last_warn, peer->name));
  assert_non_null(strstr(last_warn, "acknowledged packets that"));
  assert_non_null(strstr(last_warn, "never sent"));
  assert_true(receive(&s, HARP_CONTROL_FINAL, &msg));
  assert_int_equal(msg.final.reason, HARP_ERR_REMOTE);
  harp_link_destroy(other);
  scene_close(&s);
}

/* ---- with several interfaces ---- */

/* Resets the control connection, as the kernel of a peer that has heard nothing for too long does: it closes
 * with something unread. */
static void reset(struct scene *s) {
  assert_int_equal(send(s->link->peer->monitor.fd, "unread", 6, MSG_NOSIGNAL), 6);
  close(s->peer);
  s->peer = -1;
  scene_run_for(s, SHORT_NS, PASS_NS);
}

/* The same while packets come. */
static void run_receiving(struct scene *s, harp_ns ns, harp_ns step_ns) {
  for (harp_ns end = scene_now_ns + ns; scene_now_ns < end && !atomic_load(&s->link->status);
       scene_now_ns += step_ns) {
    s->link->peer->last_received_ns = scene_now_ns;
    harp_engine_pass(s->engine);
  }
}

static void test_reset_with_one_interface_fails(void **state) {
  (void)state;
  struct scene s;
  scene_open(&s, HARP_ROLE_RECEIVER);
  scene_submit(s.link);
  reset(&s);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_false(s.link->peer->monitor.lost);
  assert_non_null(strstr(s.link->error, "was reset: the process ended, or "));
  scene_close(&s);
}

/* Puts a TCP connection in the place of the control connection, and resets it. */
static void reset_tcp(struct scene *s) {
  const struct linger at_once = {.l_onoff = 1};
  int listener = scene_listen(), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_storage to = harp_address_make(4, (const uint8_t[]){127, 0, 0, 1}, scene_peer_tcp_port, 0);
  scene_peer_tcp_port = 0;
  assert_int_equal(connect(fd, (const struct sockaddr *)&to, harp_address_bytes(&to)), 0);
  int peer = accept(listener, NULL, NULL);
  assert_true(peer >= 0);
  assert_int_equal(dup2(fd, s->link->peer->monitor.fd), s->link->peer->monitor.fd);
  assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  struct pollfd until_reset = {.fd = fd, .events = POLLIN};
  close(peer);
  assert_int_equal(poll(&until_reset, 1, -1), 1);
  close(fd);
  close(listener);
}

/* A PING that is sent before the reset is read takes the error: the reader finds an end without one. */
static void test_a_reset_that_a_send_finds_is_no_end(void **state) {
  (void)state;
  struct scene s;
  scene_open_with(&s, HARP_ROLE_RECEIVER, 2);
  scene_submit(s.link);
  scene_run_for(&s, SHORT_NS, PASS_NS);
  reset_tcp(&s);
  harp_monitor_ping(s.link->peer, scene_now_ns);
  harp_dispatch_control(s.link->peer, scene_now_ns);
  assert_true(s.link->peer->monitor.lost && !s.link->peer->monitor.gone);
  scene_close(&s);
}

/* It goes on while anything is heard, whatever waits for the peer; silence for the peer timeout ends it. */
static void lost_and_then_silent(enum harp_role role) {
  struct scene s;
  scene_open_with(&s, role, 2);
  scene_submit(s.link);
  reset(&s);
  assert_true(s.link->peer->monitor.lost && !s.link->peer->monitor.gone);
  assert_false(control_is_ready(&s)); /* nor does it keep the runner awake */
  run_receiving(&s, 3 * SCENE_PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  harp_ns begin = scene_now_ns;
  scene_run_for(&s, 2 * SCENE_PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "nothing has come over any path for 8 s"));
  assert_in_range(scene_now_ns - begin, SCENE_PEER_TIMEOUT_NS - 2 * LONG_PASS_NS,
                  SCENE_PEER_TIMEOUT_NS * 5 / 4);
  scene_close(&s);
}

static void test_lost_and_then_silent(void **state) {
  (void)state;
  lost_and_then_silent(HARP_ROLE_SENDER);
  lost_and_then_silent(HARP_ROLE_RECEIVER);
}

/* Who was stopped for long, and perhaps the whole machine with both ends, listens for the timeout again. */
static void test_silence_while_stopped_is_nobodys(void **state) {
  (void)state;
  struct scene s;
  scene_open_with(&s, HARP_ROLE_RECEIVER, 2);
  scene_submit(s.link);
  reset(&s);
  run_receiving(&s, SCENE_PEER_TIMEOUT_NS, LONG_PASS_NS);
  scene_now_ns += 3 * SCENE_PEER_TIMEOUT_NS;
  scene_run_for(&s, SCENE_PEER_TIMEOUT_NS / 2, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  scene_run_for(&s, SCENE_PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  scene_close(&s);
}

/* Only who waits for the peer has an error, when it has waited for the peer timeout. */
static void test_lost_without_requests_waits(void **state) {
  (void)state;
  struct scene s;
  scene_open_with(&s, HARP_ROLE_RECEIVER, 2);
  reset(&s);
  scene_run_for(&s, 3 * SCENE_PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  scene_submit(s.link);
  scene_run_for(&s, SCENE_PEER_TIMEOUT_NS * 9 / 10, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  scene_run_for(&s, SCENE_PEER_TIMEOUT_NS / 2, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  scene_close(&s);
}

/* A process that ends is no broken network, however many interfaces there are. */
static void test_end_with_several_interfaces_fails(void **state) {
  (void)state;
  struct scene s;
  scene_open_with(&s, HARP_ROLE_RECEIVER, 2);
  scene_submit(s.link);
  close(s.peer);
  s.peer = -1;
  scene_run_for(&s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "the process ended"));
  scene_close(&s);
}

/* Nor is one that sent FINAL, whatever its kernel did afterwards. */
static void test_reset_after_final_fails(void **state) {
  (void)state;
  struct scene s;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  scene_open_with(&s, HARP_ROLE_RECEIVER, 2);
  scene_submit(s.link);
  size_t bytes = harp_control_encode_final(out, s.keys.rx, 0, &(struct harp_final){0});
  assert_int_equal(send(s.peer, out, bytes, 0), bytes);
  scene_run_for(&s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  reset(&s);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "closed its connection"));
  scene_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_flood_of_pings_is_read_in_parts),
      cmocka_unit_test(test_end_behind_a_flood_is_seen),
      cmocka_unit_test(test_close_reads_only_so_much),
      cmocka_unit_test(test_end_is_not_waited_for_again),
      cmocka_unit_test(test_nonsense_is_not_waited_for_again),
      cmocka_unit_test(test_answering_peer_without_packets_fails),
      cmocka_unit_test(test_woken_peer_is_given_time),
      cmocka_unit_test(test_peer_stopped_in_a_stall_is_waited_for),
      cmocka_unit_test(test_dropped_ping_is_sent_later),
      cmocka_unit_test(test_message_without_room_fails_the_peer_at_once),
      cmocka_unit_test(test_final_is_behind_all_that_had_room),
      cmocka_unit_test(test_a_false_acknowledgement_fails_the_peer),
      cmocka_unit_test(test_quiesce_notifies_the_peer),
      cmocka_unit_test(test_final_with_a_reason_fails),
      cmocka_unit_test(test_close_with_a_reason_fails),
      cmocka_unit_test(test_close_of_no_stream_is_ignored),
      cmocka_unit_test(test_unwatched_link_fails),
      cmocka_unit_test(test_reset_with_one_interface_fails),
      cmocka_unit_test(test_a_reset_that_a_send_finds_is_no_end),
      cmocka_unit_test(test_lost_and_then_silent),
      cmocka_unit_test(test_silence_while_stopped_is_nobodys),
      cmocka_unit_test(test_lost_without_requests_waits),
      cmocka_unit_test(test_end_with_several_interfaces_fails),
      cmocka_unit_test(test_reset_after_final_fails),
      cmocka_unit_test(test_a_driver_that_takes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
