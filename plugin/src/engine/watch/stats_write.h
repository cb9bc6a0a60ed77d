/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the entries of the statistics file with what engines, peers and links hold. Peers, paths and links
 * for which there was no room are left out. Under the engine's lock. */
#ifndef HARP_STATS_WRITE_H
#define HARP_STATS_WRITE_H

#include "base/base.h"

struct harp_engine;
struct harp_peer;
struct harp_peer_config;
struct harp_link;

/* The engine and its interfaces. */
void harp_stats_write_engine(const struct harp_engine *e, harp_ns now);
/* Writes the fields of a new peer and its paths that do not change. */
void harp_stats_name_peer(const struct harp_peer *peer, const struct harp_peer_config *config);
/* The part of this that changes when an interface of the peer gets an address. */
void harp_stats_name_paths(const struct harp_peer *peer);
/* The rest of it; adds to the counters of the interfaces. */
void harp_stats_write_peer(const struct harp_peer *peer, harp_ns now);
void harp_stats_write_link(const struct harp_link *link);

#endif
