/* SPDX-License-Identifier: Apache-2.0 */
/* The order of peers that send, and the carrier of each: for the active peers in turn runs their timers,
 * sends data and acknowledgements. Datagrams go by superframe.h, records by tcp.h. Called by the pass,
 * under the engine's lock. */
#ifndef HARP_TRANSMIT_H
#define HARP_TRANSMIT_H

#include "base/base.h"

struct harp_engine;

/* The most acknowledgements that travel alone to one peer in a pass: a peer may have dozens of paths.
 * Those left over are due longest, and so are first in the next pass. */
enum { HARP_TRANSMIT_PEER_ACKS = 8 };

/* Sends what is due, a bounded part of it. Returns how many superframes and acknowledgements were sent; a
 * record counts as several. */
unsigned harp_transmit_due(struct harp_engine *e, harp_ns now);

#endif
