/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/edge.h"

#include <stdlib.h>
#include <string.h>

#include "models/memory.h"
#include "models/probe.h"

enum {
  SOCKET_PART_MIN_BYTES = 64 << 10, /* NCCL's Socket cuts a message into parts of this size at least */
};

/* One direction of a path of a session. */
struct edge_trip {
  struct trip trip; /* first: the rest is found from it */
  struct flow_path *path;
  bool is_ack;
};

struct edge_path {
  struct edge_trip there, back;
};

static void on_progress(struct edge *e, uint64_t received, harp_ns now) {
  if (received == e->received) return;
  e->received = received;
  if (edge_is_done(e)) e->done_ns = now;
  e->on_received(e, now);
}

/* ---- HARP ---- */

static void on_message(struct flow *f, unsigned stream, harp_ns now) {
  struct edge *e = f->owner;
  on_progress(e, f->traffic[stream].received_bytes / e->config.message_bytes, now);
}

static void lose_packet(struct trip *t, const struct parcel *p) {
  struct edge_trip *one = HARP_CONTAINER_OF(t, struct edge_trip, trip);
  if (one->is_ack)
    lane_release(p->ack);
  else
    one->path->lost++;
}

static void route_path(struct edge *e, unsigned i, unsigned each, uint64_t port) {
  struct flow_path *path = &e->flow->paths[i];
  struct edge_path *p = &e->paths[i];
  struct hop *cap = e->caps ? &e->caps[i] : NULL;
  uint16_t from = (uint16_t)e->config.from, to = (uint16_t)e->config.to;
  uint8_t interface = (uint8_t)(i / each);
  p->there = (struct edge_trip){.trip = {.to = &path->data, .lose = lose_packet}, .path = path};
  p->back =
      (struct edge_trip){.trip = {.to = &path->acks, .lose = lose_packet}, .path = path, .is_ack = true};
  fabric_route(e->fabric, &p->there.trip, &(struct fabric_ends){from, to, interface, interface, port}, cap);
  fabric_route(e->fabric, &p->back.trip, &(struct fabric_ends){to, from, interface, interface, port}, NULL);
  path->there.trip = &p->there.trip;
  path->back.trip = &p->back.trip;
}

static void pause_hosts(struct edge *e, uint64_t seed) {
  const struct cluster_scenario *s = e->fabric->scenario;
  if (!s->jitter_us) return;
  struct host *hosts[] = {&e->flow->sender_host, &e->flow->receiver_host};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(hosts); i++)
    host_init(hosts[i], (harp_ns)(s->jitter_every_us * 1e3), HOST_PAUSE_MIN_NS, (harp_ns)(s->jitter_us * 1e3),
              seed + i);
}

static void open_session(struct edge *e, uint64_t seed) {
  const struct cluster_scenario *s = e->fabric->scenario;
  unsigned each = (unsigned)s->paths;
  uint32_t lines = ((uint32_t)s->mtu - FLOW_HEADERS_BYTES) / HARP_LINE_BYTES;
  struct flow_config c = {.path_count = e->fabric->interfaces * each,
                          .stream_count = 1,
                          .window_bytes = (uint32_t)(s->window_kb * 1024),
                          .cc = probe_cc(s->cc),
                          .seed = seed};
  for (unsigned i = 0; i < c.path_count; i++)
    c.paths[i] = (struct harp_path_config){.lines_max = HARP_MIN(lines, (uint32_t)HARP_PACKET_MAX_LINES),
                                           .local_eni = (uint8_t)(i / each),
                                           .remote_eni = (uint8_t)(i / each),
                                           .ecn = s->mark_kb > 0};
  e->flow = take_memory(1, sizeof *e->flow);
  flow_init(e->flow, e->fabric->agenda, &c);
  e->paths = take_memory(c.path_count, sizeof e->paths[0]);
  for (unsigned i = 0; i < c.path_count; i++) route_path(e, i, each, seed + i);
  pause_hosts(e, seed);
  e->flow->owner = e;
  e->flow->on_received = on_message;
  e->flow->traffic[0] = (struct traffic){
      .message_bytes = e->config.message_bytes, .depth = (uint32_t)s->depth, .allowed = &e->allowed};
  flow_start(e->flow);
}

/* ---- TCP ---- */

static void on_socket(struct socket *socket, harp_ns now) {
  struct edge *e = socket->owner;
  uint64_t least = socket->received;
  for (unsigned i = 0; i < e->socket_count; i++) least = HARP_MIN(least, e->sockets[i].received);
  on_progress(e, least / e->segments, now);
  edge_advance(e, now); /* the receiver has room for more */
}

static void open_sockets(struct edge *e, uint64_t seed) {
  const struct cluster_scenario *s = e->fabric->scenario;
  const struct edge_config *c = &e->config;
  uint32_t segment = (uint32_t)s->mtu - CUBIC_HEADERS_BYTES;
  uint32_t parts = (c->message_bytes + SOCKET_PART_MIN_BYTES - 1) / SOCKET_PART_MIN_BYTES;
  e->socket_count = HARP_MIN((unsigned)s->sockets, (unsigned)parts);
  e->segments = (c->message_bytes / e->socket_count + segment - 1) / segment;
  e->sockets = take_memory(e->socket_count, sizeof e->sockets[0]);
  uint8_t interface =
      (uint8_t)((c->channel + e->fabric->hosts + c->to - c->from - 1) % e->fabric->interfaces);
  uint16_t from = (uint16_t)c->from, to = (uint16_t)c->to;
  for (unsigned i = 0; i < e->socket_count; i++) {
    struct socket *socket = &e->sockets[i];
    socket_init(socket, e->fabric->agenda, segment, seed + i);
    socket->owner = e;
    socket->on_progress = on_socket;
    struct hop *cap = e->caps ? &e->caps[i] : NULL;
    fabric_route(e->fabric, &socket->there.trip,
                 &(struct fabric_ends){from, to, interface, interface, seed + i}, cap);
    fabric_route(e->fabric, &socket->back.trip,
                 &(struct fabric_ends){to, from, interface, interface, seed + i}, NULL);
  }
}

/* NCCL's receiver has room for `depth` messages. */
static void write_sockets(struct edge *e, harp_ns now) {
  uint64_t until = HARP_MIN(e->allowed, e->received + (uint64_t)e->fabric->scenario->depth);
  if (until <= e->written) return;
  uint64_t segments = (until - e->written) * e->segments;
  e->written = until;
  for (unsigned i = 0; i < e->socket_count; i++) socket_write(&e->sockets[i], segments, now);
}

/* ---- both ---- */

static void on_start(struct source *source, harp_ns now) {
  struct edge *e = HARP_CONTAINER_OF(source, struct edge, start);
  e->has_begun = true;
  edge_advance(e, now);
}

void edge_init(struct edge *e, struct fabric *f, const struct edge_config *c) {
  const struct cluster_scenario *s = f->scenario;
  *e = (struct edge){.config = *c, .fabric = f};
  source_init(&e->start, on_start);
  struct rng rng = {(uint64_t)s->seed + ((uint64_t)c->from << 40 | (uint64_t)c->to << 20 | c->channel)};
  uint64_t seed = rng_next(&rng);
  unsigned ways = HARP_MAX(f->interfaces * (unsigned)s->paths, (unsigned)s->sockets);
  if (s->cap) {
    e->caps = take_memory(ways, sizeof e->caps[0]);
    for (unsigned i = 0; i < ways; i++) fabric_init_cap(f, &e->caps[i]);
  }
  if (!strcmp(s->transport, "tcp"))
    open_sockets(e, seed);
  else
    open_session(e, seed);
}

void edge_fini(struct edge *e) {
  if (e->flow) flow_fini(e->flow);
  for (unsigned i = 0; i < e->socket_count; i++) socket_fini(&e->sockets[i]);
  unsigned ways = HARP_MAX(e->fabric->interfaces * (unsigned)e->fabric->scenario->paths,
                           (unsigned)e->fabric->scenario->sockets);
  for (unsigned i = 0; e->caps && i < ways; i++) hop_fini(&e->caps[i]);
  free(e->flow);
  free(e->paths);
  free(e->sockets);
  free(e->caps);
  free(e->before);
  free(e->after);
}

static void append(struct edge ***list, unsigned *count, struct edge *one) {
  *list = realloc(*list, (*count + 1) * sizeof(struct edge *));
  if (!*list) abort();
  (*list)[(*count)++] = one;
}

void edge_wait_for(struct edge *e, struct edge *source) {
  append(&e->before, &e->before_count, source);
  append(&source->after, &source->after_count, e);
}

void edge_begin(struct edge *e, harp_ns at) {
  e->base = e->received;
  e->done_ns = 0;
  e->has_begun = false;
  agenda_set(e->fabric->agenda, &e->start, at);
}

void edge_advance(struct edge *e, harp_ns now) {
  const struct edge_config *c = &e->config;
  if (!e->has_begun) return;
  uint64_t allowed = c->messages;
  for (unsigned i = 0; i < e->before_count; i++) {
    const struct edge *b = e->before[i];
    uint64_t come = b->received - b->base;
    uint64_t until = c->is_gate ? (edge_is_done(b) ? c->messages : 0) : c->first + come;
    allowed = HARP_MIN(allowed, until);
  }
  e->allowed = HARP_MAX(e->allowed, e->base + allowed);
  if (e->flow)
    flow_wake(e->flow);
  else
    write_sockets(e, now);
}
