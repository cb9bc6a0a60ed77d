/* SPDX-License-Identifier: Apache-2.0 */
/* Links that NCCL has closed while copies of its messages were under way: NCCL counts them as sent,
 * so the engine delivers them, then sends CLOSE and frees the link. It stops when the peer is gone, when the
 * link fails, and after the peer timeout.
 *
 * Links with a request whose buffer is NCCL's never drain: that buffer may be gone. */
#ifndef HARP_DRAIN_H
#define HARP_DRAIN_H

#include "base/base.h"

struct harp_engine;
struct harp_link;

/* Under the engine's lock: */

/* Returns whether a link that is to be closed has copies to deliver. */
bool harp_drain_is_needed(const struct harp_link *link);

/* Takes over a link for which that is so. */
void harp_drain_begin(struct harp_link *link, harp_ns now);

/* Frees the links that are done, and those whose time is over; logs the latter at WARN. */
void harp_drain_review(struct harp_engine *e, harp_ns now);

#endif
