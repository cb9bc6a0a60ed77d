/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a peer: it is made when a handshake is done, has links, fails with all of them or is left, and
 * ends when it has had no link for a while. All calls under the engine's lock. */
#ifndef HARP_PEER_LIFE_H
#define HARP_PEER_LIFE_H

#include "engine/link.h"

/* Makes a peer for the slot that was reserved in the engine, and attaches it. NULL: no memory. */
struct harp_peer *harp_peer_create(struct harp_engine *e, const struct harp_peer_config *config);

/* Sends FINAL, detaches and frees. No link may be left. */
void harp_peer_destroy(struct harp_peer *peer);

/* Fails the peer and all its links, with the one sentence that the user will see. Later calls change nothing.
 * The caller sends FINAL where the other side is to learn it at once (harp_monitor_leave). */
void harp_peer_fail(struct harp_peer *peer, enum harp_status status, harp_ns now, const char *fmt, ...)
    HARP_PRINTF(4, 5);

/* The control connection is gone, for the reason `why`, a clause about it: the peer has left, or its process
 * has ended. Fails the peer if requests still wait for it; those of a link whose sender may ask for it again
 * (control/answers.h) wait for HARP_PEER_AGAIN_NS. */
void harp_peer_on_gone(struct harp_peer *peer, const char *why, harp_ns now);

/* Posts what NCCL's thread submitted on a link. Fails the peer where it is gone and the link waits for it. */
static inline void harp_peer_take_submissions(struct harp_link *link, harp_ns now) {
  if (harp_unlikely(harp_link_take_submissions(link, now)))
    harp_peer_on_gone(link->peer, link->peer->monitor.gone_why, now);
}

/* Marks what is done on all its links. */
void harp_peer_complete(struct harp_peer *peer);

/* Completes what came and what was acknowledged on its links since the last call, publishes their credit,
 * and touches the peer. */
void harp_peer_complete_news(struct harp_peer *peer);

#define HARP_PEER_AGAIN_NS HARP_MS(500)

/* The time between two calls of harp_peers_on_time, and of what else looks at all peers. */
#define HARP_PEERS_TIME_NS HARP_MS(100)

/* Ends peers that have had no link for HARP_PEER_LINGER_NS; tells all how far the shared clock is ahead. */
void harp_peers_on_time(struct harp_engine *e, harp_ns now);

#endif
