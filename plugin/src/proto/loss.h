/* SPDX-License-Identifier: Apache-2.0 */
/* Loss detection of one path (RACK, RFC 8985): settles packets that were acknowledged, and finds lost ones.
 *
 * Owns and alone writes struct harp_path_loss, a part of struct harp_path, and the marks of the packets in
 * its flight. Called by the path's sender, from the thread that runs the engine's pass. Each function adds to
 * `result`. Rules:
 *
 *   1. A packet is lost when a packet sent later was acknowledged and it is older than one RTT plus a
 *      tolerance for reordering. So one later packet is enough, and no duplicate acknowledgements are
 *      counted.
 *   2. The tolerance grows when a "lost" packet turns out to have arrived, and shrinks over the following
 *      round trips, since a pause of the peer looks the same.
 *   3. The loss deadline is the time when the oldest packet that later ones have passed counts as lost. The
 *      probe timeout, for which no later packet is needed, is path_probe.h's.
 *   4. A path that is given up has all its packets lost.
 *   5. Once a round trip a packet tells the receiver which packets are settled, if that is news. */
#ifndef HARP_LOSS_H
#define HARP_LOSS_H

#include "base/counters.h"
#include "proto/path.h"
#include "proto/tx_stream.h"

/* The changes of a path by one event; the caller zeroes it. */
struct harp_loss_result {
  uint32_t acked_bytes;
  uint32_t lost_bytes; /* without those that no congestion lost (path_size.h) */
  uint32_t lost_packets, spurious_packets;
  harp_ns lost_sent_ns; /* the time when the youngest of the lost packets was sent */
  /* The highest number that was ever acknowledged is a new one: the time when its packet was sent, and the
   * flight_bytes of its record; 0: it is not. */
  harp_ns newest_sent_ns;
  uint32_t flight_bytes;
  bool advanced;  /* at least one packet was newly acknowledged */
  bool ect_acked; /* at least one of these was sent as ECN-capable */
  bool size_probe_acked;
};

void harp_loss_init(struct harp_path_loss *l, uint64_t first_number);

/* Learns that a round trip has passed: forgets a little of the tolerance for reordering, and looks whether
 * there is something to tell the receiver of what is settled. */
void harp_loss_on_round(struct harp_path *p);

/* Returns whether the packet of this number, which is about to be sent, tells the receiver that all packets
 * sent before the last one that told so are settled (HARP_FLAG_SETTLED). */
static inline bool harp_loss_take_settled(struct harp_path *p, uint64_t number) {
  if (harp_likely(!p->loss.is_settled_due)) return false;
  p->loss.is_settled_due = false;
  p->loss.settled_number = number;
  return true;
}

/* Settles the packets [begin, end), numbers below next_number: their lines are acknowledged to their
 * streams. */
void harp_loss_on_acked(struct harp_path *p, uint64_t begin, uint64_t end, struct harp_loss_result *result,
                        const struct harp_trace *trace, harp_ns now);

/* Marks packets as lost, has their streams send the lines again, and sets the loss deadline for the rest. */
void harp_loss_detect(struct harp_path *p, struct harp_loss_result *result, const struct harp_trace *trace,
                      harp_ns now);

/* Marks every packet in flight as lost: the path goes down. */
void harp_loss_give_up(struct harp_path *p, struct harp_loss_result *result, const struct harp_trace *trace,
                       harp_ns now);

#endif
