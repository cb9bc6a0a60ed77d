/* SPDX-License-Identifier: Apache-2.0 */
/* Which peer sends next, and over which carrier: for the active peers in turn runs their timers, sends data
 * and acknowledgements. Datagrams go by superframe.h, records by tcp.h. Called by the pass, under the
 * engine's lock. */
#ifndef HARP_TRANSMIT_H
#define HARP_TRANSMIT_H

#include "base/base.h"

struct harp_engine;

/* Sends what is due, a bounded part of it. Returns how many superframes and acknowledgements were sent; a
 * record counts as several. */
unsigned harp_transmit_due(struct harp_engine *e, harp_ns now);

#endif
