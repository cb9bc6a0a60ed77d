/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of carrier: the paths of a sender that carry small messages, and those that carry large ones.
 *
 * Owns and alone writes struct harp_send_carriers, a part of struct harp_sender. Called by the sender's other
 * files, under the engine's lock. Rules, for two ENIs that have eligible paths over both carriers; elsewhere
 * messages of both classes take all eligible paths:
 *
 *   1. Small messages take datagrams, which cost less for each message. Which are small depends on what else
 *      waits (tx_stream.c).
 *   2. Large messages take the carrier that experiments have found, or try (send_experiment.h). */
#ifndef HARP_SEND_CARRIER_H
#define HARP_SEND_CARRIER_H

#include "proto/tx_stream.h"

struct harp_sender;

struct harp_send_carriers {
  uint64_t by_class[HARP_TX_CLASSES]; /* eligible paths for messages of a class, a bit each */
};

/* Works out by_class, after the eligible paths or the carrier of large messages have changed. Returns whether
 * large messages have a choice of carriers. */
bool harp_send_carriers_choose(struct harp_sender *s);

/* Updates what the datagrams that carry small messages may have in flight at most, before one of `bytes` is
 * posted whose carrier depends on it. Windows in slow start count for what they become soon. */
void harp_send_carriers_update_windows(struct harp_sender *s, uint32_t bytes);

#endif
