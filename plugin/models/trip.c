/* SPDX-License-Identifier: Apache-2.0 */
#include "models/trip.h"

static void enter(struct parcel *p, harp_ns now) {
  struct trip *t = p->trip;
  if (p->hop == t->count) {
    p->at_ns = now;
    lane_push(t->to, p);
    return;
  }
  struct hop *h = t->hops[p->hop];
  bool is_lost = h->is_down || rng_chance(&h->rng, h->loss_ppm);
  harp_ns at = is_lost ? HARP_NEVER : wire_pass(&h->wire, p->bytes, now);
  if (at == HARP_NEVER) {
    h->lost++;
    t->lose(t, p);
    return;
  }
  p->at_ns = at + h->delay_ns;
  lane_push(&h->lane, p);
}

static void on_end(struct source *s, harp_ns now) {
  struct hop *h = HARP_CONTAINER_OF(s, struct hop, lane.source);
  for (struct parcel p; lane_take(&h->lane, &p, now);) {
    p.hop++;
    enter(&p, now);
  }
}

void hop_init(struct hop *h, struct agenda *a, const struct wire *w, harp_ns delay_ns) {
  *h = (struct hop){.wire = *w, .delay_ns = delay_ns};
  lane_init(&h->lane, a, on_end);
}

void hop_fini(struct hop *h) {
  lane_fini(&h->lane);
}

void trip_start(struct trip *t, struct parcel *p, harp_ns now) {
  p->trip = t;
  p->hop = 0;
  enter(p, now);
}
