/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what a peer's control connection (monitor.h) brings and acts on it: opens and closes streams, fails
 * the peer or its links, completes messages. Called by the pass, and by a connect that waits for an answer,
 * under the engine's lock. */
#ifndef HARP_DISPATCH_H
#define HARP_DISPATCH_H

#include "base/base.h"

struct harp_peer;

/* Reads once, up to a message's size, and acts on the messages that are complete, or on the connection's end.
 * What is left keeps the socket ready. */
void harp_dispatch_control(struct harp_peer *peer, harp_ns now);

#endif
