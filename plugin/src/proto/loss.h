/* SPDX-License-Identifier: Apache-2.0 */
/* Finds lost packets on one path, and settles acknowledged ones.
 *
 * Idea (RACK, RFC 8985, and QUIC's probe timeout, RFC 9002): a packet is lost when a packet sent later was
 * acknowledged and it is older than one RTT plus a tolerance for reordering; so one later packet is enough,
 * and no duplicate acknowledgements are counted. The tolerance grows when a "lost" packet turns out to have
 * arrived, and is forgotten over the following round trips, since a pause of the peer looks the same.
 *
 * Timers: the loss deadline (a packet has a younger acknowledged one, but is not old enough yet) and the
 * probe timeout (nothing was acknowledged for an RTT and four variations after the last packet: one packet is
 * sent regardless of the window, to provoke an acknowledgement; doubles each time). */
#ifndef HARP_LOSS_H
#define HARP_LOSS_H

#include "base/counters.h"
#include "proto/path.h"
#include "proto/tx_stream.h"

/* What one event changed on a path. */
struct harp_loss_result {
  uint32_t acked_bytes, lost_bytes;
  uint32_t lost_packets, spurious_packets;
  bool advanced; /* at least one packet was newly acknowledged */
  bool size_probe_acked;
};

/* Settles the packets of [begin, end), 64-bit numbers below next_number, and tells their streams what
 * arrived.
 */
void harp_loss_on_acked(struct harp_path *p, uint64_t begin, uint64_t end, struct harp_loss_result *result,
                        const struct harp_trace *trace, harp_ns now);

/* Marks what is lost by now, tells its streams, and sets the loss deadline for the rest. */
void harp_loss_detect(struct harp_path *p, struct harp_loss_result *result, const struct harp_trace *trace,
                      harp_ns now);

/* Gives up every pending packet of the path (it goes down). */
void harp_loss_give_up(struct harp_path *p, struct harp_loss_result *result, const struct harp_trace *trace,
                       harp_ns now);

#endif
