/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a further stream on an existing peer: one round trip on its control connection, OPEN and OPENED, in
 * which the connecting side proves that it holds the listener's secret. All calls under the engine's lock. */
#ifndef HARP_OPENING_H
#define HARP_OPENING_H

#include "engine/control/connect.h"
#include "engine/control/listener.h"

/* Takes a peer's request for a stream: makes a link, which waits for accept, and answers. */
void harp_listeners_on_open(struct harp_peer *peer, const struct harp_open *open, harp_ns now);

/* Requests a stream from an existing peer. Returns 0; -ENOENT: there is no such peer;
 * -HARP_ESTREAMS: it has all the streams that it can have; errors of harp_link_create. */
int harp_connect_request_stream(struct harp_connect *c, harp_ns now);

#endif
