/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/stripe.h"

#include "base/assert.h"
#include "wire/record.h"

uint64_t harp_stripe_answering(const struct harp_path *paths, uint64_t among) {
  uint64_t good = 0;
  HARP_EACH_BIT (i, among) {
    if (!paths[i].probe.pto_count) good |= 1ull << i;
  }
  return good ? good : among;
}

/* Returns when the path would deliver the superframe: after its flight, and on a tcp path after the record
 * itself. It is later by as much as an acknowledgement is overdue. */
static inline harp_ns delivery_ns(const struct harp_path *p, uint64_t backlog_bytes, harp_ns now) {
  harp_ns at = p->speed.travel_ns, rtt_ns = p->rtt.smoothed_ns;
  if (p->is_tcp) at += HARP_MIN(backlog_bytes, HARP_RECORD_MAX_BYTES + 0u) * p->speed.ns_per_byte_q16 >> 16;
  if (!p->inflight_bytes) return at;
  at += p->inflight_bytes * p->speed.ns_per_byte_q16 >> 16;
  harp_ns waited_ns = now - p->probe.pto_from_ns;
  return harp_unlikely(waited_ns > rtt_ns) ? at + waited_ns - rtt_ns : at;
}

/* A path must deliver earlier than a preferred one by this part of its travel time (rule 4). */
enum { PREFERENCE_SHIFT = 1 };

static inline harp_ns handicap_ns(const struct harp_path *p, const struct harp_stripe *stripe) {
  bool is_preferred = !stripe->preferred || stripe->preferred >> p->index & 1;
  return is_preferred ? 0 : p->speed.travel_ns >> PREFERENCE_SHIFT;
}

/* Returns whether the paths that deliver before `limit_ns` will have delivered everything by then. */
static bool is_worth_the_wait(const struct harp_path *paths, const struct harp_stripe *stripe,
                              harp_ns limit_ns, harp_ns now) {
  uint64_t bytes = 0;
  HARP_EACH_BIT (i, stripe->among) {
    const struct harp_path *p = &paths[i];
    harp_ns at = p->probe.pto_count ? HARP_NEVER : delivery_ns(p, stripe->backlog_bytes, now);
    HARP_ASSERT(p->speed.ns_per_byte_q16);
    if (at < limit_ns) bytes += ((limit_ns - at) << 16) / p->speed.ns_per_byte_q16;
  }
  return bytes >= stripe->backlog_bytes;
}

/* The result of a search: the best path that may send, and when the best one that may not would deliver. */
struct found {
  const struct harp_path *best;
  harp_ns best_ns, blocked_ns;
};

static struct found find_paths(const struct harp_path *paths, const struct harp_stripe *stripe, harp_ns now) {
  struct found f = {NULL, HARP_NEVER, HARP_NEVER};
  uint64_t among = stripe->among;
  unsigned start = stripe->start;
  uint64_t turned = start ? among >> start | among << (64 - start) : among;
  for (; turned; turned &= turned - 1) {
    const struct harp_path *p = &paths[((unsigned)__builtin_ctzll(turned) + start) % 64];
    if (harp_unlikely(p->probe.pto_count)) continue;
    harp_ns at = delivery_ns(p, stripe->backlog_bytes, now) + handicap_ns(p, stripe);
    if (at >= f.best_ns) continue;
    if (harp_path_is_open(p, now))
      f.best = p, f.best_ns = at;
    else
      f.blocked_ns = HARP_MIN(f.blocked_ns, at);
  }
  return f;
}

/* Returns any path that may send, where none answers. */
static const struct harp_path *first_open_path(const struct harp_path *paths, uint64_t among, harp_ns now) {
  HARP_EACH_BIT (i, among) {
    const struct harp_path *p = &paths[i];
    if (!harp_path_is_silent(p) && harp_path_is_open(p, now)) return p;
  }
  return NULL;
}

const struct harp_path *harp_stripe_pick(const struct harp_path *paths, struct harp_stripe *stripe,
                                         harp_ns now) {
  struct found f = find_paths(paths, stripe, now);
  stripe->waits = false;
  if (!f.best) return f.blocked_ns == HARP_NEVER ? first_open_path(paths, stripe->among, now) : NULL;
  if (harp_likely(f.blocked_ns >= f.best_ns)) return f.best;
  stripe->waits = is_worth_the_wait(paths, stripe, f.best_ns - handicap_ns(f.best, stripe), now);
  return stripe->waits ? NULL : f.best;
}

harp_ns harp_stripe_deadline_ns(const struct harp_path *paths, const struct harp_stripe *stripe,
                                harp_ns now) {
  harp_ns deadline = HARP_NEVER;
  HARP_EACH_BIT (i, stripe->among) {
    harp_ns at = harp_path_allowance_ns(&paths[i], now);
    if (at > now || !stripe->waits) deadline = HARP_MIN(deadline, at);
  }
  return deadline;
}
