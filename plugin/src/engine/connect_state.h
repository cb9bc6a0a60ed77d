/* SPDX-License-Identifier: Apache-2.0 */
/* What others than the thread that polls a connect do to it: a peer that answers its request for a stream,
 * and one that does not answer any more. All calls under the engine's lock. */
#ifndef HARP_CONNECT_STATE_H
#define HARP_CONNECT_STATE_H

#include "engine/connect.h"

/* Removes the connect from those that wait for its peer. */
void harp_connect_leave_peer(struct harp_connect *c);
/* Takes a peer's answer. */
void harp_connects_on_opened(struct harp_peer *peer, const struct harp_opened *opened);
/* The peer answers no more: the connects that wait for it try again. */
void harp_connects_forget(struct harp_peer *peer);

#endif
