/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/tcpnet.h"

#include <stdlib.h>
#include <string.h>

#define LATE_NS HARP_MS(5) /* until what was lost is sent again */

/* Returns when what leaves at `now` arrives; HARP_NEVER: it does not. */
static harp_ns arrival_ns(const struct tcpnet *t, unsigned way, harp_ns now) {
  const struct simnet_link *l = t->links[way];
  harp_ns at = now + l->delay_ns;
  if (l->jitter_ns) at += rng_below(t->rng, l->jitter_ns);
  if (rng_chance(t->rng, l->loss_ppm)) at += rng_below(t->rng, 2 * l->delay_ns + LATE_NS);
  if (rng_chance(t->rng, l->late_ppm)) at += l->late_ns;
  for (unsigned i = 0; i < l->blackhole_count; i++) {
    if (at < l->blackholes[i].from_ns || at >= l->blackholes[i].to_ns) continue;
    if (l->blackholes[i].to_ns == HARP_NEVER) return HARP_NEVER;
    at = l->blackholes[i].to_ns + rng_below(t->rng, LATE_NS);
    i = 0;
  }
  return at;
}

/* Returns when what an end writes at `now` has left it, behind what it wrote before. */
static harp_ns departure_ns(const struct tcpnet *t, unsigned way, uint32_t bytes, harp_ns now) {
  uint64_t rate = t->links[way]->own.rate_bytes_s;
  return HARP_MAX(now, t->ways[way].leaves_ns) + (rate ? (harp_ns)bytes * HARP_SEC(1) / rate : 0);
}

/* An end hears that the connection is over, if it hears of it at all. */
static void schedule_end(struct tcpnet *t, unsigned end, harp_ns at) {
  if (at < t->over_ns[end]) t->over_ns[end] = at;
}

/* Nobody answers any more an end that waits for room. */
static void time_out(struct tcpnet *t, unsigned end, harp_ns now) {
  if (t->ways[end].room_ns == HARP_NEVER) schedule_end(t, end, now + t->config.timeout_ns);
}

static void start_way(struct tcpnet *t, struct tcpnet_way *w, bool is_cut, harp_ns now) {
  uint8_t *ring = w->ring ? w->ring : malloc(TCPNET_ROOM_BYTES);
  if (!ring) abort();
  *w = (struct tcpnet_way){
      .ring = ring, .last_ns = now, .fin_ns = HARP_NEVER, .cut_at = UINT64_MAX, .spoiled_at = UINT64_MAX};
  if (is_cut) w->cut_at = rng_below(t->rng, 1ull << rng_between(t->rng, 6, 21));
}

void tcpnet_open(struct tcpnet *t, const struct tcpnet_config *config, const struct simnet_link *there,
                 const struct simnet_link *back, struct rng *rng, bool faults, harp_ns now) {
  t->config = *config;
  t->links[SIMNET_THERE] = there;
  t->links[SIMNET_BACK] = back;
  t->rng = rng;
  bool is_cut = faults && rng_chance(rng, config->reset_ppm);
  uint64_t ways = is_cut ? rng_between(rng, 1, 3) : 0; /* either direction, or whichever comes first */
  for (unsigned way = 0; way < SIMNET_WAYS; way++) start_way(t, &t->ways[way], ways >> way & 1, now);
  t->is_silent = is_cut && rng_chance(rng, config->silent_ppm);
  t->closed[0] = t->closed[1] = false;
  t->over_ns[0] = t->over_ns[1] = HARP_NEVER;
  t->is_refused = faults && rng_chance(rng, config->refuse_ppm);
  harp_ns at = arrival_ns(t, SIMNET_THERE, now);
  t->accepted_ns = t->is_refused ? HARP_NEVER : at;
  t->connected_ns = at == HARP_NEVER ? HARP_NEVER : arrival_ns(t, SIMNET_BACK, at);
  for (unsigned way = 0; way < SIMNET_WAYS; way++) t->ways[way].last_ns = at;
}

void tcpnet_fini(struct tcpnet *t) {
  for (unsigned way = 0; way < SIMNET_WAYS; way++) free(t->ways[way].ring);
  *t = (struct tcpnet){0};
}

/* ---- writing ---- */

/* The byte has come at which the connection is cut: nothing passes any more. An end hears of it soon, or
 * never. */
static void cut(struct tcpnet *t, harp_ns now) {
  for (unsigned way = 0; way < SIMNET_WAYS; way++) {
    if (t->ways[way].cut_at > t->ways[way].written) t->ways[way].cut_at = t->ways[way].written;
  }
  uint64_t who = t->is_silent ? 0 : rng_between(t->rng, 1, 3);
  if (who != 3 && rng_below(t->rng, 2)) t->is_silent = true; /* half-open */
  for (unsigned end = 0; end < 2; end++) {
    time_out(t, end, now);
    if (who >> end & 1) schedule_end(t, end, now + rng_below(t->rng, t->links[end]->delay_ns + HARP_MS(1)));
  }
}

static void append(struct tcpnet_segment *ring, uint32_t head, uint32_t *tail, uint64_t upto, harp_ns at) {
  if (*tail - head == TCPNET_SEGMENTS) (*tail)--; /* joins the one before it */
  ring[(*tail)++ % TCPNET_SEGMENTS] = (struct tcpnet_segment){upto, at};
}

static void add_segment(struct tcpnet *t, unsigned end, uint64_t upto, harp_ns at, harp_ns now) {
  struct tcpnet_way *w = &t->ways[end];
  harp_ns since = HARP_MAX(w->last_ack_ns, now);
  w->last_ns = HARP_MAX(w->last_ns, at);
  harp_ns back = w->last_ns == HARP_NEVER ? HARP_NEVER : arrival_ns(t, 1 - end, w->last_ns);
  if (since != HARP_NEVER && since + t->config.timeout_ns <= back)
    schedule_end(t, end, since + t->config.timeout_ns);
  w->last_ack_ns = HARP_MAX(w->last_ack_ns, back);
  append(w->segments, w->head, &w->tail, upto, w->last_ns);
  append(w->acks, w->ack_head, &w->ack_tail, upto, w->last_ack_ns);
  if (t->closed[1 - end]) schedule_end(t, end, back);
}

/* A middlebox changes a byte. */
static void maybe_spoil(struct tcpnet *t, struct tcpnet_way *w, uint32_t bytes) {
  if (w->spoiled_at != UINT64_MAX || !rng_chance(t->rng, t->config.spoil_ppm)) return;
  w->spoiled_at = w->written + rng_below(t->rng, bytes);
  w->ring[w->spoiled_at % TCPNET_ROOM_BYTES] ^= (uint8_t)(1u << rng_below(t->rng, 8));
}

static void put(struct tcpnet_way *w, const struct iovec *iov, unsigned count, uint32_t bytes) {
  uint64_t to = w->written;
  for (unsigned i = 0; i < count && bytes; i++) {
    const uint8_t *from = iov[i].iov_base;
    for (uint32_t left = HARP_MIN((uint32_t)iov[i].iov_len, bytes), n; left; left -= n) {
      uint32_t at = (uint32_t)(to % TCPNET_ROOM_BYTES);
      n = HARP_MIN(left, (uint32_t)TCPNET_ROOM_BYTES - at);
      memcpy(w->ring + at, from, n);
      from += n, to += n, bytes -= n;
    }
  }
}

static uint32_t length_of(const struct iovec *iov, unsigned count) {
  size_t bytes = 0;
  for (unsigned i = 0; i < count; i++) bytes += iov[i].iov_len;
  return (uint32_t)bytes;
}

long tcpnet_write(struct tcpnet *t, unsigned end, const struct iovec *iov, unsigned count, bool faults,
                  harp_ns now) {
  struct tcpnet_way *w = &t->ways[end];
  uint32_t bytes = length_of(iov, count), room = t->config.room_bytes - (uint32_t)(w->written - w->read);
  if (t->over_ns[end] <= now) return TCPNET_OVER;
  if (w->room_ns > now) return TCPNET_AGAIN;
  if (!room) {
    w->room_ns = HARP_NEVER; /* until something is read */
    if (w->cut_at <= w->written || t->closed[1 - end]) time_out(t, end, now);
    return TCPNET_AGAIN;
  }
  w->room_ns = 0;
  bytes = HARP_MIN(bytes, room);
  if (faults && rng_chance(t->rng, t->config.partial_ppm)) {
    bytes = 1 + (uint32_t)rng_below(t->rng, bytes);
    w->room_ns = now + 1 + rng_below(t->rng, HARP_US(50));
  }
  put(w, iov, count, bytes);
  if (faults) maybe_spoil(t, w, bytes);
  uint64_t upto = w->written + bytes;
  uint64_t passes = HARP_MIN(upto, w->cut_at);
  w->leaves_ns = departure_ns(t, end, bytes, now);
  if (passes > w->written) add_segment(t, end, passes, arrival_ns(t, end, w->leaves_ns), now);
  bool is_cut = upto > w->cut_at && w->written <= w->cut_at;
  w->written = upto;
  if (upto > w->cut_at) add_segment(t, end, upto, HARP_NEVER, now);
  if (is_cut) cut(t, now);
  return bytes;
}

void tcpnet_refer(struct tcpnet *t, unsigned end, const void *owner, uint32_t message, uint32_t bytes) {
  struct tcpnet_way *w = &t->ways[end];
  struct tcpnet_reference r = {w->written - bytes, w->written, owner, message};
  if (w->reference_count == TCPNET_REFERENCES)
    memmove(w->references, w->references + 1, --w->reference_count * sizeof r);
  w->references[w->reference_count++] = r;
}

bool tcpnet_holds_references(struct tcpnet *t, unsigned end, harp_ns now) {
  const struct tcpnet_way *w = &t->ways[end];
  return w->reference_count && w->references[w->reference_count - 1].to > tcpnet_acked(t, end, now);
}

harp_ns tcpnet_writable_ns(const struct tcpnet *t, unsigned end) {
  return HARP_MIN(t->ways[end].room_ns, t->over_ns[end]);
}

uint64_t tcpnet_acked(struct tcpnet *t, unsigned end, harp_ns now) {
  struct tcpnet_way *w = &t->ways[end];
  for (; w->ack_head != w->ack_tail && w->acks[w->ack_head % TCPNET_SEGMENTS].at <= now; w->ack_head++)
    w->acked = w->acks[w->ack_head % TCPNET_SEGMENTS].end;
  return w->acked;
}

uint32_t tcpnet_unsent(const struct tcpnet *t, unsigned end, harp_ns now) {
  const struct tcpnet_way *w = &t->ways[end];
  if (w->leaves_ns <= now) return 0;
  uint64_t bytes = (w->leaves_ns - now) * t->links[end]->own.rate_bytes_s / HARP_SEC(1);
  return (uint32_t)HARP_MIN(bytes, w->written - w->read);
}

/* ---- reading ---- */

/* Returns how many bytes of what an end writes have arrived. */
static uint64_t arrived_of(const struct tcpnet_way *w, harp_ns now) {
  uint64_t arrived = w->read;
  for (uint32_t i = w->head; i != w->tail && w->segments[i % TCPNET_SEGMENTS].at <= now; i++)
    arrived = w->segments[i % TCPNET_SEGMENTS].end;
  return arrived;
}

void tcpnet_overwrite(struct tcpnet *t, unsigned end, const void *owner, uint32_t before, harp_ns now) {
  struct tcpnet_way *w = &t->ways[end];
  uint64_t arrived = arrived_of(w, now);
  for (unsigned i = 0; i < w->reference_count; i++) {
    struct tcpnet_reference *r = &w->references[i];
    if (r->owner != owner || r->message >= before) continue;
    for (uint64_t at = HARP_MAX(r->from, arrived); at < r->to; at++) w->ring[at % TCPNET_ROOM_BYTES] ^= 0xFF;
    r->owner = NULL; /* once */
  }
}

long tcpnet_read(struct tcpnet *t, unsigned end, const struct iovec *iov, unsigned count, harp_ns now) {
  struct tcpnet_way *w = &t->ways[1 - end];
  if (t->over_ns[end] <= now) return TCPNET_OVER;
  uint64_t arrived = arrived_of(w, now);
  if (arrived == w->read) return w->fin_ns <= now ? 0 : TCPNET_AGAIN;
  uint32_t most = 1 + (uint32_t)rng_below(t->rng, t->config.read_bytes), bytes = 0;
  most = (uint32_t)HARP_MIN(most, arrived - w->read);
  for (unsigned i = 0; i < count && bytes < most; i++) {
    uint8_t *to = iov[i].iov_base;
    for (uint32_t left = (uint32_t)HARP_MIN(iov[i].iov_len, (size_t)(most - bytes)), n; left; left -= n) {
      uint32_t at = (uint32_t)(w->read % TCPNET_ROOM_BYTES);
      n = HARP_MIN(left, (uint32_t)TCPNET_ROOM_BYTES - at);
      memcpy(to, w->ring + at, n);
      to += n, w->read += n, bytes += n;
    }
  }
  while (w->head != w->tail && w->segments[w->head % TCPNET_SEGMENTS].end <= w->read) w->head++;
  if (w->room_ns == HARP_NEVER && w->cut_at > w->written) w->room_ns = arrival_ns(t, end, now);
  return bytes;
}

harp_ns tcpnet_readable_ns(const struct tcpnet *t, unsigned end) {
  const struct tcpnet_way *w = &t->ways[1 - end];
  harp_ns at = w->head != w->tail ? w->segments[w->head % TCPNET_SEGMENTS].at : w->fin_ns;
  return HARP_MIN(at, t->over_ns[end]);
}

/* ---- the end ---- */

void tcpnet_close(struct tcpnet *t, unsigned end, harp_ns now) {
  bool had_unread = arrived_of(&t->ways[1 - end], now) != t->ways[1 - end].read;
  struct tcpnet_way *w = &t->ways[end];
  t->closed[end] = true;
  time_out(t, 1 - end, now);
  if (t->is_silent && w->cut_at <= w->written) return;
  harp_ns at = arrival_ns(t, end, now);
  if (had_unread || w->cut_at <= w->written || rng_below(t->rng, 2))
    schedule_end(t, 1 - end, at);
  else
    w->fin_ns = HARP_MAX(at, w->last_ns);
}

void tcpnet_reset(struct tcpnet *t, unsigned end, harp_ns now) {
  struct tcpnet_way *w = &t->ways[end];
  uint32_t tail = w->head;
  while (tail != w->tail && w->segments[tail % TCPNET_SEGMENTS].at <= now) tail++;
  w->tail = tail;
  t->closed[end] = true;
  time_out(t, 1 - end, now);
  if (t->is_silent && w->cut_at <= w->written) return;
  schedule_end(t, 1 - end, arrival_ns(t, end, now));
}

void tcpnet_heal(struct tcpnet *t) {
  for (unsigned way = 0; way < SIMNET_WAYS; way++)
    if (t->ways[way].cut_at > t->ways[way].written) t->ways[way].cut_at = UINT64_MAX;
  t->config.partial_ppm = 0;
}
