/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a datagram: driver, superframe, packet, peer, link, buffer. Called by the pass, under the
 * engine's lock. Records of tcp paths come by tcp.h. */
#ifndef HARP_RECEIVE_H
#define HARP_RECEIVE_H

#include "base/base.h"

struct harp_engine;

/* Takes a bounded number of superframes from the driver; places their packets, and completes messages.
 * Returns how many superframes came. */
unsigned harp_receive_datagrams(struct harp_engine *e);

#endif
