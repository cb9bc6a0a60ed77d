#include "engine/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/copy.h"
#include "base/log.h"
#include "engine/engine.h"
#include "proto/pairing.h"

/* ---- making ---- */

static struct sockaddr_storage eni_address(const struct harp_endpoint_eni *eni, uint16_t port,
                                           uint32_t scope) {
  struct sockaddr_storage a = {0};
  if (eni->family == 6) {
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    in6->sin6_scope_id = scope;
    memcpy(&in6->sin6_addr, eni->addr, 16);
  } else {
    struct sockaddr_in *in = (struct sockaddr_in *)&a;
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    memcpy(&in->sin_addr, eni->addr, 4);
  }
  return a;
}

static void name_peer(struct harp_link *link, const struct harp_link_config *c) {
  char address[INET6_ADDRSTRLEN] = "?";
  const struct sockaddr_storage *a = &c->peer_addr;
  if (a->ss_family == AF_INET6)
    inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, address, sizeof address);
  else
    inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, address, sizeof address);
  snprintf(link->peer, sizeof link->peer, "%s (%s) process %u", c->peer->name, address, c->peer->pid);
}

/* Lines of payload that fit into a packet of this MTU: IP and UDP headers and our own off, whole lines. */
static uint32_t lines_of_mtu(const struct harp_endpoint_eni *eni, uint32_t mtu) {
  uint32_t headers = (eni->family == 6 ? 40u : 20u) + 8u + HARP_DATA_HEADER_BYTES;
  uint32_t lines = (mtu - headers) / HARP_LINE_BYTES;
  return HARP_MAX(HARP_MIN(lines, (uint32_t)HARP_PACKET_MAX_LINES), (uint32_t)HARP_PACKET_MIN_LINES);
}

/* One end of each path, and what both ends agree on. */
struct span {
  unsigned local_eni, local_port, remote_eni, remote_port;
  uint32_t lines_max;
  bool standby;
};

static struct span span_of(const struct harp_link_config *c, const struct harp_pairing *p) {
  bool is_client = c->role == HARP_ROLE_SENDER;
  struct span s = {
      .local_eni = is_client ? p->client_eni : p->server_eni,
      .local_port = is_client ? p->client_port : p->server_port,
      .remote_eni = is_client ? p->server_eni : p->client_eni,
      .remote_port = is_client ? p->server_port : p->client_port,
      .standby = p->standby,
  };
  const struct harp_endpoint_eni *remote = &c->peer->enis[s.remote_eni];
  s.lines_max = lines_of_mtu(remote, HARP_MIN(c->local->enis[s.local_eni].mtu, remote->mtu));
  return s;
}

/* Says which of our interfaces have no part in the connection, since none of the peer's has an address of
 * their family. */
static void tell_idle_enis(const struct harp_link *link, uint32_t used) {
  for (unsigned eni = 0; eni < link->engine->eni_count; eni++) {
    const struct harp_instance *instance = &link->engine->enis[eni];
    if (used >> eni & 1) continue;
    HARP_INFO("%s carries nothing of the connection with %s, none of whose interfaces has an IPv%d address: "
              "give all interfaces addresses of the same family",
              instance->ifname, link->peer, instance->addr.ss_family == AF_INET6 ? 6 : 4);
  }
}

/* Opens a route for each path that both endpoints allow. */
static bool open_routes(struct harp_link *link, const struct harp_link_config *c,
                        struct harp_path_config paths[HARP_PATHS_MAX]) {
  struct harp_engine *e = link->engine;
  struct harp_pairing pairings[HARP_PATHS_MAX];
  bool is_client = c->role == HARP_ROLE_SENDER;
  uint32_t used = 0;
  unsigned count =
      harp_pairing_make(is_client ? c->local : c->peer, is_client ? c->peer : c->local, pairings);
  for (unsigned i = 0; i < count; i++) {
    struct span s = span_of(c, &pairings[i]);
    const struct sockaddr_in6 *own = (const struct sockaddr_in6 *)&e->enis[s.local_eni].addr;
    const struct harp_endpoint_eni *remote = &c->peer->enis[s.remote_eni];
    struct sockaddr_storage to = eni_address(remote, remote->ports[s.remote_port], own->sin6_scope_id);
    paths[i] = (struct harp_path_config){.lines_max = s.lines_max,
                                         .local_eni = (uint8_t)s.local_eni,
                                         .remote_eni = (uint8_t)s.remote_eni,
                                         .standby = s.standby};
    unsigned port = e->eni_count > 1 ? harp_io_bundle_port(s.local_eni, s.local_port) : s.local_port;
    link->peer_enis[s.remote_eni] = to;
    link->route_enis[i] = (uint8_t)s.local_eni;
    used |= 1u << s.local_eni;
    link->routes[i] = e->io->ops->route_open(e->io, port, &to, c->traffic_class);
    if (!link->routes[i]) return false;
    link->route_count++;
  }
  tell_idle_enis(link, used);
  return count > 0;
}

static bool make_sender(struct harp_link *link, const struct harp_link_config *c,
                        const struct harp_path_config *paths, struct harp_sender **out) {
  struct harp_sender_config config = {
      .first_line = c->local->first_line,
      .first_message = c->local->first_message,
      .first_number = c->local->first_number,
      .path_count = link->route_count,
      .window_max_bytes = c->peer->buffer_bytes,
      .cc = link->engine->cc,
      /* Elsewhere small windows would mean small superframes. */
      .share = link->engine->io->info.single,
  };
  memcpy(config.paths, paths, sizeof config.paths);
  size_t bytes = harp_sender_bytes(link->route_count);
  *out = malloc(bytes);
  if (*out)
    memset(*out, 0xa5, bytes); /* page faults now, not while messages move (zeros would become a calloc) */
  if (*out) harp_sender_init(*out, &config, NULL, &link->engine->counters, link->engine->clock());
  return *out;
}

static bool make_receiver(struct harp_link *link, const struct harp_link_config *c,
                          struct harp_receiver **out) {
  link->staging = harp_engine_take_block(link->engine);
  if (!link->staging) link->staging = malloc(HARP_STAGING_BYTES);
  struct harp_receiver_config config = {
      .first_line = c->peer->first_line,
      .first_message = c->peer->first_message,
      .first_number = c->peer->first_number,
      .path_count = link->route_count,
      .staging = link->staging,
  };
  *out = malloc(sizeof **out);
  if (*out) harp_receiver_init(*out, &config, NULL, &link->engine->counters);
  return *out && link->staging;
}

static bool is_block(const struct harp_engine *e, const void *p) {
  return (uintptr_t)p - (uintptr_t)e->memory < e->block_count * (size_t)HARP_BLOCK_BYTES;
}

static void free_link(struct harp_link *link) {
  struct harp_engine *e = link->engine;
  for (unsigned i = 0; i < link->route_count; i++) e->io->ops->route_close(e->io, link->routes[i]);
  if (link->staging && is_block(e, link->staging))
    harp_engine_give_block(e, link->staging);
  else
    free(link->staging);
  free(link->conn.sender);
  free(link->conn.receiver);
  free(link);
}

struct harp_link *harp_link_create(struct harp_engine *e, const struct harp_link_config *c) {
  struct harp_sender *sender = NULL;
  struct harp_receiver *receiver = NULL;
  struct harp_path_config paths[HARP_PATHS_MAX];
  struct harp_link *link = aligned_alloc(HARP_CACHE_LINE, harp_align_up(sizeof *link, HARP_CACHE_LINE));
  if (!link) {
    close(c->control_fd);
    return NULL;
  }
  memset(link, 0, sizeof *link);
  link->engine = e;
  link->role = c->role;
  link->slot = c->slot;
  link->requests_free = ~0ull;
  link->deadline_ns = HARP_NEVER;
  for (unsigned i = 0; i < HARP_REQUESTS_MAX; i++) link->requests[i].link = link;
  link->is_multihomed = c->local->eni_count > 1 || c->peer->eni_count > 1;
  link->heard_ns = e->clock();
  name_peer(link, c);
  bool ok = open_routes(link, c, paths) && (c->role == HARP_ROLE_SENDER ? make_sender(link, c, paths, &sender)
                                                                        : make_receiver(link, c, &receiver));
  if (ok) {
    harp_conn_init(&link->conn, &c->keys, sender, receiver);
    harp_monitor_init(&link->monitor, c->control_fd, &c->control, e->instance.peer_timeout_ns);
    harp_engine_attach(e, link);
  } else {
    link->conn.sender = sender;
    link->conn.receiver = receiver;
    free_link(link);
    close(c->control_fd);
  }
  return ok ? link : NULL;
}

/* Nothing will become of the requests that are left. */
static void forget_outstanding(struct harp_link *link) {
  link->engine->outstanding -= link->outstanding;
  link->outstanding = 0;
}

void harp_link_destroy(struct harp_link *link) {
  struct harp_engine *e = link->engine;
  harp_engine_lock(e);
  harp_engine_detach(e, link);
  harp_monitor_close(link);
  harp_conn_close(&link->conn, e->clock());
  forget_outstanding(link);
  free_link(link);
  harp_engine_unlock(e);
}

/* ---- moving ---- */

static int submit_send(struct harp_link *link, struct harp_request *r, harp_ns now) {
  return harp_sender_post(link->conn.sender, r->data, r->capacity, r, now);
}

static int submit_receive(struct harp_link *link, struct harp_request *r, harp_ns now) {
  struct harp_placement place;
  const uint8_t *early;
  int err = harp_receiver_post(link->conn.receiver, r->data, r->capacity, r, &place, &early, now);
  if (err) return err;
  for (uint32_t i = 0; i < place.count; i++)
    harp_copy_lines(place.dst + place.runs[i].from, early + place.runs[i].from, place.runs[i].bytes);
  return 0;
}

void harp_link_take_submissions(struct harp_link *link, harp_ns now) {
  struct harp_request *r;
  while ((r = harp_spsc_peek(&link->submit))) {
    if (link->conn.state == HARP_CONN_OPEN) {
      int err = link->role == HARP_ROLE_SENDER ? submit_send(link, r, now) : submit_receive(link, r, now);
      HARP_ASSERT(
          !err); /* there are as many message slots as requests, and done ones are collected at once */
      link->outstanding++;
      link->engine->outstanding++;
    }
    harp_spsc_pop(&link->submit);
  }
  if (link->monitor.gone && link->outstanding) harp_monitor_on_readable(link, now);
  harp_link_check(link, now);
}

unsigned harp_link_complete(struct harp_link *link) {
  unsigned n = 0;
  void *cookie;
  uint32_t bytes = 0;
  while (link->conn.sender ? harp_sender_poll_done(link->conn.sender, &cookie)
                           : harp_receiver_poll_done(link->conn.receiver, &cookie, &bytes)) {
    struct harp_request *r = cookie;
    r->bytes = link->conn.sender ? r->capacity : bytes;
    atomic_store_explicit(&r->state, HARP_REQUEST_DONE, memory_order_release); /* (E) */
    n++;
  }
  if (link->conn.state != HARP_CONN_OPEN) return n; /* they are forgotten already */
  link->outstanding -= n;
  link->engine->outstanding -= n;
  return n;
}

/* ---- failing ---- */

void harp_link_fail(struct harp_link *link, enum harp_status status, harp_ns now, const char *fmt, ...) {
  if (link->conn.state != HARP_CONN_OPEN) return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(link->error, sizeof link->error, fmt, ap);
  va_end(ap);
  harp_conn_fail(&link->conn, status, now);
  forget_outstanding(link);
  atomic_store_explicit(&link->status, status, memory_order_release); /* (G) */
}

void harp_link_check(struct harp_link *link, harp_ns now) {
  const struct harp_receiver *r = link->conn.receiver;
  if (!r || !r->too_large || link->conn.state != HARP_CONN_OPEN) return;
  harp_link_fail(link, HARP_ERR_USAGE, now,
                 "%s sends a message of %u bytes, but the receive posted for it on %s holds only %u bytes",
                 link->peer, r->too_large_size, link->engine->name, r->too_large_capacity);
  harp_monitor_send_final(link);
}

static bool overlaps(const struct harp_request *r, const void *data, size_t bytes) {
  uintptr_t a = (uintptr_t)r->data, b = (uintptr_t)data;
  return a < b + bytes && b < a + HARP_MAX(r->capacity, 1u);
}

void harp_link_quiesce(struct harp_link *link, const void *data, size_t bytes) {
  struct harp_engine *e = link->engine;
  harp_engine_lock(e);
  harp_link_take_submissions(link, e->clock());
  for (unsigned i = 0; i < HARP_REQUESTS_MAX; i++) {
    struct harp_request *r = &link->requests[i];
    if (atomic_load_explicit(&r->state, memory_order_relaxed) != HARP_REQUEST_POSTED ||
        !overlaps(r, data, bytes))
      continue;
    harp_link_fail(link, HARP_ERR_INTERNAL, e->clock(),
                   "a buffer was deregistered while the connection with %s still used it", link->peer);
    break;
  }
  harp_engine_unlock(e);
}
