/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the time for a byte on the tcp paths of a session, by which striping compares them.
 *
 * A round trip tells little of it: it contains what waits in front of the acknowledgement on its way back. So
 * while both ends send, each finds the paths slow that the other one uses, and leaves them to it: both use
 * half of the network. What a path moves while its kernel's queue stands is its rate, whatever waits behind.
 *
 * Owns struct harp_tcp_speed (a part of struct harp_path_speed) and struct harp_tcp_speeds (a part of struct
 * harp_sender), and alone writes them. Called by the sender. Rules:
 *
 *   1. Proof: while each look finds unsent bytes in the kernel, what has left it divided by the time is the
 *      path's rate. A piece has PIECE_NS and PIECE_BYTES at least, and begins when the queue has stood for
 *      PIECE_NS: the buckets and queues below have filled by then. PROOFS pieces are averaged.
 *   2. The usual speed is the mean of the proofs. Without any it is flight / round trip of the session's
 *      records that took QUEUED_NS, one value for all; without these the fastest flight / round trip, which
 *      is forgotten by a sixteenth each STEP_NS. Behind a token bucket the latter is the rate of a burst.
 *   3. What no queue stands on is not known to be slow: a path without proof has the usual speed. So has one
 *      whose proof is within a quarter of it: pieces differ by more than interfaces of one kind do.
 *   4. What was proven is forgotten slowly: HOLD_NS after the last proof a slow path gets faster by an eighth
 *      each STEP_NS, until it has the usual speed. */
#ifndef HARP_TCP_SPEED_H
#define HARP_TCP_SPEED_H

#include "base/base.h"

/* 1 Gbit/s: what a byte takes until something is measured, in ns times 2^16. */
#define HARP_TCP_NS_PER_BYTE_Q16 (8ull << 16)

struct harp_tcp_speed {
  uint64_t ns_per_byte_q16; /* the result: the ns that a byte takes, times 2^16 */
  uint64_t proven_q16;      /* the same, by rule 1; 0: no proof */
  bool is_standing;         /* the last look found unsent bytes */
  harp_ns stood_ns;         /* the time since which each look did */
  harp_ns proven_ns;        /* the time of the last proof, then of the last step of rule 4 */
  harp_ns from_ns;          /* the time when the piece under way began */
  uint64_t from_bytes;      /* the bytes that had left the kernel by then */
};

struct harp_tcp_speeds {
  uint64_t usual_q16;
  uint64_t queued_q16; /* the rate by records that took QUEUED_NS; 0: there were none */
  uint64_t fastest_q16;
  harp_ns step_ns; /* the time when the fastest was forgotten a little last */
};

/* The proofs of a session's paths. */
struct harp_tcp_proofs {
  uint64_t sum_q16;
  unsigned count;
};

void harp_tcp_speeds_init(struct harp_tcp_speeds *all, harp_ns now);

/* Begins anew, as with each connection: earlier measurements do not apply. */
void harp_tcp_speed_init(struct harp_tcp_speed *v);

/* Learns, before the kernel gets a record, how many bytes of this connection have left it and how many are
 * unsent. */
void harp_tcp_speed_on_look(struct harp_tcp_speed *v, uint64_t left_bytes, uint32_t unsent_bytes,
                            harp_ns now);

/* Learns that a record was acknowledged `rtt_ns` after it was sent, as the last of `flight_bytes` in flight.
 */
void harp_tcp_speeds_on_flight(struct harp_tcp_speeds *all, uint32_t flight_bytes, harp_ns rtt_ns);

/* Adds the path's proof, if it has one. */
void harp_tcp_proofs_add(struct harp_tcp_proofs *proofs, const struct harp_tcp_speed *v);

/* Finds the usual speed, from the proofs of all paths. */
void harp_tcp_speeds_follow(struct harp_tcp_speeds *all, const struct harp_tcp_proofs *proofs, harp_ns now);

/* Brings a path up to date with the usual speed: rules 3 and 4. */
void harp_tcp_speed_follow(struct harp_tcp_speed *v, const struct harp_tcp_speeds *all, harp_ns now);

#endif
