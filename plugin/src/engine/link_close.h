/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL takes a link's buffers back: it closes the link, or deregisters memory.
 *
 * A link that NCCL closes while copies of its messages are under way stays as a closing link: NCCL counts
 * them as sent, so the engine delivers them, then sends CLOSE and frees the link. It stops when the peer is
 * gone, when the link fails, and after the peer timeout or HARP_LINK_CLOSING_MAX_NS. A link with a request
 * whose buffer is NCCL's is freed at once: that buffer may be gone. No call waits for closing links for long:
 * an engine that nobody uses any more lives on until they are freed (net/device_engines.h). */
#ifndef HARP_LINK_CLOSE_H
#define HARP_LINK_CLOSE_H

#include "engine/link.h"

#define HARP_LINK_CLOSING_MAX_NS HARP_SEC(10)

/* Tells the peer that the stream is closed, and frees. Pending requests are forgotten. Takes the engine's
 * lock, so after it the engine touches no buffer of NCCL's. Where only copies are under way, the engine keeps
 * the link until they are delivered. Logs the error of a link that failed with copies undelivered,
 * which NCCL takes for sent. */
void harp_link_destroy(struct harp_link *link);

/* Makes the engine forget every request whose buffer overlaps [data, data + bytes): after this nothing writes
 * or reads there. A link that had such a request fails. Takes the engine's lock. */
void harp_link_quiesce(struct harp_link *link, const void *data, size_t bytes);

/* Frees the closing links whose copies are delivered, and those whose time is over; logs the latter at
 * WARN. Called by the pass, under the engine's lock. */
void harp_links_end_closed(struct harp_engine *e, harp_ns now);

#endif
