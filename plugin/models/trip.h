/* SPDX-License-Identifier: Apache-2.0 */
/* The way of packets over several links, each with its queue: an event for each link that a packet passes.
 *
 * A hop is a link and what is under way on it; many trips share it. A trip is a list of hops, and the lane
 * into which a parcel goes that has passed the last one. Both are borrowed by what is under way. */
#ifndef HARP_MODELS_TRIP_H
#define HARP_MODELS_TRIP_H

#include "models/lane.h"
#include "models/rng.h"
#include "models/wire.h"

enum { TRIP_HOPS_MAX = 6 };

struct hop {
  struct wire wire;
  harp_ns delay_ns;  /* behind the wire */
  bool is_down;      /* what comes is lost */
  uint32_t loss_ppm; /* at random, before the wire */
  struct rng rng;
  struct lane lane;
  uint64_t lost; /* packets */
};

struct trip {
  struct hop *hops[TRIP_HOPS_MAX];
  unsigned count;
  struct lane *to;
  void (*lose)(struct trip *t, const struct parcel *p); /* p is lost */
};

void hop_init(struct hop *h, struct agenda *a, const struct wire *w, harp_ns delay_ns);
void hop_fini(struct hop *h);

/* Sends a parcel of p->bytes on its way, and sets its fields trip and hop. */
void trip_start(struct trip *t, struct parcel *p, harp_ns now);

#endif
