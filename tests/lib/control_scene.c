/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/control_scene.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/address.h"
#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "engine/peer_life.h"
#include "io/sim.h"
#include "lib/new_link.h"

enum {
  PORT = 1000,
  SLOT_TOKEN = 0x10000, /* the link's token, less its slot */
  PEER_TOKEN = 0x20000,
};

harp_ns scene_now_ns;
uint8_t scene_payload[SCENE_PAYLOAD_BYTES];
uint16_t scene_peer_tcp_port, scene_peer_answer_port;
bool scene_epoll_is_full;

static harp_ns virtual_clock(void) {
  return scene_now_ns;
}

/* The network loses everything: the link stalls as soon as it sends. */
static void carry(void *wire, unsigned port, const struct sockaddr_storage *to, const uint8_t *data,
                  uint32_t bytes, bool ect) {
  (void)wire, (void)port, (void)to, (void)data, (void)bytes, (void)ect;
}

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
                                           .mtu = SCENE_MTU,
                                           .tcp_port = token == PEER_TOKEN ? scene_peer_tcp_port : 0,
                                           .answer_port = token == PEER_TOKEN ? scene_peer_answer_port : 0,
                                           .port_count = 1,
                                           .ports = {s->engine->io->info.ports[0]}};
  return e;
}

void scene_open_with(struct scene *s, enum harp_role role, uint16_t peer_enis) {
  struct harp_instance instance = {.ifname = "sim0",
                                   .mtu = SCENE_MTU,
                                   .paths = 1,
                                   .peer_timeout_ns = SCENE_PEER_TIMEOUT_NS,
                                   .stall_ns = SCENE_STALL_NS};
  struct harp_io_sim_config config = {
      .port_count = 1, .first_port = PORT, .send = carry, .wire = s, .counters = &s->wire_counters};
  struct harp_error error = {0};
  int pair[2];
  instance.addr = harp_address_make(4, (const uint8_t[]){127, 0, 0, 1}, 0, 0);
  scene_now_ns = HARP_SEC(1);
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
  if (scene_epoll_is_full) s->engine->ready.fd = -1;
  s->link = new_link(s->engine, &link);
  s->engine->ready.fd = fd_of_set;
  assert_non_null(s->link);
}

void scene_open(struct scene *s, enum harp_role role) {
  scene_open_with(s, role, 1);
}

void scene_close(struct scene *s) {
  harp_link_destroy(s->link);
  harp_engine_close(s->engine);
  if (s->peer >= 0) close(s->peer);
}

void scene_submit(struct harp_link *link) {
  struct harp_request *r = &link->requests[0];
  r->data = scene_payload;
  r->capacity = sizeof scene_payload;
  atomic_store(&r->state, HARP_REQUEST_POSTED);
  assert_true(harp_spsc_push(&link->submit, r));
  harp_engine_ring_mt(link->engine, link->slot);
}

void scene_run_for(struct scene *s, harp_ns ns, harp_ns step_ns) {
  for (harp_ns end = scene_now_ns + ns; scene_now_ns < end && !atomic_load(&s->link->status);
       scene_now_ns += step_ns)
    harp_engine_pass(s->engine);
}

unsigned scene_receive_pings(struct scene *s, bool answer) {
  static uint8_t in[SCENE_IN_BYTES];
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

int scene_listen(void) {
  struct sockaddr_storage a = harp_address_make(4, (const uint8_t[]){127, 0, 0, 1}, 0, 0);
  socklen_t n = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (const struct sockaddr *)&a, harp_address_bytes(&a)), 0);
  assert_int_equal(listen(fd, 64), 0); /* nobody accepts */
  assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
  scene_peer_tcp_port = harp_address_port(&a);
  return fd;
}
