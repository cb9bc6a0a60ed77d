/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/pending_peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/files.h"
#include "base/identity.h"
#include "base/log_limit.h"
#include "engine/engine.h"
#include "engine/inbound.h"
#include "engine/peer_life.h"
#include "engine/routes.h"
#include "host/random.h"

/* The number of reads for one event, or one poll of connect; what is left is an event again. */
enum { READS_PER_EVENT = 4 };

static void describe_self(struct harp_engine *e, uint64_t token, const struct harp_connect_name *name,
                          uint32_t first_number, struct harp_endpoint *self) {
  *self = (struct harp_endpoint){
      .token = token,
      .window_bytes = harp_inbound_window_bytes(e),
      .eni_count = (uint16_t)e->eni_count,
      .pid = (uint32_t)getpid(),
      .auth = e->instance.auth == HARP_AUTH_MAC ? HARP_AUTH_KIND_MAC : HARP_AUTH_KIND_NONE,
  };
  if (name) {
    self->first_line = name->first_line;
    self->first_message = name->first_message;
    self->first_number = first_number;
    self->attempt = name->attempt;
  }
  for (unsigned i = 0; i < e->eni_count; i++) {
    harp_routes_describe(e, i, &self->enis[i]);
    unsigned paths = self->enis[i].port_count ? self->enis[i].port_count : e->enis[i].paths;
    self->path_count = (uint16_t)HARP_MAX(self->path_count, paths);
  }
  if (gethostname(self->name, sizeof self->name - 1)) snprintf(self->name, sizeof self->name, "unnamed host");
  snprintf(self->build, sizeof self->build, "HARP %s", harp_version());
}

/* Makes a token: upper half the engine's, so that a driver can sort out packets of other processes without
 * looking for a connection, then 16 random bits, then the slot. */
static uint64_t token_of(const struct harp_engine *e, uint16_t random, int slot) {
  HARP_ASSERT(slot >= 0 && slot < HARP_ENGINE_PEERS_MAX);
  return (uint64_t)e->token_prefix << 32 | (uint64_t)random << 16 | (uint64_t)slot;
}

/* Reserves a slot, and describes this side: as the client, for this connect; NULL: as the server. Returns 0
 * or -errno. */
static int make_self(struct harp_pending_peer *p, struct harp_engine *e, const struct harp_connect_name *name,
                     struct harp_endpoint *self, uint8_t nonce[HARP_NONCE_BYTES]) {
  struct {
    uint32_t first_number;
    uint8_t nonce[HARP_NONCE_BYTES];
    uint16_t token;
  } fresh;
  HARP_ASSERT(p->fd >= 0 && p->slot < 0);
  int err = harp_random_fill(&fresh, sizeof fresh);
  if (err) return err;
  p->slot = harp_engine_reserve_slot(e);
  if (p->slot < 0) return -HARP_EPEERS;
  describe_self(e, token_of(e, fresh.token, p->slot), name, fresh.first_number, self);
  memcpy(nonce, fresh.nonce, HARP_NONCE_BYTES);
  return 0;
}

int harp_pending_peer_start(struct harp_pending_peer *p, struct harp_engine *e,
                            const struct harp_connect_name *name, const uint8_t secret[HARP_SECRET_BYTES]) {
  struct harp_endpoint self;
  uint8_t nonce[HARP_NONCE_BYTES];
  int err = make_self(p, e, name, &self, nonce);
  if (!err)
    harp_handshake_init(&p->handshake, true, secret, nonce, HARP_WIRE_VERSION_MIN, HARP_WIRE_VERSION, &self);
  return err;
}

void harp_pending_peer_listen(struct harp_pending_peer *p, const uint8_t secret[HARP_SECRET_BYTES]) {
  harp_handshake_init(&p->handshake, false, secret, NULL, HARP_WIRE_VERSION_MIN, HARP_WIRE_VERSION, NULL);
}

int harp_pending_peer_on_proved(struct harp_pending_peer *p, struct harp_engine *e) {
  struct harp_endpoint self;
  uint8_t nonce[HARP_NONCE_BYTES];
  int err = make_self(p, e, NULL, &self, nonce);
  if (!err) harp_handshake_describe(&p->handshake, nonce, &self);
  return err;
}

void harp_pending_peer_end(struct harp_pending_peer *p, struct harp_engine *e) {
  if (p->fd >= 0) {
    shutdown(p->fd, SHUT_RDWR);
    harp_files_close(p->fd);
  }
  if (p->slot >= 0) harp_engine_release_slot(e, (uint32_t)p->slot);
  p->fd = p->slot = -1;
}

bool harp_pending_peer_is_mute(const struct harp_pending_peer *p) {
  return p->handshake.state == HARP_HANDSHAKE_WAIT_HELLO && !p->handshake.in_bytes;
}

bool harp_pending_peer_has_unsent(const struct harp_pending_peer *p) {
  return p->handshake.out_sent < p->handshake.out_bytes;
}

/* Returns 0, or -errno when the connection broke. */
static int send_unsent(struct harp_pending_peer *p) {
  struct harp_handshake *h = &p->handshake;
  while (harp_pending_peer_has_unsent(p)) {
    ssize_t n = send(p->fd, h->out + h->out_sent, h->out_bytes - h->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    h->out_sent += (uint32_t)n;
  }
  return 0;
}

int harp_pending_peer_run(struct harp_pending_peer *p) {
  struct harp_handshake *h = &p->handshake;
  uint8_t in[HARP_CONTROL_MAX_BYTES];
  HARP_ASSERT(p->fd >= 0);
  int err = send_unsent(p);
  for (unsigned reads = 0; reads < READS_PER_EVENT && !err && !harp_pending_peer_has_unsent(p); reads++) {
    size_t wants = harp_handshake_wants(h);
    if (!wants) break;
    ssize_t n = recv(p->fd, in, HARP_MIN(wants, sizeof in), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0) return -ECONNRESET;
    harp_handshake_on_bytes(h, in, (size_t)n);
    err = send_unsent(p);
  }
  return err;
}

bool harp_pending_peer_is_done(const struct harp_pending_peer *p) {
  return p->handshake.state == HARP_HANDSHAKE_DONE && !harp_pending_peer_has_unsent(p);
}

void harp_link_log_connected(const struct harp_link *link) {
  link->engine->counters.connections++;
  HARP_INFO("%s: connected %s %s, %u path(s) of datagrams, %u of TCP, wire version %u%s, %s",
            link->engine->name, link->role == HARP_ROLE_SENDER ? "to" : "from", link->peer->name,
            link->peer->route_count, link->peer->tcp_count, HARP_WIRE_VERSION,
            link->peer->session.has_macs ? " with MACs" : "", link->peer->build);
}

/* Logs why a handshake that is done brings no link. For the side that connects it is the WARN of the error
 * that it returns. On the side that listens no call fails, and whoever holds the secret can cause it. */
static void log_no_link(struct harp_engine *e, enum harp_role role, const char *name, int error) {
  char text[HARP_LIMIT_TEXT_BYTES];
  harp_limit_text(error, text);
  if (role == HARP_ROLE_SENDER)
    HARP_WARN("%s: no connection with %s: %s", e->name, name, text);
  else
    HARP_INFO_LIMITED(&e->strangers_log, e->clock(), "%s: no connection with %s: %s", e->name, name, text);
}

struct harp_connect_name harp_pending_peer_name(const struct harp_pending_peer *p) {
  const struct harp_endpoint *client = &p->handshake.peer;
  HARP_ASSERT(!p->handshake.client);
  return (struct harp_connect_name){.engine_id = (uint32_t)(client->token >> 32),
                                    .first_line = client->first_line,
                                    .first_message = client->first_message,
                                    .attempt = client->attempt};
}

struct harp_peer *harp_pending_peer_finish(struct harp_pending_peer *p, struct harp_engine *e,
                                           enum harp_role role, int traffic_class) {
  struct harp_peer_config config = {
      .is_client = role == HARP_ROLE_SENDER,
      .slot = (uint32_t)p->slot,
      .keys = p->handshake.keys,
      .macs = p->handshake.macs,
      .control = p->handshake.control,
      .control_fd = p->fd,
      .local = &p->handshake.local,
      .peer = &p->handshake.peer,
      .peer_addr = p->peer_addr,
      .traffic_class = traffic_class,
  };
  HARP_ASSERT(harp_pending_peer_is_done(p) && p->slot >= 0);
  struct harp_peer *peer = harp_peer_create(e, &config);
  p->fd = -1;
  if (peer) {
    p->slot = -1;
    return peer;
  }
  harp_pending_peer_end(p, e);
  log_no_link(e, role, p->handshake.peer.name, ENOMEM);
  return NULL;
}

struct harp_link_config harp_pending_peer_stream(const struct harp_pending_peer *p, enum harp_role role) {
  const struct harp_endpoint *client = role == HARP_ROLE_SENDER ? &p->handshake.local : &p->handshake.peer;
  return (struct harp_link_config){
      .role = role, .first_line = client->first_line, .first_message = client->first_message};
}

void harp_pending_peer_abandon(struct harp_peer *peer, enum harp_role role, int err) {
  log_no_link(peer->engine, role, peer->name, -err);
  harp_peer_destroy(peer);
}

void harp_pending_peer_refusal_text(const struct harp_handshake *h, char *text, size_t bytes) {
  enum harp_refusal why = h->refusal == HARP_REFUSAL_PEER ? h->peer_refusal : h->refusal;
  if (why == HARP_REFUSAL_VERSION)
    snprintf(text, bytes,
             "it speaks wire versions %u to %u, this plugin %u to %u: install the same %s on both hosts",
             h->peer_version_min, h->peer_version_max, h->version_min, h->version_max, harp_plugin_name());
  else
    snprintf(text, bytes, "%s%s", h->refusal == HARP_REFUSAL_PEER ? "the peer's reason: " : "",
             harp_refusal_text(why));
}
