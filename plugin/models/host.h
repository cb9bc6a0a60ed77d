/* SPDX-License-Identifier: Apache-2.0 */
/* The pauses of a host: its core does something else for a while, and what arrives waits. Pauses begin at
 * random, as a Poisson process, and last a random time between two bounds. Besides, it may stop once. */
#ifndef HARP_MODELS_HOST_H
#define HARP_MODELS_HOST_H

#include "models/rng.h"

#define HOST_PAUSE_MIN_NS HARP_US(20) /* the value of scenarios */

struct host {
  harp_ns every_ns; /* between two pauses, in the mean; 0: there are none */
  harp_ns least_ns, most_ns;
  harp_ns from_ns, to_ns;           /* the present or next pause */
  harp_ns stop_from_ns, stop_to_ns; /* equal: it never stops */
  struct rng rng;
};

void host_init(struct host *h, harp_ns every_ns, harp_ns least_ns, harp_ns most_ns, uint64_t seed);

/* Stops the host once, for a time that is to come. */
void host_stop(struct host *h, harp_ns from_ns, harp_ns to_ns);

/* Draws a time of an exponential distribution of that mean. */
harp_ns host_draw_ns(struct rng *rng, harp_ns mean_ns);

/* Returns when the host runs again; 0: it runs now. */
harp_ns host_wakes_ns(struct host *h, harp_ns now);

#endif
