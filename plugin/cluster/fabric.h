/* SPDX-License-Identifier: Apache-2.0 */
/* A leaf-spine network: the links of hosts, leaf and spine switches, and which of them a flow passes.
 *
 * Each interface has a link to its leaf; each leaf has one to each spine. A packet between two leaves goes
 * over the spine that a hash of its flow chooses (ECMP, RFC 2992), whatever is queued there. The queue of an
 * interface's own link holds what its host sends, without loss: the host feels it. */
#ifndef HARP_CLUSTER_FABRIC_H
#define HARP_CLUSTER_FABRIC_H

#include "cluster/scenario.h"
#include "models/trip.h"

enum { FABRIC_HOSTS_MAX = 1024, FABRIC_INTERFACES_MAX = 8, FABRIC_SPINES_MAX = 64 };

struct fabric {
  struct agenda *agenda;
  const struct cluster_scenario *scenario;
  unsigned hosts, interfaces, leaves, spines;
  struct hop *polices;         /* the policer of each interface, if it has one */
  struct hop *up, *down;       /* the hops of each interface to its leaf, and from it */
  struct hop *climb, *descend; /* the hops between each leaf and spine */
  struct source failure;
  bool is_rerouted;
  /* Trips, so that their routes can be chosen anew. */
  struct fabric_trip *trips;
  size_t trip_count, trip_room;
};

/* The ends of a flow, and what else is hashed. */
struct fabric_ends {
  uint16_t from_host, to_host;
  uint8_t from_interface, to_interface;
  uint64_t flow; /* its ports */
};

struct fabric_trip {
  struct trip *trip;
  struct hop *cap;
  struct fabric_ends ends;
};

void fabric_init(struct fabric *f, struct agenda *a, const struct cluster_scenario *s);
void fabric_fini(struct fabric *f);

/* Fills the hops of a trip, which stays where it is while the fabric lives; the first is `cap`, a policer of
 * this flow alone, where it is not NULL. */
void fabric_route(struct fabric *f, struct trip *t, const struct fabric_ends *ends, struct hop *cap);

/* Prepares such a policer. */
void fabric_init_cap(const struct fabric *f, struct hop *cap);

/* Counts the packets that came to a link and those that were lost there, over all links. A packet is lost
 * once. */
struct fabric_sums {
  uint64_t sent; /* by hosts */
  uint64_t lost;
  double queue_max_us;
};
struct fabric_sums fabric_sums(const struct fabric *f);

/* Returns the time of an empty packet between two hosts of different leaves, or of the only one. */
harp_ns fabric_way_ns(const struct fabric *f);

#endif
