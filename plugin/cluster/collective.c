/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/collective.h"

#include <stdlib.h>
#include <string.h>

struct plan {
  struct collective *c;
  struct fabric *f;
  unsigned hosts, channels;
  double bytes; /* the bytes of each host */
};

struct slices {
  uint64_t count;
  uint32_t bytes;
};

/* Cuts bytes into messages of one size. */
static struct slices cut(const struct plan *p, double bytes) {
  double most = p->f->scenario->message_kb * 1024;
  uint64_t count = (uint64_t)((bytes + most - 1) / most);
  count = HARP_MAX(count, (uint64_t)1);
  uint32_t each = (uint32_t)(bytes / (double)count);
  return (struct slices){count, HARP_MAX(each, (uint32_t)1)};
}

static void take_edges(struct plan *p, size_t count) {
  p->c->edges = calloc(count, sizeof p->c->edges[0]);
  if (!p->c->edges) abort();
}

static void on_received(struct edge *e, harp_ns now) {
  struct collective *c = e->owner;
  for (unsigned i = 0; i < e->after_count; i++) edge_advance(e->after[i], now);
  if (edge_is_done(e) && ++c->done == c->count) c->on_done(c, now);
}

static struct edge *add_edge(struct plan *p, const struct edge_config *config) {
  struct edge *e = &p->c->edges[p->c->count++];
  edge_init(e, p->f, config);
  e->owner = p->c;
  e->on_received = on_received;
  return e;
}

/* Each host sends its part of the data around, then what it has reduced: 2 (n - 1) steps, of which each waits
 * for the step before of its neighbour. */
static void plan_ring(struct plan *p) {
  take_edges(p, (size_t)p->hosts * p->channels);
  struct slices part = cut(p, p->bytes / p->channels / p->hosts);
  for (unsigned channel = 0; channel < p->channels; channel++) {
    struct edge *ring = &p->c->edges[p->c->count];
    for (unsigned host = 0; host < p->hosts; host++)
      add_edge(p, &(struct edge_config){.from = host,
                                        .to = (host + 1) % p->hosts,
                                        .channel = channel,
                                        .message_bytes = part.bytes,
                                        .messages = 2 * (uint64_t)(p->hosts - 1) * part.count,
                                        .first = part.count});
    for (unsigned host = 0; host < p->hosts; host++) edge_wait_for(&ring[(host + 1) % p->hosts], &ring[host]);
  }
  p->c->host_bytes = (uint64_t)(2 * p->bytes * (p->hosts - 1) / p->hosts);
  p->c->steps = 2 * (p->hosts - 1);
}

/* Returns the parent of a node, which is not the root 0, in the binary tree in order: a node whose lowest bit
 * is b is between its children, b / 2 before and behind it. The root has one child. */
static unsigned parent_of(unsigned node, unsigned hosts) {
  unsigned bit = node & -node, above = (node ^ bit) | bit << 1;
  return above < hosts ? above : node ^ bit;
}

/* Returns the host of a node in the second tree of a pair: the first one mirrored, or where the number of
 * hosts is odd shifted, so that a host with two children is a leaf of the other tree (Sanders et al. 2009).
 */
static unsigned host_of(unsigned node, unsigned hosts, bool is_second) {
  if (!is_second) return node;
  return hosts % 2 ? (node + 1) % hosts : hosts - 1 - node;
}

/* Slices go up when both children's have come, and down when the parent's has. */
static void plan_tree(struct plan *p, unsigned channel, bool is_second) {
  struct slices half = cut(p, p->bytes / p->channels / 2);
  struct edge *up = &p->c->edges[p->c->count], *down = up + p->hosts - 1;
  for (unsigned way = 0; way < 2; way++) {
    for (unsigned node = 1; node < p->hosts; node++) {
      unsigned ends[2] = {host_of(node, p->hosts, is_second),
                          host_of(parent_of(node, p->hosts), p->hosts, is_second)};
      add_edge(p, &(struct edge_config){.from = ends[way],
                                        .to = ends[!way],
                                        .channel = channel,
                                        .message_bytes = half.bytes,
                                        .messages = half.count});
    }
  }
  for (unsigned node = 1; node < p->hosts; node++) {
    unsigned parent = parent_of(node, p->hosts);
    if (parent) {
      edge_wait_for(&up[parent - 1], &up[node - 1]);
      edge_wait_for(&down[node - 1], &down[parent - 1]);
    } else {
      edge_wait_for(&down[node - 1], &up[node - 1]);
    }
  }
}

static void plan_trees(struct plan *p) {
  take_edges(p, 4 * (size_t)(p->hosts - 1) * p->channels);
  for (unsigned channel = 0; channel < p->channels; channel++) {
    plan_tree(p, channel, false);
    plan_tree(p, channel, true);
  }
  /* It receives from a parent and two children in one tree, and from a parent in the other. */
  unsigned halves = HARP_MIN(p->hosts, 4u);
  p->c->host_bytes = (uint64_t)(halves * p->bytes / 2);
  for (unsigned level = 1; level < p->hosts; level *= 2) p->c->steps += 2;
}

/* Each host sends to the next ones first, to `peers` at a time. */
static void plan_all_to_all(struct plan *p) {
  unsigned others = p->hosts - 1, peers = (unsigned)p->f->scenario->peers;
  take_edges(p, (size_t)p->hosts * others * p->channels);
  struct slices part = cut(p, p->bytes / others / p->channels);
  for (unsigned host = 0; host < p->hosts; host++) {
    struct edge *own = &p->c->edges[p->c->count];
    for (unsigned i = 0; i < others * p->channels; i++) {
      struct edge *e = add_edge(p, &(struct edge_config){.from = host,
                                                         .to = (host + 1 + i / p->channels) % p->hosts,
                                                         .channel = i % p->channels,
                                                         .message_bytes = part.bytes,
                                                         .messages = part.count,
                                                         .is_gate = true});
      if (i >= peers * p->channels) edge_wait_for(e, &own[i - peers * p->channels]);
    }
  }
  p->c->host_bytes = (uint64_t)p->bytes;
  p->c->steps = (others + peers - 1) / peers;
}

static void plan_incast(struct plan *p) {
  take_edges(p, (size_t)(p->hosts - 1) * p->channels);
  struct slices part = cut(p, p->bytes / p->channels);
  for (unsigned i = 0; i < (p->hosts - 1) * p->channels; i++)
    add_edge(p, &(struct edge_config){.from = 1 + i / p->channels,
                                      .channel = i % p->channels,
                                      .message_bytes = part.bytes,
                                      .messages = part.count});
  p->c->host_bytes = (uint64_t)(p->bytes * (p->hosts - 1));
  p->c->steps = 1;
}

void collective_init(struct collective *c, struct fabric *f) {
  const struct cluster_scenario *s = f->scenario;
  *c = (struct collective){
      .hosts = f->hosts, .skew_ns = (harp_ns)(s->skew_us * 1e3), .rng.state = (uint64_t)s->seed};
  struct plan p = {.c = c,
                   .f = f,
                   .hosts = f->hosts,
                   .channels = cluster_scenario_channels(s),
                   .bytes = s->size_mb * (1 << 20)};
  if (!strcmp(s->collective, "ring")) plan_ring(&p);
  if (!strcmp(s->collective, "tree")) plan_trees(&p);
  if (!strcmp(s->collective, "alltoall")) plan_all_to_all(&p);
  if (!strcmp(s->collective, "incast")) plan_incast(&p);
}

void collective_fini(struct collective *c) {
  for (size_t i = 0; i < c->count; i++) edge_fini(&c->edges[i]);
  free(c->edges);
}

void collective_begin(struct collective *c, harp_ns now) {
  harp_ns starts[FABRIC_HOSTS_MAX];
  for (unsigned host = 0; host < c->hosts; host++)
    starts[host] = now + rng_below(&c->rng, (uint64_t)(c->skew_ns) + 1);
  c->done = 0;
  for (size_t i = 0; i < c->count; i++) edge_begin(&c->edges[i], starts[c->edges[i].config.from]);
}
