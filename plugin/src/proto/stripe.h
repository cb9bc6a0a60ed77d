/* SPDX-License-Identifier: Apache-2.0 */
/* The path for the next superframe: a function of the paths' states and of how much there is to send.
 * Earliest completion first (ECF; Lim et al., CoNEXT 2017).
 *
 * Owns no state; writes only `waits` of its argument. Called by send_choose.c and tail_duplication.c. Rules:
 *
 *   1. The path sends that will deliver the superframe first: half its base RTT, and the time that its flight
 *      takes (path_speed.h).
 *   2. If that path must wait for its window, a slower one sends meanwhile only if the faster ones could not
 *      deliver everything that waits before the slower one delivers this.
 *   3. A path that has timed out is used only if no path answers.
 *   4. Where processes of a host share its interfaces, each prefers one: others must be better by half their
 *      travel time. Else a few microseconds would have all processes use the same interface. */
#ifndef HARP_STRIPE_H
#define HARP_STRIPE_H

#include "proto/path.h"

struct harp_stripe {
  uint64_t among;         /* the paths that may carry data, a bit each */
  uint64_t preferred;     /* those that others must beat by a margin; 0: none */
  unsigned start;         /* the first of equal paths from this index on is taken */
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
