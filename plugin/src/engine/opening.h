/* SPDX-License-Identifier: Apache-2.0 */
/* How a further link is made of a peer that there is: by one round trip on its control connection, OPEN and
 * OPENED, in which the side that connects proves the secret of the listener. All of it under the engine's
 * lock.
 */
#ifndef HARP_OPENING_H
#define HARP_OPENING_H

#include "engine/dial.h"
#include "engine/listener.h"

/* A peer asks for a stream: makes a link of it, which waits for harp_listener_take, and answers. */
void harp_listeners_on_open(struct harp_peer *peer, const struct harp_open *open);

/* Asks a peer that there is to open a stream for the dial. Returns 0; -ENOENT: there is no such peer;
 * -HARP_ESTREAMS: it has all the streams that it can have; errors of harp_link_create. */
int harp_dial_ask_peer(struct harp_dial *d, harp_ns now);
/* Takes the dial out of those that wait for its peer. */
void harp_dial_leave_peer(struct harp_dial *d);
/* A peer has answered. */
void harp_dials_on_opened(struct harp_peer *peer, const struct harp_opened *opened);
/* A peer will answer no more: those that wait for it try again. */
void harp_dials_forget(struct harp_peer *peer);

#endif
