/* SPDX-License-Identifier: Apache-2.0 */
/* The windows that an engine announces to its peers, so that its receive buffers hold all that they have in
 * flight towards it (proto/receive_window.h).
 *
 * A peer whose packets come to a buffer of their own may fill it; those whose packets come to one buffer
 * share it: each of those that sent lately has its part. Called under the engine's lock. */
#ifndef HARP_INBOUND_H
#define HARP_INBOUND_H

#include "base/base.h"

struct harp_engine;
struct harp_peer;

/* A peer counts as a sender for so long after its last data. Longer than a sender trusts a window that was
 * not announced again (HARP_WINDOW_STALE_NS in proto/send_window.h). */
#define HARP_INBOUND_LATELY_NS HARP_MS(200)

/* Returns the window of a peer that has sent nothing yet. */
uint32_t harp_inbound_window_bytes(const struct harp_engine *e);

/* Learns that data of a peer came: where it had not sent lately, the windows are shared out anew. */
void harp_inbound_on_data(struct harp_peer *peer, harp_ns now);

/* Drops senders that have ceased to send or are gone, and divides their windows among the others. Called now
 * and then. */
void harp_inbound_on_time(struct harp_engine *e, harp_ns now);

#endif
