/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a sender between the same two ENIs, and which of them are in use.
 *
 * Owns and alone writes struct harp_path_pairs, a part of struct harp_sender, and of each path the number of
 * its pair. Writes the flows of each pair (flows.h), and of paths' congestion control what cc.h says. Called
 * by the sender's other files, under the engine's lock. Rules:
 *
 *   1. As many paths of a pair are in use as flows.h wants, at first one; the others are DORMANT:
 *      nothing goes out on them, no timer waits for them, and tcp ones need no connection.
 *   2. When fewer answer, or were probed just now, than are wanted, others are put to use: first those
 *      without a detour. The network may lose the flow of one path alone.
 *   3. When as many answer as are wanted, the others become DORMANT.
 *   4. What the paths of a pair may have in flight together stays the same: the sum of their windows is
 *      divided among those in use. Where no path answered, new ones begin in slow start.
 *   5. Paths that flows.h has not proven share a queue: congestion control knows how many do.
 *   6. All paths of a pair that is asleep are DORMANT. A pair of tcp paths with datagrams beside is asleep at
 *      first, and again after REST_NS without a large message while these answer and no record is under way.
 *      A large message that is posted wakes it, and goes by datagrams until a connection stands; so does
 *      silence of these, from the beginning or while messages are under way, and for a moment a test of a
 *      connection.
 *   7. A pair of standby paths is asleep at first. It is woken when neither of its ENIs has a primary path
 *      that is UP. A few over each ENI of a path that goes DOWN are tried, which shows which of the two has
 *      failed; a few over those of a path that is doubtful, and all of these after STANDBY_PTOS while
 *      messages are under way: not sooner, since a process that lacks a core for a while is silent, too. One
 *      that does not answer sleeps again.
 *   8. Of the pairs of standby paths of datagrams one in STANDBY_PROBE_NS or so is woken, or probed, in turn:
 *      it is then known whether it works. The first one is drawn, so that the two sides probe different ones.
 */
#ifndef HARP_PATH_PAIRS_H
#define HARP_PATH_PAIRS_H

#include "proto/flows.h"
#include "proto/path.h"

struct harp_sender;

struct harp_path_pairs {
  unsigned count;
  struct harp_flows *flows; /* the flows of each of the `count` pairs, in memory behind the flights */
  uint64_t for_large;       /* the pairs of tcp paths with datagrams beside, a bit each */
  uint64_t standby;         /* the pairs of standby paths, a bit each */
  uint64_t asleep;          /* the pairs that are asleep, a bit each */
  harp_ns rest_ns;          /* the pairs for large messages stay awake until this time (rule 6) */
  harp_ns standby_probe_ns; /* the time when the next standby pair is checked (rule 8) */
  unsigned next_standby;    /* the pair at which the search for the next one to check begins */
  uint32_t random;          /* the state of a generator, for the time between two checks */
};

/* Begins with one path of each pair that is awake, which is about to be probed. The flows are
 * initialised. */
void harp_path_pairs_init(struct harp_sender *s, uint32_t seed, harp_ns now);

/* Adds a pair of these paths, a bit each. */
void harp_path_pairs_add(struct harp_sender *s, uint64_t paths, uint64_t speed_bytes_s);

/* Learns that a large message is posted: wakes the pairs that are for those. */
void harp_path_pairs_on_large(struct harp_sender *s, harp_ns now);

/* Sends a probe over a tcp path whose connection may have ended at the other side: at once if the path is
 * idle. Wakes a dormant one (rule 6). */
void harp_path_pairs_test(struct harp_sender *s, struct harp_path *p, harp_ns now);

/* A path is silent while no other path shows that the peer is alive; or it has gone DOWN. Wakes the pairs
 * that may take its place. */
void harp_path_pairs_on_silence(struct harp_sender *s, const struct harp_path *p, harp_ns now);
void harp_path_pairs_on_down(struct harp_sender *s, const struct harp_path *p, harp_ns now);

/* Puts the pairs to sleep that are of no use, and checks a standby pair if it is time. Returns whether the
 * sender is to be visited. */
bool harp_path_pairs_rest(struct harp_sender *s, harp_ns now);

/* Puts paths of a path's pair to use and makes others DORMANT, after one of them or its flows changed. */
void harp_path_pairs_update(struct harp_sender *s, const struct harp_path *p, harp_ns now);

/* Returns whether another path of the same pair answers. */
bool harp_path_pairs_other_answers(const struct harp_sender *s, const struct harp_path *p);

/* Resets the congestion window of a path that was DOWN or DORMANT. */
void harp_path_pairs_restart_window(struct harp_path *p);

/* Returns whether a pair has several paths, so that it is of interest what they carry. */
static inline bool harp_path_pairs_is_choice(const struct harp_path_pairs *pairs, unsigned path_count) {
  return pairs->count < path_count;
}

/* Learns of a round trip of a path. */
void harp_path_pairs_on_round(struct harp_sender *s, const struct harp_path *p,
                              const struct harp_cc_sample *sample);

/* Returns the longest round trip of the paths of a pair that are in use. */
harp_ns harp_path_pairs_round_ns(const struct harp_sender *s, unsigned pair);

/* Has a pair use as many paths as the phase of a search for flows says. */
void harp_path_pairs_on_search(struct harp_sender *s, const struct harp_experiment *e, harp_ns now);

/* Takes the verdict of a search that has ended. Returns whether it has proven more flows. */
bool harp_path_pairs_on_verdict(struct harp_sender *s, const struct harp_experiment *e, harp_ns now);

/* Makes a dormant tcp path with records under way UP again without a probe: it has answered before. */
void harp_path_pairs_resume(struct harp_sender *s, struct harp_path *p, harp_ns now);

#endif
