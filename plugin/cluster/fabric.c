/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/fabric.h"

#include <stdlib.h>

#include "models/memory.h"

#define HOST_QUEUE_BYTES ((uint64_t)1 << 40) /* the bound of a host's own queue: no limit */
enum { SWITCH_NS = 500 };

static struct hop *take_hops(struct fabric *f, size_t count, const struct wire *w, harp_ns delay_ns) {
  struct hop *hops = take_memory(count, sizeof *hops);
  for (size_t i = 0; i < count; i++) hop_init(&hops[i], f->agenda, w, delay_ns);
  return hops;
}

static struct wire port(const struct cluster_scenario *s, double gbit_s) {
  return (struct wire){.ps_per_byte = wire_ps_per_byte(gbit_s),
                       .queue_bytes = (uint64_t)HARP_MAX(s->queue_kb * 1024, 2 * s->mtu),
                       .bucket_bytes = (uint64_t)(s->burst_kb * 1024),
                       .mark_ns = (harp_ns)(s->mark_kb * 1024 * 8 / gbit_s)};
}

static void lose_at_random(struct fabric *f) {
  for (unsigned i = 0; i < f->hosts * f->interfaces; i++) {
    f->up[i].loss_ppm = (uint32_t)(f->scenario->loss * 1e4);
    f->up[i].rng.state = (uint64_t)f->scenario->seed + i;
  }
}

static void slow_down(struct fabric *f) {
  const struct cluster_scenario *s = f->scenario;
  uint64_t slow = wire_ps_per_byte(s->rate * s->slow_share);
  for (unsigned i = 0; i < f->interfaces * HARP_MIN((unsigned)s->slow_hosts, f->hosts); i++)
    f->up[i].wire.ps_per_byte = f->down[i].wire.ps_per_byte = slow;
}

/* ---- routes ---- */

static unsigned leaf_of(const struct fabric *f, unsigned host, unsigned interface) {
  unsigned group = host / (unsigned)f->scenario->per_leaf;
  return f->scenario->rails ? group * f->interfaces + interface : group;
}

static unsigned spine_of(const struct fabric *f, const struct fabric_ends *e, unsigned from, unsigned to) {
  uint64_t hash = rng_mix((uint64_t)f->scenario->seed);
  hash = rng_mix(hash ^ e->flow);
  hash = rng_mix(hash ^ ((uint64_t)e->from_host << 48 | (uint64_t)e->to_host << 32 |
                         (uint64_t)e->from_interface << 16 | e->to_interface));
  bool is_avoided = f->is_rerouted && f->spines > 1 && (from == 0 || to == 0);
  return is_avoided ? 1 + (unsigned)(hash % (f->spines - 1)) : (unsigned)(hash % f->spines);
}

static void choose_hops(const struct fabric *f, const struct fabric_trip *one) {
  const struct fabric_ends *e = &one->ends;
  struct trip *t = one->trip;
  unsigned from = e->from_host * f->interfaces + e->from_interface;
  unsigned to = e->to_host * f->interfaces + e->to_interface;
  unsigned from_leaf = leaf_of(f, e->from_host, e->from_interface);
  unsigned to_leaf = leaf_of(f, e->to_host, e->to_interface);
  t->count = 0;
  if (one->cap) t->hops[t->count++] = one->cap;
  if (f->scenario->police) t->hops[t->count++] = &f->polices[from];
  t->hops[t->count++] = &f->up[from];
  if (from_leaf != to_leaf) {
    unsigned spine = spine_of(f, e, from_leaf, to_leaf);
    t->hops[t->count++] = &f->climb[from_leaf * f->spines + spine];
    t->hops[t->count++] = &f->descend[to_leaf * f->spines + spine];
  }
  t->hops[t->count++] = &f->down[to];
}

void fabric_route(struct fabric *f, struct trip *t, const struct fabric_ends *ends, struct hop *cap) {
  if (f->trip_count == f->trip_room) {
    f->trip_room = f->trip_room ? 2 * f->trip_room : 1024;
    f->trips = realloc(f->trips, f->trip_room * sizeof f->trips[0]);
    if (!f->trips) abort();
  }
  f->trips[f->trip_count] = (struct fabric_trip){.trip = t, .ends = *ends, .cap = cap};
  choose_hops(f, &f->trips[f->trip_count++]);
}

void fabric_init_cap(const struct fabric *f, struct hop *cap) {
  const struct cluster_scenario *s = f->scenario;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(s->cap),
                   .bucket_bytes = (uint64_t)HARP_MAX(s->cap_kb * 1024, s->mtu)};
  hop_init(cap, f->agenda, &w, 0);
}

/* The link between the first leaf and the first spine fails; later the switches send around it. What is
 * under way passes the hops that its trip has then. */
static void on_failure(struct source *source, harp_ns now) {
  struct fabric *f = HARP_CONTAINER_OF(source, struct fabric, failure);
  if (!f->climb[0].is_down) {
    f->climb[0].is_down = f->descend[0].is_down = true;
    agenda_set(f->agenda, source, now + (harp_ns)(f->scenario->reroute_ms * 1e6));
    return;
  }
  f->is_rerouted = true;
  for (size_t i = 0; i < f->trip_count; i++) choose_hops(f, &f->trips[i]);
}

/* ---- life ---- */

void fabric_init(struct fabric *f, struct agenda *a, const struct cluster_scenario *s) {
  unsigned groups = ((unsigned)s->hosts + (unsigned)s->per_leaf - 1) / (unsigned)s->per_leaf;
  *f = (struct fabric){.agenda = a,
                       .scenario = s,
                       .hosts = (unsigned)s->hosts,
                       .interfaces = (unsigned)s->interfaces,
                       .spines = (unsigned)s->spines};
  f->leaves = s->rails ? groups * f->interfaces : groups;
  size_t interfaces = (size_t)f->hosts * f->interfaces, links = (size_t)f->leaves * f->spines;
  double below_gbit_s = s->rate * s->per_leaf * (s->rails ? 1 : s->interfaces);
  double link_gbit_s = below_gbit_s / (s->spines * s->oversubscribed);
  harp_ns link_ns = (harp_ns)(s->link_us * 1e3), host_ns = (harp_ns)(s->host_us * 1e3);
  struct wire police = {.ps_per_byte = wire_ps_per_byte(s->police),
                        .bucket_bytes = (uint64_t)HARP_MAX(s->police_kb * 1024, s->mtu)};
  struct wire own = port(s, s->rate), access = own, link = port(s, link_gbit_s);
  own.queue_bytes = HOST_QUEUE_BYTES;
  f->polices = take_hops(f, s->police ? interfaces : 0, &police, 0);
  f->up = take_hops(f, interfaces, &own, host_ns + link_ns);
  f->down = take_hops(f, interfaces, &access, host_ns + link_ns);
  f->climb = take_hops(f, links, &link, link_ns + SWITCH_NS);
  f->descend = take_hops(f, links, &link, link_ns + SWITCH_NS);
  slow_down(f);
  lose_at_random(f);
  source_init(&f->failure, on_failure);
  if (s->fail_ms) agenda_set(a, &f->failure, a->now + (harp_ns)(s->fail_ms * 1e6));
}

harp_ns fabric_way_ns(const struct fabric *f) {
  harp_ns switches_ns = f->leaves > 1 ? f->climb[0].delay_ns + f->descend[0].delay_ns : 0;
  return f->up[0].delay_ns + switches_ns + f->down[0].delay_ns;
}

static void release_hops(struct hop *hops, size_t count) {
  for (size_t i = 0; i < count; i++) hop_fini(&hops[i]);
  free(hops);
}

void fabric_fini(struct fabric *f) {
  size_t interfaces = (size_t)f->hosts * f->interfaces, links = (size_t)f->leaves * f->spines;
  agenda_set(f->agenda, &f->failure, HARP_NEVER);
  release_hops(f->polices, f->scenario->police ? interfaces : 0);
  release_hops(f->up, interfaces);
  release_hops(f->down, interfaces);
  release_hops(f->climb, links);
  release_hops(f->descend, links);
  free(f->trips);
}

static void add_hops(struct fabric_sums *sums, const struct hop *hops, size_t count, bool is_switch) {
  for (size_t i = 0; i < count; i++) {
    sums->lost += hops[i].lost;
    double queue_us = (double)hops[i].wire.queue_max_ns / 1e3;
    if (is_switch) sums->queue_max_us = HARP_MAX(sums->queue_max_us, queue_us);
  }
}

struct fabric_sums fabric_sums(const struct fabric *f) {
  size_t interfaces = (size_t)f->hosts * f->interfaces, links = (size_t)f->leaves * f->spines;
  struct fabric_sums sums = {.sent = 0};
  const struct hop *first = f->scenario->police ? f->polices : f->up;
  for (size_t i = 0; i < interfaces; i++) sums.sent += first[i].wire.packets;
  if (f->scenario->police) add_hops(&sums, f->polices, interfaces, false);
  add_hops(&sums, f->up, interfaces, false);
  add_hops(&sums, f->down, interfaces, true);
  add_hops(&sums, f->climb, links, true);
  add_hops(&sums, f->descend, links, true);
  return sums;
}
