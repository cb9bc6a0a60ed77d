/* SPDX-License-Identifier: Apache-2.0 */
/* Logs where packets as large as the MTU of both ends do not arrive, since the network between them has a
 * smaller one, and where they arrive again: once for each pair of interfaces.
 *
 * Called by each pass, with the engine's lock held. Writes the packet_limits of peers, and the engine's
 * size_changes_seen. */
#ifndef HARP_PACKET_SIZES_H
#define HARP_PACKET_SIZES_H

#include "engine/peer.h"

/* Looks at the paths of all peers when the limit of some path has changed since the last call. */
void harp_packet_sizes_on_pass(struct harp_engine *e, harp_ns now);

#endif
