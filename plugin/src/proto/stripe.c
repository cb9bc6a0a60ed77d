#include "proto/stripe.h"

static bool may_send(const struct harp_path *p, harp_ns now) {
  return harp_path_allowance_bytes(p, now) >= p->cc.packet_bytes && !harp_flight_full(&p->flight);
}

/* Half an RTT of travel, and the flight ahead of the packet at window / RTT. */
static harp_ns delivery_ns(const struct harp_path *p) {
  harp_ns rtt_ns = p->rtt.smoothed_ns;
  return rtt_ns / 2 + (uint64_t)p->inflight_bytes * rtt_ns / p->cc.window_bytes;
}

struct harp_path *harp_stripe_pick(struct harp_path *paths, unsigned count, harp_ns now) {
  struct harp_path *best = NULL;
  for (unsigned i = 0; i < count; i++) {
    struct harp_path *p = &paths[i];
    if (!may_send(p, now)) continue;
    if (count == 1) return p;
    if (!best || delivery_ns(p) < delivery_ns(best)) best = p;
  }
  return best;
}
