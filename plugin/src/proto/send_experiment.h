/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds the experiments of a session (experiments.h) and has the sender do what they say.
 *
 * Calls the functions that write struct harp_experiments, a part of struct harp_sender; path_set.c, too,
 * which stops experiments whose pairs have changed. What an
 * experiment changes is done by the owners: send_carrier.c for the carrier of large messages, path_pairs.c
 * for the flows of a pair. Called by the sender's other files, under the engine's lock. Rules:
 *
 *   1. A search for flows begins at the end of a round trip of a path whose pair has pressure.
 *   2. It is fed what is acknowledged on its pair, with the time that something of the pair was in flight.
 *   3. A trial is fed what is acknowledged on all paths while large messages are under way: small ones share
 *      the time. While something else is tried, time passes also without an acknowledgement.
 *   4. When what is tried ends, a search that belongs to it is stopped. */
#ifndef HARP_SEND_EXPERIMENT_H
#define HARP_SEND_EXPERIMENT_H

#include "proto/experiments.h"
#include "proto/path.h"

struct harp_sender;

/* Learns that large messages may be under way, or may be no more. */
void harp_send_experiments_on_posted(struct harp_sender *s, harp_ns now);
void harp_send_experiments_on_closed(struct harp_sender *s);

/* Learns of a round trip of a path. */
void harp_send_experiments_on_round(struct harp_sender *s, const struct harp_path *p, harp_ns now);

/* Counts bytes that were acknowledged on a path. */
void harp_send_experiments_on_acked(struct harp_sender *s, const struct harp_path *p, uint32_t acked_bytes,
                                    harp_ns now);

/* Learns that a path is about to go DOWN for its silence. */
void harp_send_experiments_on_silence(struct harp_sender *s, const struct harp_path *p, harp_ns now);

/* Learns that time has passed. */
void harp_send_experiments_on_time(struct harp_sender *s, harp_ns now);

#endif
