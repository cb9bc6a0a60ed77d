#include "proto/stripe.h"

static bool may_send(const struct harp_path *p, harp_ns now) {
  return harp_path_allowance_bytes(p, now) >= p->cc.packet_bytes && !harp_flight_full(&p->flight);
}

uint64_t harp_stripe_answering(const struct harp_path *paths, uint64_t among) {
  uint64_t good = 0;
  for (uint64_t bits = among; bits; bits &= bits - 1) {
    const struct harp_path *p = &paths[__builtin_ctzll(bits)];
    if (!p->pto_count) good |= bits & -bits;
  }
  return good ? good : among;
}

/* Half the base RTT of travel, and the flight ahead of the packet at window / RTT; later by what an
 * acknowledgement is overdue. */
harp_ns harp_stripe_delivery_ns(const struct harp_path *p, harp_ns now) {
  harp_ns rtt_ns = p->rtt.smoothed_ns, at = HARP_MIN(rtt_ns, p->rtt.min_ns) / 2;
  if (!p->inflight_bytes) return at;
  at += (uint64_t)p->inflight_bytes * rtt_ns / p->cc.window_bytes;
  harp_ns waited_ns = now - p->pto_from_ns;
  return waited_ns > rtt_ns ? at + waited_ns - rtt_ns : at;
}

/* Whether the paths that deliver before `limit_ns` will have delivered everything by then. */
static bool worth_the_wait(const struct harp_path *paths, const struct harp_stripe *stripe, harp_ns limit_ns,
                           harp_ns now) {
  uint64_t bytes = 0;
  for (uint64_t bits = stripe->among; bits; bits &= bits - 1) {
    const struct harp_path *p = &paths[__builtin_ctzll(bits)];
    harp_ns at = harp_stripe_delivery_ns(p, now);
    if (at < limit_ns) bytes += (uint64_t)p->cc.window_bytes * (limit_ns - at) / p->rtt.smoothed_ns;
  }
  return bytes >= stripe->backlog_bytes;
}

struct harp_path *harp_stripe_pick(struct harp_path *paths, struct harp_stripe *stripe, harp_ns now) {
  stripe->waits = false;
  if (!(stripe->among & (stripe->among - 1))) {
    struct harp_path *only = &paths[__builtin_ctzll(stripe->among)];
    return may_send(only, now) ? only : NULL;
  }
  stripe->among = harp_stripe_answering(paths, stripe->among);
  uint64_t turned = stripe->among >> stripe->start;
  if (stripe->start) turned |= stripe->among << (64 - stripe->start);
  struct harp_path *best = NULL;
  harp_ns best_ns = HARP_NEVER, blocked_ns = HARP_NEVER;
  for (; turned; turned &= turned - 1) {
    struct harp_path *p = &paths[((unsigned)__builtin_ctzll(turned) + stripe->start) % 64];
    harp_ns at = harp_stripe_delivery_ns(p, now);
    if (at < best_ns && may_send(p, now))
      best = p, best_ns = at;
    else if (at < blocked_ns)
      blocked_ns = at;
  }
  if (!best || blocked_ns >= best_ns || !worth_the_wait(paths, stripe, best_ns, now)) return best;
  stripe->waits = true;
  return NULL;
}

harp_ns harp_stripe_deadline_ns(const struct harp_path *paths, const struct harp_stripe *stripe,
                                harp_ns now) {
  harp_ns deadline = HARP_NEVER;
  for (uint64_t bits = stripe->among; bits; bits &= bits - 1) {
    harp_ns at = harp_path_allowance_ns(&paths[__builtin_ctzll(bits)], now);
    if (at > now || !stripe->waits) deadline = HARP_MIN(deadline, at);
  }
  return deadline;
}
