/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/simnet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct simnet_event {
  harp_ns at;
  uint64_t order;
  struct simnet_datagram datagram;
};

static void *grown(void *old, uint32_t *room, size_t each) {
  *room = *room ? 2 * *room : 256;
  void *p = realloc(old, *room * each);
  if (!p) abort();
  return p;
}

static bool earlier(const struct simnet_event *a, const struct simnet_event *b) {
  return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_push(struct simnet *n, struct simnet_event e) {
  if (n->count == n->room) n->heap = grown(n->heap, &n->room, sizeof *n->heap);
  uint32_t i = n->count++;
  for (; i && earlier(&e, &n->heap[(i - 1) / 2]); i = (i - 1) / 2) n->heap[i] = n->heap[(i - 1) / 2];
  n->heap[i] = e;
}

static struct simnet_event heap_pop(struct simnet *n) {
  struct simnet_event top = n->heap[0], last = n->heap[--n->count];
  uint32_t i = 0;
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= n->count) break;
    if (child + 1 < n->count && earlier(&n->heap[child + 1], &n->heap[child])) child++;
    if (!earlier(&n->heap[child], &last)) break;
    n->heap[i] = n->heap[child];
    i = child;
  }
  n->heap[i] = last;
  return top;
}

static uint8_t *wire_take(struct simnet *n) {
  if (n->free_count) return n->free_wires[--n->free_count];
  uint8_t *p = malloc(SIMNET_DATAGRAM_MAX_BYTES);
  if (!p) abort();
  return p;
}

static void wire_give(struct simnet *n, uint8_t *wire) {
  if (n->free_count == n->free_room)
    n->free_wires = grown(n->free_wires, &n->free_room, sizeof *n->free_wires);
  n->free_wires[n->free_count++] = wire;
}

void simnet_reset(struct simnet *n, uint64_t seed) {
  while (n->count) wire_give(n, n->heap[--n->count].datagram.wire);
  for (unsigned i = 0; i < SIMNET_KEPT; i++) {
    if (n->kept[i].wire) wire_give(n, n->kept[i].wire);
    n->kept[i].wire = NULL;
  }
  memset(n->links, 0, sizeof n->links);
  n->rng.state = seed;
  n->filter = NULL;
  n->order = n->delivered = n->dropped = 0;
}

void simnet_fini(struct simnet *n) {
  simnet_reset(n, 0);
  while (n->free_count) free(n->free_wires[--n->free_count]);
  free(n->free_wires);
  free(n->heap);
}

static bool is_in_blackhole(const struct simnet_link *l, harp_ns now) {
  for (unsigned i = 0; i < l->blackhole_count; i++) {
    if (l->blackholes[i].from_ns <= now && now < l->blackholes[i].to_ns) return true;
  }
  return false;
}

static bool is_lost(struct simnet *n, struct simnet_link *l, uint32_t bytes, harp_ns now) {
  if (is_in_blackhole(l, now) || (l->mtu_bytes && now >= l->mtu_from_ns && bytes > l->mtu_bytes)) return true;
  if (l->burst_left) {
    l->burst_left--;
    return true;
  }
  if (rng_chance(&n->rng, l->burst_ppm)) {
    l->burst_left = l->burst_packets;
    return true;
  }
  return rng_chance(&n->rng, l->loss_ppm);
}

/* Returns when the datagram has left the bottleneck's queue, HARP_NEVER if the queue had no room for it. */
static harp_ns leave_queue(struct simnet_wire *w, uint32_t bytes, harp_ns now) {
  if (!w->rate_bytes_s) return now;
  harp_ns start = HARP_MAX(now, w->free_ns);
  uint64_t queued = (start - now) * w->rate_bytes_s / HARP_SEC(1);
  if (w->queue_bytes && queued > w->queue_bytes) {
    w->drops++;
    return HARP_NEVER;
  }
  w->queue_max_bytes = HARP_MAX(w->queue_max_bytes, queued);
  w->bytes += bytes;
  w->free_ns = start + (uint64_t)bytes * HARP_SEC(1) / w->rate_bytes_s;
  return w->free_ns;
}

static void deliver(struct simnet *n, struct simnet_link *l, enum simnet_way way, unsigned path,
                    const uint8_t *wire, uint32_t bytes, bool ect, harp_ns left) {
  struct simnet_event e = {.at = left + l->delay_ns, .order = n->order++};
  if (l->jitter_ns) e.at += rng_below(&n->rng, l->jitter_ns);
  if (rng_chance(&n->rng, l->late_ppm)) e.at += l->late_ns;
  e.datagram = (struct simnet_datagram){.way = way, .path = path, .bytes = bytes, .wire = wire_take(n)};
  memcpy(e.datagram.wire, wire, bytes);
  e.datagram.is_unruly = l->duplicate_ppm || l->replay_ppm || l->jitter_ns || l->late_ppm;
  e.datagram.ce = ect && rng_chance(&n->rng, l->ce_ppm);
  if (rng_chance(&n->rng, l->corrupt_ppm)) {
    e.datagram.touched = true;
    e.datagram.touched_at = (uint32_t)rng_below(&n->rng, bytes);
    e.datagram.wire[e.datagram.touched_at] ^= (uint8_t)(1u << rng_below(&n->rng, 8));
  } else if (rng_chance(&n->rng, l->truncate_ppm)) {
    e.datagram.touched = true;
    e.datagram.bytes = e.datagram.touched_at = (uint32_t)rng_below(&n->rng, bytes);
  }
  heap_push(n, e);
}

/* Keeps a datagram in the place of an older one, and perhaps sends one of those again. */
static void keep_and_replay(struct simnet *n, const struct simnet_kept *datagram, harp_ns now) {
  struct simnet_kept *old = &n->kept[rng_below(&n->rng, SIMNET_KEPT)];
  const struct simnet_kept *again = &n->kept[rng_below(&n->rng, SIMNET_KEPT)];
  uint8_t *place = old->wire ? old->wire : wire_take(n);
  if (again->wire && rng_chance(&n->rng, n->links[datagram->way][datagram->path].replay_ppm))
    deliver(n, &n->links[again->way][again->path], again->way, again->path, again->wire, again->bytes,
            again->ect, now);
  *old = *datagram;
  old->wire = memcpy(place, datagram->wire, datagram->bytes);
}

void simnet_send(struct simnet *n, enum simnet_way way, unsigned path, const uint8_t *wire, uint32_t bytes,
                 bool ect, harp_ns now) {
  struct simnet_link *l = &n->links[way][path];
  if (bytes > SIMNET_DATAGRAM_MAX_BYTES) abort();
  uint64_t nth = l->sent++;
  if (n->filter && !n->filter(n->filter_context, way, path, nth, wire, bytes, now)) {
    n->dropped++;
    return;
  }
  harp_ns left = is_lost(n, l, bytes, now) || (ect && l->drops_ect)
                     ? HARP_NEVER
                     : leave_queue(l->wire ? l->wire : &l->own, bytes, now);
  if (left == HARP_NEVER) {
    n->dropped++;
    return;
  }
  deliver(n, l, way, path, wire, bytes, ect, left);
  if (rng_chance(&n->rng, l->duplicate_ppm)) deliver(n, l, way, path, wire, bytes, ect, left);
  struct simnet_kept kept = {.way = way, .path = path, .bytes = bytes, .ect = ect, .wire = (uint8_t *)wire};
  if (l->replay_ppm) keep_and_replay(n, &kept, left);
}

void simnet_inject(struct simnet *n, enum simnet_way way, unsigned path, const uint8_t *wire, uint32_t bytes,
                   harp_ns now) {
  const struct simnet_link *l = &n->links[way][path];
  struct simnet_event e = {.at = now + 1 + rng_below(&n->rng, 2 * l->delay_ns + 1), .order = n->order++};
  e.datagram = (struct simnet_datagram){
      .way = way, .path = path, .bytes = bytes, .touched = true, .wire = wire_take(n)};
  memcpy(e.datagram.wire, wire, bytes);
  heap_push(n, e);
}

harp_ns simnet_next_ns(const struct simnet *n) {
  return n->count ? n->heap[0].at : HARP_NEVER;
}

enum simnet_way simnet_next_way(const struct simnet *n) {
  return n->heap[0].datagram.way;
}

const struct simnet_datagram *simnet_next(const struct simnet *n) {
  return &n->heap[0].datagram;
}

void simnet_postpone(struct simnet *n, harp_ns at) {
  struct simnet_event e = heap_pop(n);
  e.at = at;
  e.order = n->order++;
  heap_push(n, e);
}

void simnet_take(struct simnet *n, struct simnet_datagram *d) {
  *d = heap_pop(n).datagram;
  n->delivered++;
}

void simnet_drop(struct simnet *n) {
  wire_give(n, heap_pop(n).datagram.wire);
  n->dropped++;
}

void simnet_release(struct simnet *n, struct simnet_datagram *d) {
  wire_give(n, d->wire);
  d->wire = NULL;
}

void simnet_heal(struct simnet *n) {
  for (unsigned way = 0; way < SIMNET_WAYS; way++) {
    for (unsigned i = 0; i < SIMNET_PATHS_MAX; i++) {
      struct simnet_link *l = &n->links[way][i];
      l->loss_ppm = l->duplicate_ppm = l->replay_ppm = l->corrupt_ppm = l->truncate_ppm = l->burst_ppm =
          l->late_ppm = 0;
      l->jitter_ns = l->ce_ppm = 0;
      l->burst_left = 0;
    }
  }
}

void simnet_blackhole(struct simnet_link *l, harp_ns from_ns, harp_ns to_ns) {
  if (l->blackhole_count == SIMNET_BLACKHOLES_MAX) abort();
  l->blackholes[l->blackhole_count].from_ns = from_ns;
  l->blackholes[l->blackhole_count++].to_ns = to_ns;
}
