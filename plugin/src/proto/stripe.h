/* Which path gets the next superframe: a pure function of the paths' states. */
#ifndef HARP_STRIPE_H
#define HARP_STRIPE_H

#include "proto/path.h"

/* Returns the path of those whose bit is in `among` that may send now and will deliver a superframe first,
 * judged by its RTT and by how long its flight takes to drain at its window's rate; NULL when none may send.
 * Ties go to the lowest index. */
struct harp_path *harp_stripe_pick(struct harp_path *paths, uint64_t among, harp_ns now);

#endif
