/* SPDX-License-Identifier: Apache-2.0 */
/* What a byte takes on the tcp paths of a session: how striping compares them.
 *
 * A round trip tells little of it: it contains what waits in front of the acknowledgement on its way back. So
 * while both ends send, each finds the paths slow that the other one uses, and leaves them to it: both use
 * half of the network. What a path moves while its kernel's queue stands is its rate, whatever waits behind.
 *
 * Owns struct harp_tcp_speed (a part of struct harp_path_speed) and struct harp_tcp_speeds (a part of struct
 * harp_sender), and alone writes them. Called by the sender. Rules:
 *
 *   1. Proof: while each look finds unsent bytes in the kernel, what has left it divided by the time is the
 *      path's rate. A piece has PIECE_NS and PIECE_BYTES at least; the first look only begins one, since
 *      buckets and queues below have filled by then. Two pieces are averaged.
 *   2. What no queue stands on is not known to be slow: a path without proof counts as the fastest of the
 *      session.
 *   3. What was proven is forgotten slowly: HOLD_NS after the last proof the path gets faster by an eighth
 *      each STEP_NS, up to the fastest. It stands again when that is too much.
 *   4. The fastest is the least of what the paths have, and of flight / round trip of records, which is never
 *      more than the rate. It is forgotten as well: by a sixteenth each STEP_NS. It bounds what the
 *      kernel gets ahead.
 *   5. Behind token buckets that is the rate of a burst. A path without proof is striped by flight / round
 *      trip of records that took QUEUED_NS, or by the best proof, one for all: else some microseconds of
 *      their round trips count for as much as the queues. */
#ifndef HARP_TCP_SPEED_H
#define HARP_TCP_SPEED_H

#include "base/base.h"

/* 1 Gbit/s: what a byte takes until something is measured, in ns times 2^16. */
#define HARP_TCP_DRAIN_Q16 (8ull << 16)

struct harp_tcp_speed {
  uint64_t drain_q16;  /* ns that a byte takes, times 2^16 */
  uint64_t stripe_q16; /* the same, by rule 5 */
  bool is_proven;      /* by rule 1 */
  bool is_standing;    /* the last look found unsent bytes */
  harp_ns proven_ns;   /* the last proof, then the last step of rule 3 */
  harp_ns from_ns;     /* the piece under way: since when, */
  uint64_t from_bytes; /* and what had left until then */
};

struct harp_tcp_speeds {
  uint64_t fastest_q16;
  uint64_t queued_q16; /* by rule 5 */
  harp_ns step_ns;     /* when the fastest was forgotten a little last */
};

void harp_tcp_speeds_init(struct harp_tcp_speeds *all, harp_ns now);

/* Begins anew, as with each connection: earlier measurements do not apply. */
void harp_tcp_speed_init(struct harp_tcp_speed *v);

/* Notes before a record is given to the kernel what has left it on this connection, and what is unsent. */
void harp_tcp_speed_on_look(struct harp_tcp_speed *v, uint64_t left_bytes, uint32_t unsent_bytes,
                            harp_ns now);

/* Notes that a record was acknowledged `rtt_ns` after it was sent, as the last of `flight_bytes` in flight.
 */
void harp_tcp_speeds_on_flight(struct harp_tcp_speeds *all, uint32_t flight_bytes, harp_ns rtt_ns);

/* Forgets, as time demands: rules 3 and 4. Call it for each path once `fastest` was asked of all. */
void harp_tcp_speed_follow(struct harp_tcp_speed *v, const struct harp_tcp_speeds *all, harp_ns now);

/* Takes a path's speed into the fastest. */
void harp_tcp_speeds_add(struct harp_tcp_speeds *all, const struct harp_tcp_speed *v);

/* Forgets the fastest a little, if a step has passed. */
void harp_tcp_speeds_on_time(struct harp_tcp_speeds *all, harp_ns now);

#endif
