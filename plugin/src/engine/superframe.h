/* SPDX-License-Identifier: Apache-2.0 */
/* Superframes to send: packets of one path, built into a frame of the driver. The engine's transmit chooses
 * what is sent; here it is encoded and submitted. Under the engine's lock. */
#ifndef HARP_SUPERFRAME_H
#define HARP_SUPERFRAME_H

#include "base/base.h"

struct harp_peer;
struct harp_tx_choice;

/* Sends what was chosen for a path of datagrams, what else fits behind it, and an acknowledgement where one
 * is due. Returns false, and takes nothing from the sender, when the driver has no frame. */
bool harp_superframe_send(struct harp_peer *peer, const struct harp_tx_choice *choice, harp_ns now);

/* Sends the acknowledgement that is due for `path`, over the datagram path `over`. Returns false, and takes
 * nothing from the receiver, when the driver has no frame. */
bool harp_superframe_send_ack(struct harp_peer *peer, unsigned over, unsigned path, harp_ns now);

#endif
