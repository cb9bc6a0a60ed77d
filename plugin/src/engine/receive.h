/* SPDX-License-Identifier: Apache-2.0 */
/* What comes: datagrams by way of driver, superframe, packet, peer, link, buffer; records of tcp paths, which
 * tcp.h reads. Completes messages. Called by the pass, under the engine's lock. */
#ifndef HARP_RECEIVE_H
#define HARP_RECEIVE_H

#include "base/base.h"

struct harp_engine;

/* Takes a bounded number of superframes from the driver; places their packets, and completes messages.
 * Returns how many superframes came. */
unsigned harp_receive_datagrams(struct harp_engine *e);

/* Reads a bounded part of what has come over one tcp path, each in its turn. Returns 1 if something came, and
 * sets *now to when; else 0. The engine has tcp paths. */
unsigned harp_receive_records(struct harp_engine *e, harp_ns *now);

#endif
