/* SPDX-License-Identifier: Apache-2.0 */
/* The health of a sender's paths: NEW -> UP -> DOWN -> UP ..., their timers, and which of them may carry
 * data.
 *
 * Of the paths between the same two ENIs as many are in use as flows.h decides, at first one; the others are
 * DORMANT: nothing goes out on them, and no timer waits for them. Beside one that answers poorly another
 * is used at once: the network may lose its flow alone. When as many answer as are wanted, others become
 * DORMANT.
 *
 * A path carries nothing but probes until one of its packets was acknowledged. One that stops acknowledging
 * while another progresses is drained (its flight moves to the others) at the second probe timeout, and goes
 * DOWN when it has been silent for PATH_DOWN_NS. While no other path shows that the peer is there, it stays
 * UP: the peer may be paused. DOWN and NEW paths are probed, ever more rarely; a standby path carries data
 * only while neither of its ENIs has a primary path that is UP.
 *
 * Timers, all of them found by harp_path_health_on_timeout: loss deadline and probe timeout of paths with
 * something in flight, the next probe of paths that are not UP, and of paths that idle while there is work.
 * Called by the sender alone. */
#ifndef HARP_PATH_HEALTH_H
#define HARP_PATH_HEALTH_H

#include "proto/send.h"

/* Begins: every path is NEW and about to be probed. */
void harp_path_health_init(struct harp_sender *s, harp_ns now);

/* Notes that the path's timers may have changed. */
void harp_path_health_touch(struct harp_sender *s, const struct harp_path *p);

/* Notes that the path's search for a packet size began or ended. */
void harp_path_health_note_size(struct harp_sender *s, const struct harp_path *p);

/* Requests one packet on the path whatever its window, or withdraws the request. */
void harp_path_health_want_probe(struct harp_sender *s, struct harp_path *p, bool wanted);

/* Notes an acknowledgement of something new: the path works. */
void harp_path_health_on_answer(struct harp_sender *s, struct harp_path *p, harp_ns now);

/* Takes the path DOWN: the others get its flight, and it is only probed. */
void harp_path_health_down(struct harp_sender *s, struct harp_path *p, harp_ns now);

/* Notes whether the receiver gets the path's packets by a slower way: its NIC spreads packets over queues by
 * their ports, and only some queues are the engine's. */
void harp_path_health_note_detour(struct harp_sender *s, struct harp_path *p, bool detour, harp_ns now);

/* Wakes paths of a pair of ENIs, or makes some dormant, until as many answer as are wanted. */
void harp_path_health_settle(struct harp_sender *s, unsigned pair, harp_ns now);

/* Probes a path of each of our ENIs over which nothing has come for so long. */
void harp_path_health_probe_quiet(struct harp_sender *s, harp_ns quiet_ns, harp_ns now);

/* Feeds what an event changed on a path to counters and congestion control. */
void harp_path_health_account(struct harp_sender *s, struct harp_path *p, const struct harp_loss_result *r,
                              uint32_t inflight_bytes, harp_ns rtt_ns, harp_ns now);

/* Runs the timers that are due. */
void harp_path_health_on_timeout(struct harp_sender *s, harp_ns now);

#endif
