/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a sender as a set: their states, which of them may carry data, and which ask for attention.
 *
 * Owns and alone writes struct harp_path_set, a part of struct harp_sender, and of each path its state and
 * whether it makes a detour. Called by the sender's other files, under the engine's lock. Rules:
 *
 *   1. NEW -> UP -> DOWN -> UP; NEW or UP -> DORMANT -> NEW, or UP where a tcp path has records under way.
 *      path_health.c and path_pairs.c decide when.
 *   2. A primary path is eligible, which means that it may carry data, while it is UP.
 *   3. A standby path is eligible while it is UP and neither of its ENIs has a primary path that is UP.
 *   4. A path with a detour is not eligible where one without is eligible between the same ENIs.
 *   5. A change of state, or of a detour, works out anew which paths are eligible, and then which of them
 *      carry large messages. An experiment ends if the set of pairs with eligible paths has changed
 *      (send_experiment.h).
 *   6. A path that is DORMANT has no probe requested. */
#ifndef HARP_PATH_SET_H
#define HARP_PATH_SET_H

#include "proto/path.h"

struct harp_sender;

/* Sets of paths, a bit each. */
struct harp_path_set {
  uint64_t eligible;   /* the paths that may carry data */
  uint64_t probes_due; /* the paths that owe one packet now, regardless of the window */
  uint64_t sizing;     /* the paths that search for a larger packet size */
};

static inline uint64_t harp_path_bit(const struct harp_path *p) {
  return 1ull << p->index;
}

/* Returns the tcp paths among some. */
static inline uint64_t harp_path_set_tcp(const struct harp_path *paths, uint64_t among) {
  uint64_t tcp = 0;
  HARP_EACH_BIT (i, among) tcp |= (uint64_t)paths[i].is_tcp << i;
  return tcp;
}

/* Moves a path to another state. */
void harp_path_set_move(struct harp_sender *s, struct harp_path *p, enum harp_path_state to, harp_ns now);

/* Stores whether the receiver gets the path's packets by a slower way. */
void harp_path_set_on_detour(struct harp_sender *s, struct harp_path *p, bool detour);

/* Requests one packet on the path whatever its window, or withdraws the request. */
void harp_path_set_request_probe(struct harp_sender *s, const struct harp_path *p);
void harp_path_set_withdraw_probe(struct harp_sender *s, const struct harp_path *p);

/* Learns that the path's search for a packet size began or ended. */
void harp_path_set_on_size(struct harp_sender *s, const struct harp_path *p);

#endif
