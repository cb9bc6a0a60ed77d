/* SPDX-License-Identifier: Apache-2.0 */
/* The routes of a peer's paths: between which interfaces and ports, over which routes of the drivers, and
 * to which addresses tcp paths connect.
 *
 * An interface of either side may have no address yet. Its paths exist, but nothing is opened for them: their
 * datagrams are built and dropped, so that for the protocol they are paths that do not answer, and they are
 * not connected. Once the interface has an address, its side says so in an ADDRESS, and what waited for it is
 * opened.
 *
 * Called under the engine's lock. */
#ifndef HARP_ROUTES_H
#define HARP_ROUTES_H

#include "engine/peer.h"

/* Writes what peers are told of one of our interfaces. */
void harp_routes_describe(const struct harp_engine *e, unsigned eni, struct harp_endpoint_eni *out);

/* Makes the paths of a new peer and opens their routes; `paths` is for its sender. Returns false without
 * memory, or where no path is possible; harp_routes_close closes what was opened. */
bool harp_routes_open(struct harp_peer *peer, const struct harp_peer_config *c,
                      struct harp_path_config paths[HARP_PATHS_MAX]) HARP_MUST_CHECK;
void harp_routes_close(struct harp_peer *peer);

/* Tells the peer the addresses that our interfaces have got since it was told of them. */
void harp_routes_tell_news(struct harp_peer *peer, const struct harp_endpoint *told);

/* One of our interfaces has an address now: opens what waited for it, and tells the peer. */
void harp_routes_number(struct harp_peer *peer, unsigned eni, harp_ns now);

/* The peer says that one of its interfaces has an address now. Ignores what contradicts its endpoint. */
void harp_routes_on_address(struct harp_peer *peer, const struct harp_numbered *numbered, harp_ns now);

#endif
