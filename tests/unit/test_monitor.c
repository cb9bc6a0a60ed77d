/* The control connection of a link: what its end, its silence and its answers do. An engine over the sim
 * driver on a virtual clock; the peer is the other end of a socket pair, played by hand. */
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "io/sim.h"

#define PEER_TIMEOUT_NS HARP_SEC(8)

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
                  uint32_t bytes) {
  (void)wire, (void)port, (void)to, (void)data, (void)bytes;
}

static struct harp_endpoint endpoint_of(const struct scene *s, uint64_t token, uint16_t eni_count) {
  struct harp_endpoint e = {.token = token,
                            .buffer_bytes = s->engine->io->info.buffer_bytes,
                            .path_count = 1,
                            .eni_count = eni_count,
                            .pid = 7,
                            .name = "host"};
  for (unsigned i = 0; i < eni_count; i++)
    e.enis[i] = (struct harp_endpoint_eni){
        .family = 4, .mtu = 1500, .port_count = 1, .ports = {s->engine->io->info.ports[0]}};
  return e;
}

/* A peer with so many interfaces. */
static void open_scene_with(struct scene *s, enum harp_role role, uint16_t peer_enis) {
  struct harp_instance instance = {
      .ifname = "sim0", .mtu = 1500, .paths = 1, .peer_timeout_ns = PEER_TIMEOUT_NS};
  struct harp_io_sim_config config = {
      .port_count = 1, .first_port = 1000, .send = carry, .wire = s, .counters = &s->wire_counters};
  char error[256];
  int pair[2];
  instance.addr.ss_family = AF_INET;
  now_ns = HARP_SEC(1);
  memset(s, 0, sizeof *s);
  assert_int_equal(harp_engine_open_with(&s->engine, &(struct harp_engine_enis){1, {&instance}}, "delay",
                                         harp_io_sim_open(&config), virtual_clock, error, sizeof error),
                   0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  s->peer = pair[1];
  memset(&s->keys.tx, 1, sizeof s->keys.tx);
  memset(&s->keys.rx, 2, sizeof s->keys.rx);
  int slot = harp_engine_reserve_slot(s->engine);
  struct harp_endpoint self = endpoint_of(s, 0x10000u | (uint64_t)slot, 1);
  struct harp_endpoint peer = endpoint_of(s, 0x20000, peer_enis);
  struct harp_link_config link = {
      .role = role,
      .slot = (uint32_t)slot,
      .control_fd = pair[0],
      .control = s->keys,
      .local = &self,
      .peer = &peer,
      .traffic_class = -1,
      .keys = {.tx_token = peer.token, .rx_token = self.token, .tx_seed = 1, .rx_seed = 2}};
  link.peer_addr.ss_family = AF_INET;
  s->link = harp_link_create(s->engine, &link);
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

static void submit(struct harp_link *link, void *data, uint32_t bytes) {
  struct harp_request *r = &link->requests[0];
  r->data = data;
  r->capacity = bytes;
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
  struct pollfd p = {.fd = s->engine->control_fd, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

/* Reads what the link has said to the peer; returns how many PINGs were among it, and answers each if it is
 * to. */
static unsigned hear_pings(struct scene *s, bool answer) {
  static uint8_t in[65536];
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

/* A closed socket is readable for ever; an engine that went on polling for it would never sleep again. */
static void end_without_requests(enum harp_role role) {
  struct scene s;
  static uint8_t data[64];
  open_scene(&s, role);
  close(s.peer);
  s.peer = -1;
  assert_true(control_is_ready(&s));
  run_for(&s, HARP_MS(10), HARP_US(500));
  assert_false(control_is_ready(&s));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK); /* nothing waits for the peer */
  submit(s.link, data, sizeof data);
  run_for(&s, HARP_MS(10), HARP_US(500));
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE); /* now something does */
  close_scene(&s);
}

static void test_end_is_not_waited_for_again(void **state) {
  (void)state;
  end_without_requests(HARP_ROLE_SENDER);
  end_without_requests(HARP_ROLE_RECEIVER);
}

static void test_nonsense_is_not_waited_for_again(void **state) {
  (void)state;
  struct scene s;
  static uint8_t junk[300];
  open_scene(&s, HARP_ROLE_RECEIVER);
  assert_int_equal(send(s.peer, junk, sizeof junk, 0), sizeof junk);
  run_for(&s, HARP_MS(10), HARP_US(500));
  assert_false(control_is_ready(&s));
  close_scene(&s);
}

/* The paths are broken and the peer's process answers: an error at the peer timeout, after a bounded number
 * of questions. */
static void test_answering_peer_without_packets_fails(void **state) {
  (void)state;
  struct scene s;
  static uint8_t data[64];
  unsigned pings = 0;
  open_scene(&s, HARP_ROLE_SENDER);
  submit(s.link, data, sizeof data);
  harp_ns begin = now_ns;
  while (!atomic_load(&s.link->status) && now_ns < begin + 2 * PEER_TIMEOUT_NS) {
    run_for(&s, HARP_MS(5), HARP_US(500));
    pings += hear_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "is UDP allowed"));
  assert_true(now_ns - begin >= PEER_TIMEOUT_NS && now_ns - begin < PEER_TIMEOUT_NS + HARP_SEC(1));
  assert_in_range(pings, 2, 32);
  close_scene(&s);
}

/* A peer that was stopped for longer than the peer timeout answers all that waited for it at once, in any
 * order: its first PONG may be here before its first acknowledgement. */
static void test_woken_peer_is_given_time(void **state) {
  (void)state;
  struct scene s;
  static uint8_t data[64];
  open_scene(&s, HARP_ROLE_SENDER);
  submit(s.link, data, sizeof data);
  run_for(&s, 3 * PEER_TIMEOUT_NS, HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_true(hear_pings(&s, true) > 0);
  run_for(&s, HARP_SEC(1), HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  /* But it is not given more than some time. */
  for (unsigned i = 0; i < 2000 && !atomic_load(&s.link->status); i++) {
    run_for(&s, HARP_MS(5), HARP_MS(1));
    hear_pings(&s, true);
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  close_scene(&s);
}

/* It answered when the paths fell silent, and was stopped then: its silence says nothing about the paths. */
static void test_peer_stopped_in_a_stall_is_waited_for(void **state) {
  (void)state;
  struct scene s;
  static uint8_t data[64];
  open_scene(&s, HARP_ROLE_SENDER);
  submit(s.link, data, sizeof data);
  for (unsigned i = 0; i < 1000 && !hear_pings(&s, true); i++) run_for(&s, HARP_MS(5), HARP_MS(1));
  assert_int_equal(s.pongs, 1);
  run_for(&s, 3 * PEER_TIMEOUT_NS, HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  close_scene(&s);
}

/* ---- with several interfaces ---- */

/* Resets the control connection, as the kernel of a peer that has heard nothing for too long does: it closes
 * with something unread. */
static void reset(struct scene *s) {
  assert_int_equal(send(s->link->monitor.fd, "unread", 6, MSG_NOSIGNAL), 6);
  close(s->peer);
  s->peer = -1;
  run_for(s, HARP_MS(10), HARP_US(500));
}

/* The same while packets come. */
static void run_hearing(struct scene *s, harp_ns ns, harp_ns step_ns) {
  for (harp_ns end = now_ns + ns; now_ns < end && !atomic_load(&s->link->status); now_ns += step_ns) {
    s->link->heard_ns = now_ns;
    harp_engine_pass(s->engine);
  }
}

static void test_reset_with_one_interface_fails(void **state) {
  (void)state;
  struct scene s;
  static uint8_t data[64];
  open_scene(&s, HARP_ROLE_RECEIVER);
  submit(s.link, data, sizeof data);
  reset(&s);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_false(s.link->monitor.lost);
  close_scene(&s);
}

/* It goes on while anything is heard, whatever waits for the peer; silence for the peer timeout ends it. */
static void lost_and_then_silent(enum harp_role role) {
  struct scene s;
  static uint8_t data[64];
  open_scene_with(&s, role, 2);
  submit(s.link, data, sizeof data);
  reset(&s);
  assert_true(s.link->monitor.lost && !s.link->monitor.gone);
  assert_false(control_is_ready(&s)); /* nor does it keep the runner awake */
  run_hearing(&s, 3 * PEER_TIMEOUT_NS, HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  harp_ns begin = now_ns;
  run_for(&s, 2 * PEER_TIMEOUT_NS, HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "nothing has come over any path for 8 s"));
  assert_in_range(now_ns - begin, PEER_TIMEOUT_NS - HARP_MS(2), PEER_TIMEOUT_NS * 5 / 4);
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
  static uint8_t data[64];
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  submit(s.link, data, sizeof data);
  reset(&s);
  run_hearing(&s, PEER_TIMEOUT_NS, HARP_MS(1));
  now_ns += 3 * PEER_TIMEOUT_NS;
  run_for(&s, PEER_TIMEOUT_NS / 2, HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  run_for(&s, PEER_TIMEOUT_NS, HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  close_scene(&s);
}

/* As with a control connection that is closed: only who waits for the peer has an error. */
static void test_lost_without_requests_waits(void **state) {
  (void)state;
  struct scene s;
  static uint8_t data[64];
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  reset(&s);
  run_for(&s, 3 * PEER_TIMEOUT_NS, HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  submit(s.link, data, sizeof data);
  run_for(&s, PEER_TIMEOUT_NS, HARP_MS(1));
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  close_scene(&s);
}

/* A process that ends is no broken network, however many interfaces there are. */
static void test_end_with_several_interfaces_fails(void **state) {
  (void)state;
  struct scene s;
  static uint8_t data[64];
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  submit(s.link, data, sizeof data);
  close(s.peer);
  s.peer = -1;
  run_for(&s, HARP_MS(10), HARP_US(500));
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "the process ended"));
  close_scene(&s);
}

/* Nor is one that said goodbye, whatever its kernel did afterwards. */
static void test_reset_after_final_fails(void **state) {
  (void)state;
  struct scene s;
  static uint8_t data[64];
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  open_scene_with(&s, HARP_ROLE_RECEIVER, 2);
  submit(s.link, data, sizeof data);
  size_t bytes = harp_control_encode_final(out, s.keys.rx, 0, &(struct harp_final){0});
  assert_int_equal(send(s.peer, out, bytes, 0), bytes);
  run_for(&s, HARP_MS(10), HARP_US(500));
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  reset(&s);
  assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
  assert_non_null(strstr(s.link->error, "closed its connection"));
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_end_is_not_waited_for_again),
      cmocka_unit_test(test_nonsense_is_not_waited_for_again),
      cmocka_unit_test(test_answering_peer_without_packets_fails),
      cmocka_unit_test(test_woken_peer_is_given_time),
      cmocka_unit_test(test_peer_stopped_in_a_stall_is_waited_for),
      cmocka_unit_test(test_reset_with_one_interface_fails),
      cmocka_unit_test(test_lost_and_then_silent),
      cmocka_unit_test(test_silence_while_stopped_is_nobodys),
      cmocka_unit_test(test_lost_without_requests_waits),
      cmocka_unit_test(test_end_with_several_interfaces_fails),
      cmocka_unit_test(test_reset_after_final_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
