/* SPDX-License-Identifier: Apache-2.0 */
/* Which path gets the next superframe: a function of the paths' states and of how much there is to send.
 *
 * Idea (earliest completion first, as MPTCP's ECF): the path that will deliver it first, judged by its base
 * RTT and by how long its flight takes to drain. If that one must wait for its window, a slower one is used
 * meanwhile only if the faster ones could not deliver everything that waits before it delivers this.
 *
 * Where processes of a host share its interfaces, each prefers one: a few microseconds that a path seems
 * better would have all of them use the same. */
#ifndef HARP_STRIPE_H
#define HARP_STRIPE_H

#include "proto/path.h"

struct harp_stripe {
  uint64_t among;         /* the paths that may carry data, a bit each */
  uint64_t preferred;     /* those that others must beat by a margin; 0: none */
  unsigned start;         /* of equal paths the first from this index on */
  uint64_t backlog_bytes; /* all that waits to be sent */
  bool waits;             /* result: a path could send, but a better one is worth the wait */
};

/* Returns those of `among` that answer; all of them when none does. */
uint64_t harp_stripe_answering(const struct harp_path *paths, uint64_t among);

/* Returns the path that should send now; NULL when none may, or a better one is worth the wait. */
const struct harp_path *harp_stripe_pick(const struct harp_path *paths, struct harp_stripe *stripe,
                                         harp_ns now);

/* Returns when the pick may have another result by time alone, HARP_NEVER if only acknowledgements help. */
harp_ns harp_stripe_deadline_ns(const struct harp_path *paths, const struct harp_stripe *stripe, harp_ns now);

#endif
