/* SPDX-License-Identifier: Apache-2.0 */
/* How a sender reacts when a path answers, is silent or fails, and runs the timers of paths.
 *
 * No state of its own: it moves paths between states (path_set.h), requests probes (path_probing.h), gives up
 * flights (path_account.h) and has pairs of ENIs look for other paths (path_pairs.h). Called by the sender's
 * other files, under the engine's lock. Rules:
 *
 *   1. A path carries nothing but probes until one of its packets was acknowledged.
 *   2. When a path stops acknowledging while another progresses, its flight moves to the others at the second
 *      probe timeout. It goes DOWN when it has been silent for HARP_PATH_DOWN_NS, or when a standby path is
 *      to replace it.
 *   3. While no other path shows that the peer is there, it stays UP: the peer may be paused. From
 *      HARP_PATH_SILENT_PTOS timeouts in a row on each shrinks its packets.
 *   4. The flight of a tcp path is given up only with its connection, when the path goes DOWN.
 *   5. A path that went DOWN begins anew with the smallest packets, and when it returns with a new window.
 *   6. A path that is silent does without ECN, since the network may drop what is ECN-capable, and
 *      tests it with one probe when it answers (path_ecn.h).
 *   7. Whenever a path begins or ceases to answer, its pair of ENIs works out anew which paths are in use. */
#ifndef HARP_PATH_HEALTH_H
#define HARP_PATH_HEALTH_H

#include "proto/path.h"

struct harp_sender;

/* Learns of an acknowledgement of something new: the path works. */
void harp_path_health_on_answer(struct harp_sender *s, struct harp_path *p, harp_ns now);

/* Learns that the packet was acknowledged that tests a larger size. */
void harp_path_health_on_size_probe(struct harp_sender *s, struct harp_path *p, harp_ns now);

/* Takes smaller packets where those of the size in use are lost while smaller ones arrive. Called after
 * losses were looked for. */
void harp_path_health_on_losses(struct harp_sender *s, struct harp_path *p, harp_ns now);

/* Learns that a packet was acknowledged that was sent as ECN-capable, while that was withheld. */
void harp_path_health_on_ect(struct harp_sender *s, struct harp_path *p, harp_ns now);

/* Stores whether the receiver gets the path's packets by a slower way: its NIC spreads packets over queues by
 * their ports, and only some queues are the engine's. */
void harp_path_health_on_detour(struct harp_sender *s, struct harp_path *p, bool detour, harp_ns now);

/* Takes the path DOWN: the others get its flight, and it is only probed. */
void harp_path_health_down(struct harp_sender *s, struct harp_path *p, harp_ns now);

/* Runs the timers that are due. */
void harp_path_health_on_timeout(struct harp_sender *s, harp_ns now);

#endif
