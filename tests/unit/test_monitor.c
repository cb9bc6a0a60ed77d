/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection of a link: what its end, its silence and its answers do. An engine over the sim
 * driver on a virtual clock; the peer is the other end of a socket pair, played by hand. */
#include <errno.h>
#include <fcntl.h>
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
#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "engine/peer_life.h"
#include "io/sim.h"
#include "lib/new_link.h"

#define PEER_TIMEOUT_NS HARP_SEC(8)
#define STALL_NS        HARP_SEC(10)
#define SHORT_NS        HARP_MS(10)  /* in which the link handles what has come */
#define PASS_NS         HARP_US(500) /* between two passes */
#define LONG_PASS_NS    HARP_MS(1)

enum {
  MTU = 1500,
  PORT = 1000,
  SLOT_TOKEN = 0x10000, /* the link's token, less its slot */
  PEER_TOKEN = 0x20000,
  IN_BYTES = 65536, /* more than the link sends in a test */
  PINGS_MAX = 32,   /* the PINGs of one stall */
  WAITS_MAX = 2000,
  OTHER_STREAM = 9,
  UNKNOWN_REASON = 77,
  UNKNOWN_STREAM = 0xffff,
};

static uint8_t payload[64]; /* the payload of all requests */

static harp_ns now_ns;
static harp_ns virtual_clock(void) {
  return now_ns;
}

struct scene {
  struct harp_engine *engine;
  struct harp_link *link;
  int peer;                      /* the other end of the control connection; -1 when closed */
  struct harp_control_keys keys; /* ours; the peer's are the other way round */
  struct harp_counters wire_counters;
  uint32_t pongs;
};

/* The network loses everything: the link stalls as soon as it sends. */
static void carry(void *wire, unsigned port, const struct sockaddr_storage *to, const uint8_t *data,
                  uint32_t bytes, bool ect) {
  (void)wire, (void)port, (void)to, (void)data, (void)bytes, (void)ect;
}

/* Where the peer's interfaces accept tcp paths, or only answer; 0: nowhere. */
static uint16_t peer_tcp_port, peer_answer_port;

static struct harp_endpoint endpoint_of(const struct scene *s, uint64_t token, uint16_t eni_count) {
  struct harp_endpoint e = {.token = token,
                            .window_bytes = s->engine->io->info.buffer_bytes,
                            .path_count = 1,
                            .eni_count = eni_count,
                            .pid = 7,
                            .name = "host"};
  for (unsigned i = 0; i < eni_count; i++)
    e.enis[i] = (struct harp_endpoint_eni){.family = 4,
                                           .addr = {127, 0, 0, 1},
                                           .mtu = MTU,
                                           .tcp_port = token == PEER_TOKEN ? peer_tcp_port : 0,
                                           .answer_port = token == PEER_TOKEN ? peer_answer_port : 0,
                                           .port_count = 1,
                                           .ports = {s->engine->io->info.ports[0]}};
  return e;
}

/* Where epoll takes no control connection. */
static bool epoll_is_full;

/* A peer with so many interfaces. */
static void open_scene_with(struct scene *s, enum harp_role role, uint16_t peer_enis) {
  struct harp_instance instance = {
      .ifname = "sim0", .mtu = MTU, .paths = 1, .peer_timeout_ns = PEER_TIMEOUT_NS, .stall_ns = STALL_NS};
  struct harp_io_sim_config config = {
      .port_count = 1, .first_port = PORT, .send = carry, .wire = s, .counters = &s->wire_counters};
  struct harp_error error = {0};
  int pair[2];
  instance.addr = harp_address_make(4, (const uint8_t[]){127, 0, 0, 1}, 0, 0);
  now_ns = HARP_SEC(1);
  memset(s, 0, sizeof *s);
  assert_int_equal(harp_engine_open_with(&s->engine, &(struct harp_engine_enis){1, {&instance}},
                                         harp_io_sim_open(&config), virtual_clock, &error),
                   0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  s->peer = pair[1];
  memset(&s->keys.tx, 1, sizeof s->keys.tx);
  memset(&s->keys.rx, 2, sizeof s->keys.rx);
  int slot = harp_engine_reserve_slot(s->engine);
  struct harp_endpoint self = endpoint_of(s, SLOT_TOKEN | (uint64_t)slot, 1);
  struct harp_endpoint peer = endpoint_of(s, PEER_TOKEN, peer_enis);
  struct harp_peer_config link = {
      .is_client = role == HARP_ROLE_SENDER,
      .slot = (uint32_t)slot,
      .control_fd = pair[0],
      .control = s->keys,
      .local = &self,
      .peer = &peer,
      .traffic_class = -1,
      .keys = {.tx_token = peer.token, .rx_token = self.token, .tx_seed = 1, .rx_seed = 2}};
  link.peer_addr.ss_family = AF_INET;
  int fd_of_set = s->engine->ready.fd;
  if (epoll_is_full) s->engine->ready.fd = -1;
  s->link = new_link(s->engine, &link);
  s->engine->ready.fd = fd_of_set;
  assert_non_null(s->link);
}

static void open_scene(struct scene *s, enum harp_role role) {
  open_scene_with(s, role, 1);
}

static void close_scene(struct scene *s) {
  harp_link_destroy(s->link);
  harp_engine_close(s->engine);
  if (s->peer >= 0) close(s->peer);
}

static void submit(struct harp_link *link) {
  struct harp_request *r = &link->requests[0];
  r->data = payload;
  r->capacity = sizeof payload;
  atomic_store(&r->state, HARP_REQUEST_POSTED);
  assert_true(harp_spsc_push(&link->submit, r));
  harp_engine_ring_mt(link->engine, link->slot);
}

/* Lets passes run at intervals of `step_ns`; stops early when the link fails. */
static void run_for(struct scene *s, harp_ns ns, harp_ns step_ns) {
  for (harp_ns end = now_ns + ns; now_ns < end && !atomic_load(&s->link->status); now_ns += step_ns)
    harp_engine_pass(s->engine);
}

static bool control_is_ready(const struct scene *s) {
  struct pollfd p = {.fd = s->engine->ready.fd, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

/* Reads what the link has sent to the peer; returns the number of PINGs in it; `answer`: answers each. */
static unsigned receive_pings(struct scene *s, bool answer) {
  static uint8_t in[IN_BYTES];
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  unsigned pings = 0;
  ssize_t n = recv(s->peer, in, sizeof in, MSG_DONTWAIT);
  for (ssize_t at = 0; at < n;) {
    struct harp_control_message msg;
    int used = harp_control_decode(in + at, (size_t)(n - at), s->keys.tx, &msg);
    assert_true(used > 0);
    at += used;
    if (msg.type != HARP_CONTROL_PING) continue;
    pings++;
    size_t bytes = harp_control_encode_pong(out, s->keys.rx, s->pongs++);
    if (answer) assert_int_equal(send(s->peer, out, bytes, 0), bytes);
  }
  return pings;
}

/* ---- a peer behind a link that is down ---- */

static int listen_for_peer(void) {
  struct sockaddr_storage a = harp_address_make(4, (const uint8_t[]){127, 0, 0, 1}, 0, 0);
  socklen_t n = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (const struct sockaddr *)&a, harp_address_bytes(&a)), 0);
  assert_int_equal(listen(fd, 64), 0); /* nobody accepts */
  assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
  peer_tcp_port = harp_address_port(&a);
  return fd;
}

/* While its kernel accepts connections it is only stopped. Once that refuses, it has ended, unless the
 * control connection works. It is the same for who waits for a message as for who sends one. */
static void check_inquiry(enum harp_role role, bool is_lost) {
  struct scene s;
  int listener = listen_for_peer();
  open_scene_with(&s, role, 2);
  if (is_lost) harp_monitor_set_lost(s.link->peer);
  submit(s.link);
  run_for(&s, HARP_SEC(1), PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_true(s.link->peer->inquiry.next_ns);
  close(listener);
  harp_ns start_ns = now_ns;
  run_for(&s, HARP_SEC(3), PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), is_lost ? HARP_ERR_REMOTE : HARP_OK);
  if (is_lost) assert_non_null(strstr(s.link->error, "its process has ended"));
  if (is_lost) assert_in_range(now_ns - start_ns, HARP_INQUIRY_REFUSED_NS, HARP_SEC(1));
  close_scene(&s);
  peer_tcp_port = 0;
}

static void test_a_quiet_peers_host_is_asked(void **state) {
  (void)state;
  for (int is_lost = 0; is_lost < 2; is_lost++) {
    check_inquiry(HARP_ROLE_SENDER, is_lost);
    check_inquiry(HARP_ROLE_RECEIVER, is_lost);
  }
}

/* A process that is only stopped is asked over one connection at a time, however many interfaces it has. */
static void test_who_accepts_is_asked_once(void **state) {
  (void)state;
  struct scene s;
  int listener = listen_for_peer();
  unsigned count = 0;
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  assert_int_equal(s.link->peer->remote_eni_count, 2);
  submit(s.link);
  run_for(&s, HARP_SEC(3), PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_int_equal(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
  for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; count++) close(fd);
  assert_in_range(count, 3, HARP_SEC(3) / HARP_INQUIRY_AGAIN_NS);
  close(listener);
  close_scene(&s);
  peer_tcp_port = 0;
}

/* Its network, or its host, answers nothing: what tracks flows remembers each connection for two minutes. */
static void test_who_does_not_answer_is_asked_ever_more_rarely(void **state) {
  (void)state;
  enum { FILLERS = 4 };
  struct scene s;
  int listener = listen_for_peer(), fillers[FILLERS];
  struct sockaddr_storage to = harp_address_make(4, (const uint8_t[]){127, 0, 0, 1}, peer_tcp_port, 0);
  assert_int_equal(listen(listener, 0), 0);
  for (unsigned i = 0; i < FILLERS; i++) { /* the kernel drops further connections without an answer */
    fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)connect(fillers[i], (const struct sockaddr *)&to, harp_address_bytes(&to));
  }
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  harp_monitor_set_lost(s.link->peer);
  submit(s.link);
  unsigned begun = 0;
  bool was_asking = false;
  for (harp_ns end = now_ns + PEER_TIMEOUT_NS - HARP_MS(500); now_ns < end; now_ns += PASS_NS) {
    harp_engine_pass(s.engine);
    begun += s.link->peer->inquiry.is_asking && !was_asking;
    was_asking = s.link->peer->inquiry.is_asking;
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_in_range(begun, 3, 5); /* after 0, 1, 2.5 and 5 s */
  for (unsigned i = 0; i < FILLERS; i++) close(fillers[i]);
  close(listener);
  close_scene(&s);
  peer_tcp_port = 0;
}

/* The kernel of a process that ends with bytes that it did not read resets the control connection, as a
 * firewall may. Where the kernel refuses connections as well the process has ended. */
static void test_a_reset_is_asked_about(void **state) {
  (void)state;
  for (unsigned role = 0; role < 2; role++) {
    struct scene s;
    int listener = listen_for_peer();
    peer_answer_port = peer_tcp_port;
    peer_tcp_port = 0;
    open_scene_with(&s, role ? HARP_ROLE_SENDER : HARP_ROLE_RECEIVER, 2);
    submit(s.link);
    run_for(&s, HARP_SEC(1), PASS_NS); /* a PING waits to be read */
    close(s.peer);
    s.peer = -1;
    run_for(&s, HARP_SEC(1), PASS_NS);
    assert_true(s.link->peer->monitor.lost);
    assert_int_equal(atomic_load(&s.link->status), HARP_OK);
    close(listener);
    harp_ns start_ns = now_ns;
    run_for(&s, HARP_SEC(3), PASS_NS);
    assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
    assert_non_null(strstr(s.link->error, "its process has ended"));
    assert_in_range(now_ns - start_ns, HARP_INQUIRY_REFUSED_NS, HARP_SEC(1));
    close_scene(&s);
    peer_answer_port = 0;
  }
}

/* Who answers PINGs is not asked, however long it sends nothing. */
static void test_a_peer_that_answers_is_not_asked(void **state) {
  (void)state;
  struct scene s;
  unsigned pings = 0;
  peer_tcp_port = 1;
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  submit(s.link);
  for (harp_ns end = now_ns + HARP_SEC(2); now_ns < end; now_ns += PASS_NS) {
    harp_engine_pass(s.engine);
    pings += receive_pings(&s, true);
  }
  assert_in_range(pings, 6, HARP_SEC(2) / HARP_INQUIRY_PING_NS);
  assert_int_equal(s.link->peer->inquiry.next_ns, 0);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  close_scene(&s);
  peer_tcp_port = 0;
}

/* ---- a driver that is stuck ---- */

/* The system takes no packet any more, as with a lasting ENOBUFS. The peer is alive, and may wait for us: we
 * must not wait for ever. */
static void test_a_driver_that_takes_nothing(void **state) {
  (void)state;
  struct scene s;
  struct harp_tx_superframe sf;
  open_scene(&s, HARP_ROLE_SENDER);
  struct harp_io *io = s.engine->io;
  while (io->ops->tx_take(io, s.link->peer->routes[0], MTU / 2, &sf))
    ;
  submit(s.link);
  for (harp_ns end = now_ns + 2 * PEER_TIMEOUT_NS; now_ns < end; now_ns += PASS_NS) {
    run_for(&s, PASS_NS, PASS_NS);
    receive_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "nothing sent from sim0 to"));
  close_scene(&s);
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
  static uint8_t in[IN_BYTES];
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
  open_scene(&s, HARP_ROLE_RECEIVER);
  m = &s.link->peer->monitor;
  flood(&s, NULL, 0);
  while (m->rx_count < FLOOD_PINGS) {
    uint32_t before = m->rx_count;
    assert_true(control_is_ready(&s)); /* what is left is still reported */
    harp_dispatch_control(s.link->peer, now_ns);
    assert_in_range(m->rx_count - before, 1, HARP_CONTROL_MAX_BYTES / HARP_CONTROL_PING_BYTES);
    assert_int_equal(receive_count(&s, HARP_CONTROL_PONG), 1);
  }
  assert_false(control_is_ready(&s));
  assert_int_equal(m->in_bytes, 0);
  close_scene(&s);
}

/* FINAL and the end come through behind it. */
static void test_end_behind_a_flood_is_seen(void **state) {
  (void)state;
  struct scene s;
  uint8_t final[HARP_CONTROL_MAX_BYTES];
  open_scene(&s, HARP_ROLE_RECEIVER);
  submit(s.link);
  flood(&s, final, harp_control_encode_final(final, s.keys.rx, FLOOD_PINGS, &(struct harp_final){0}));
  shutdown(s.peer, SHUT_WR);
  run_for(&s, FLOOD_NS, PASS_NS);
  assert_true(s.link->peer->monitor.final_received);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "closed its connection"));
  assert_false(control_is_ready(&s));
  close_scene(&s);
}

/* Nor does it hold up a close, which reads so that a reset does not overtake what it sends itself. */
static void test_close_reads_only_so_much(void **state) {
  (void)state;
  enum { READS_MAX = 4 };
  struct scene s;
  int before, after;
  open_scene(&s, HARP_ROLE_RECEIVER);
  flood(&s, NULL, 0);
  int fd = dup(s.link->peer->monitor.fd);
  assert_int_equal(ioctl(fd, FIONREAD, &before), 0);
  harp_monitor_close(s.link->peer);
  assert_int_equal(ioctl(fd, FIONREAD, &after), 0);
  assert_in_range(before - after, 1, READS_MAX * HARP_CONTROL_MAX_BYTES);
  close(fd);
  assert_int_equal(receive_count(&s, HARP_CONTROL_FINAL), 1);
  close_scene(&s);
}

/* A closed socket is readable for ever; an engine that went on polling for it would never sleep again. */
static void end_without_requests(enum harp_role role) {
  struct scene s;
  open_scene(&s, role);
  close(s.peer);
  s.peer = -1;
  assert_true(control_is_ready(&s));
  run_for(&s, SHORT_NS, PASS_NS);
  assert_false(control_is_ready(&s));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK); /* nothing waits for the peer */
  submit(s.link);
  run_for(&s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE); /* now something does */
  close_scene(&s);
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
  open_scene(&s, HARP_ROLE_RECEIVER);
  assert_int_equal(send(s.peer, junk, sizeof junk, 0), sizeof junk);
  run_for(&s, SHORT_NS, PASS_NS);
  assert_false(control_is_ready(&s));
  assert_true(has_ended(&s));
  close_scene(&s);
}

/* The paths are broken and the peer's process answers: an error at the peer timeout, after a bounded number
 * of questions. */
static void test_answering_peer_without_packets_fails(void **state) {
  (void)state;
  struct scene s;
  unsigned pings = 0;
  open_scene(&s, HARP_ROLE_SENDER);
  submit(s.link);
  harp_ns begin = now_ns;
  while (!atomic_load(&s.link->status) && now_ns < begin + 2 * PEER_TIMEOUT_NS) {
    run_for(&s, SHORT_NS / 2, PASS_NS);
    pings += receive_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "is UDP allowed"));
  assert_true(now_ns - begin >= PEER_TIMEOUT_NS && now_ns - begin < PEER_TIMEOUT_NS + HARP_SEC(1));
  assert_in_range(pings, 2, PINGS_MAX);
  close_scene(&s);
}

/* A peer that was stopped for longer than the peer timeout answers all that waited for it at once, in any
 * order: its first PONG may be here before its first acknowledgement. */
static void test_woken_peer_is_given_time(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, HARP_ROLE_SENDER);
  submit(s.link);
  run_for(&s, 3 * PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_true(receive_pings(&s, true) > 0);
  run_for(&s, HARP_SEC(1), LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  /* But it is not given more than some time. */
  for (unsigned i = 0; i < WAITS_MAX && !atomic_load(&s.link->status); i++) {
    run_for(&s, SHORT_NS / 2, LONG_PASS_NS);
    receive_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  close_scene(&s);
}

/* It answered when the paths fell silent, and was stopped then: its silence is no sign about the paths. */
static void test_peer_stopped_in_a_stall_is_waited_for(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, HARP_ROLE_SENDER);
  submit(s.link);
  for (unsigned i = 0; i < WAITS_MAX && !receive_pings(&s, true); i++)
    run_for(&s, SHORT_NS / 2, LONG_PASS_NS);
  assert_int_equal(s.pongs, 1);
  run_for(&s, 3 * PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  close_scene(&s);
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
  open_scene(&s, HARP_ROLE_SENDER);
  submit(s.link);
  size_t filled = fill_socket(&s);
  run_for(&s, PEER_TIMEOUT_NS / 2, LONG_PASS_NS);
  drain_socket(&s, filled);
  harp_ns begin = now_ns;
  while (!atomic_load(&s.link->status) && now_ns < begin + 2 * PEER_TIMEOUT_NS) {
    run_for(&s, SHORT_NS / 2, PASS_NS);
    receive_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "is UDP allowed"));
  close_scene(&s);
}

/* ---- last words ---- */

/* Reads what was sent to the peer up to a message of this type; false: there is none. */
static bool receive(struct scene *s, enum harp_control_type type, struct harp_control_message *msg) {
  static uint8_t in[IN_BYTES];
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
  open_scene(&s, role);
  submit(s.link);
  run_for(&s, SHORT_NS, PASS_NS);
  harp_link_quiesce(s.link, payload, sizeof payload);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_INTERNAL);
  assert_true(receive(&s, HARP_CONTROL_CLOSE, &msg));
  assert_int_equal(msg.close.stream, 0);
  assert_int_equal(msg.close.is_sender, role == HARP_ROLE_SENDER);
  assert_int_equal(msg.close.reason, HARP_ERR_INTERNAL);
  assert_int_equal(s.link->peer->session.state, HARP_SESSION_OPEN);
  assert_int_equal(recv(s.peer, &msg, 1, MSG_DONTWAIT), -1); /* the connection stays */
  close_scene(&s);
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
  run_for(s, SHORT_NS, PASS_NS);
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
    open_scene(&s, i % 2 ? HARP_ROLE_SENDER : HARP_ROLE_RECEIVER);
    fails_at_once(&s, out, harp_control_encode_final(out, s.keys.rx, 0, &final), reasons[i / 2].text);
    assert_int_equal(s.link->peer->session.state, HARP_SESSION_FAILED);
    close_scene(&s);
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
    open_scene(&s, role);
    assert_int_equal(harp_link_create(&other, s.link->peer,
                                      &(struct harp_link_config){.role = role, .stream = OTHER_STREAM}),
                     0);
    struct harp_close end = {.is_sender = role == HARP_ROLE_RECEIVER, .reason = reasons[i / 2].reason};
    fails_at_once(&s, out, harp_control_encode_close(out, s.keys.rx, 0, &end), reasons[i / 2].text);
    assert_int_equal(s.link->peer->session.state, HARP_SESSION_OPEN);
    assert_int_equal(atomic_load(&other->status), HARP_OK);
    harp_link_destroy(other);
    close_scene(&s);
  }
}

/* Words about streams that are not there change nothing. */
static void test_close_of_no_stream_is_ignored(void **state) {
  struct scene s;
  (void)state;
  open_scene(&s, HARP_ROLE_RECEIVER);
  for (unsigned i = 0; i < 4; i++) {
    uint8_t out[HARP_CONTROL_MAX_BYTES];
    struct harp_close end = {
        .stream = i % 2 ? UNKNOWN_STREAM : 1, .is_sender = i / 2, .reason = HARP_ERR_SYSTEM};
    size_t bytes = harp_control_encode_close(out, s.keys.rx, i, &end);
    assert_int_equal(send(s.peer, out, bytes, 0), bytes);
  }
  run_for(&s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  close_scene(&s);
}

/* Nobody would ever learn that its peer is dead: so it fails at once on both sides. */
static void test_unwatched_link_fails(void **state) {
  struct scene s;
  struct harp_control_message msg;
  (void)state;
  epoll_is_full = true;
  open_scene(&s, HARP_ROLE_RECEIVER);
  epoll_is_full = false;
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_SYSTEM);
  assert_non_null(strstr(s.link->error, "cannot watch the control connection"));
  assert_non_null(strstr(s.link->error, strerror(EBADF)));
  assert_true(receive(&s, HARP_CONTROL_FINAL, &msg));
  assert_int_equal(msg.final.reason, HARP_ERR_SYSTEM);
  close_scene(&s);
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
    open_scene(&s, role);
    assert_int_equal(harp_link_create(&other, s.link->peer,
                                      &(struct harp_link_config){.role = role, .stream = OTHER_STREAM}),
                     0);
    submit(s.link);
    run_for(&s, SHORT_NS, PASS_NS);
    fill_socket(&s);
    overflow(&s);
    assert_false(harp_peer_is_usable(s.link->peer)); /* no stream is opened on it from here on */
    assert_int_equal(atomic_load(&s.link->status), HARP_OK);
    run_for(&s, SHORT_NS, PASS_NS);
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
    close_scene(&s);
  }
}

/* A peer that reads again finds every message that was taken, then why there are no more. */
static void test_final_is_behind_all_that_had_room(void **state) {
  (void)state;
  struct scene s;
  static uint8_t in[IN_BYTES];
  struct harp_control_message msg = {0};
  open_scene(&s, HARP_ROLE_RECEIVER);
  size_t filled = fill_socket(&s), bytes = 0;
  unsigned closes = overflow(&s), got = 0;
  assert_in_range(closes, 1, HARP_MONITOR_OUT_BYTES / HARP_CONTROL_CLOSE_BYTES);
  run_for(&s, SHORT_NS, PASS_NS);
  drain_socket(&s, filled);
  ssize_t n = 1;
  for (unsigned i = 0; i < WAITS_MAX && n; i++) {
    harp_engine_pass(s.engine);
    now_ns += LONG_PASS_NS;
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
  close_scene(&s);
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
  run_for(s, SHORT_NS, PASS_NS);
}

/* It is not failed where the packet is read, in the middle of a pass, but at the review of its monitor: with
 * all of its streams, one WARN, and FINAL. */
static void test_a_false_acknowledgement_fails_the_peer(void **state) {
  (void)state;
  struct scene s;
  struct harp_link *other;
  struct harp_control_message msg;
  open_scene(&s, HARP_ROLE_SENDER);
  struct harp_peer *peer = s.link->peer;
  struct harp_path *path = &peer->session.sender->paths[0];
  assert_int_equal(
      harp_link_create(&other, peer,
                       &(struct harp_link_config){.role = HARP_ROLE_SENDER, .stream = OTHER_STREAM}),
      0);
  run_for(&s, SHORT_NS, PASS_NS);
  deliver_ack(&s, path->stats.first_number); /* the number is a probe's, which was sent */
  assert_int_equal(path->state, HARP_PATH_UP);
  uint64_t skipped = path->skip.at_number = path->next_number;
  submit(s.link);
  run_for(&s, SHORT_NS, PASS_NS);
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
  close_scene(&s);
}

/* ---- with several interfaces ---- */

/* Resets the control connection, as the kernel of a peer that has heard nothing for too long does: it closes
 * with something unread. */
static void reset(struct scene *s) {
  assert_int_equal(send(s->link->peer->monitor.fd, "unread", 6, MSG_NOSIGNAL), 6);
  close(s->peer);
  s->peer = -1;
  run_for(s, SHORT_NS, PASS_NS);
}

/* The same while packets come. */
static void run_receiving(struct scene *s, harp_ns ns, harp_ns step_ns) {
  for (harp_ns end = now_ns + ns; now_ns < end && !atomic_load(&s->link->status); now_ns += step_ns) {
    s->link->peer->last_received_ns = now_ns;
    harp_engine_pass(s->engine);
  }
}

static void test_reset_with_one_interface_fails(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, HARP_ROLE_RECEIVER);
  submit(s.link);
  reset(&s);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_false(s.link->peer->monitor.lost);
  assert_non_null(strstr(s.link->error, "was reset: the process ended, or "));
  close_scene(&s);
}

/* Puts a TCP connection in the place of the control connection, and resets it. */
static void reset_tcp(struct scene *s) {
  const struct linger at_once = {.l_onoff = 1};
  int listener = listen_for_peer(), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_storage to = harp_address_make(4, (const uint8_t[]){127, 0, 0, 1}, peer_tcp_port, 0);
  peer_tcp_port = 0;
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
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  submit(s.link);
  run_for(&s, SHORT_NS, PASS_NS);
  reset_tcp(&s);
  harp_monitor_ping(s.link->peer, now_ns);
  harp_dispatch_control(s.link->peer, now_ns);
  assert_true(s.link->peer->monitor.lost && !s.link->peer->monitor.gone);
  close_scene(&s);
}

/* It goes on while anything is heard, whatever waits for the peer; silence for the peer timeout ends it. */
static void lost_and_then_silent(enum harp_role role) {
  struct scene s;
  open_scene_with(&s, role, 2);
  submit(s.link);
  reset(&s);
  assert_true(s.link->peer->monitor.lost && !s.link->peer->monitor.gone);
  assert_false(control_is_ready(&s)); /* nor does it keep the runner awake */
  run_receiving(&s, 3 * PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  harp_ns begin = now_ns;
  run_for(&s, 2 * PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "nothing has come over any path for 8 s"));
  assert_in_range(now_ns - begin, PEER_TIMEOUT_NS - 2 * LONG_PASS_NS, PEER_TIMEOUT_NS * 5 / 4);
  close_scene(&s);
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
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  submit(s.link);
  reset(&s);
  run_receiving(&s, PEER_TIMEOUT_NS, LONG_PASS_NS);
  now_ns += 3 * PEER_TIMEOUT_NS;
  run_for(&s, PEER_TIMEOUT_NS / 2, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  run_for(&s, PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  close_scene(&s);
}

/* Only who waits for the peer has an error, when it has waited for the peer timeout. */
static void test_lost_without_requests_waits(void **state) {
  (void)state;
  struct scene s;
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  reset(&s);
  run_for(&s, 3 * PEER_TIMEOUT_NS, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  submit(s.link);
  run_for(&s, PEER_TIMEOUT_NS * 9 / 10, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  run_for(&s, PEER_TIMEOUT_NS / 2, LONG_PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  close_scene(&s);
}

/* A process that ends is no broken network, however many interfaces there are. */
static void test_end_with_several_interfaces_fails(void **state) {
  (void)state;
  struct scene s;
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  submit(s.link);
  close(s.peer);
  s.peer = -1;
  run_for(&s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "the process ended"));
  close_scene(&s);
}

/* Nor is one that sent FINAL, whatever its kernel did afterwards. */
static void test_reset_after_final_fails(void **state) {
  (void)state;
  struct scene s;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  submit(s.link);
  size_t bytes = harp_control_encode_final(out, s.keys.rx, 0, &(struct harp_final){0});
  assert_int_equal(send(s.peer, out, bytes, 0), bytes);
  run_for(&s, SHORT_NS, PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  reset(&s);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "closed its connection"));
  close_scene(&s);
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
      cmocka_unit_test(test_a_quiet_peers_host_is_asked),
      cmocka_unit_test(test_who_accepts_is_asked_once),
      cmocka_unit_test(test_who_does_not_answer_is_asked_ever_more_rarely),
      cmocka_unit_test(test_a_reset_is_asked_about),
      cmocka_unit_test(test_a_peer_that_answers_is_not_asked),
      cmocka_unit_test(test_a_driver_that_takes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
