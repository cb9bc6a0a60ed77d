/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds what happened to the packets of one path to the counters, to congestion control and to the flows of
 * its pair of ENIs.
 *
 * No state of its own. Called by the sender's other files, under the engine's lock. Rules:
 *
 *   1. Congestion control gets a sample for each event that acknowledged or lost bytes.
 *   2. At the end of a round trip the flows of the pair have it, and then the experiments. */
#ifndef HARP_PATH_ACCOUNT_H
#define HARP_PATH_ACCOUNT_H

#include "proto/loss.h"

struct harp_sender;

/* Accounts for an event on a path that had so many bytes in flight before; `rtt_ns`: 0 if it shows none. */
void harp_path_account_event(struct harp_sender *s, struct harp_path *p, const struct harp_loss_result *r,
                             uint32_t inflight_bytes, harp_ns rtt_ns, harp_ns now);

/* Learns that there is work after a time without: what the path was idle counts for its window. */
void harp_path_account_busy(struct harp_path *p, harp_ns now);

/* Traces a cut of the window by more than an eighth; the trace of acknowledgements shows smaller ones. */
void harp_path_account_window_cut(const struct harp_sender *s, const struct harp_path *p, uint32_t from_bytes,
                                  harp_ns now);

#endif
