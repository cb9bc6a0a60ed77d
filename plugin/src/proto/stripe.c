#include "proto/stripe.h"

static bool may_send(const struct harp_path *p, harp_ns now) {
  return harp_path_allowance_bytes(p, now) >= p->cc.packet_bytes && !harp_flight_full(&p->flight);
}

/* Half an RTT of travel, and the flight ahead of the packet at window / RTT. */
static harp_ns delivery_ns(const struct harp_path *p) {
  harp_ns rtt_ns = p->rtt.smoothed_ns;
  return rtt_ns / 2 + (uint64_t)p->inflight_bytes * rtt_ns / p->cc.window_bytes;
}

struct harp_path *harp_stripe_pick(struct harp_path *paths, uint64_t among, harp_ns now) {
  struct harp_path *best = NULL;
  bool single = !(among & (among - 1));
  for (; among; among &= among - 1) {
    struct harp_path *p = &paths[__builtin_ctzll(among)];
    if (!may_send(p, now)) continue;
    if (single) return p;
    if (!best || delivery_ns(p) < delivery_ns(best)) best = p;
  }
  return best;
}
