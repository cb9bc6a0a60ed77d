/* SPDX-License-Identifier: Apache-2.0 */
/* The states of connects (connect.h): the one transition function, and what others than the thread that polls
 * a connect do to it: a peer that answers its request for a stream, and one that does not answer any more.
 * All calls under the engine's lock. */
#ifndef HARP_CONNECT_STATE_H
#define HARP_CONNECT_STATE_H

#include "engine/control/connect.h"

/* Changes the state, which must be one that follows the present one, and records that. A connect is OPENED
 * only while its peer can be used. */
void harp_connect_enter(struct harp_connect *c, enum harp_connect_state to, harp_ns now);

/* A stream was requested from the peer, which is to answer. */
void harp_connect_await_answer(struct harp_connect *c, struct harp_peer *peer, harp_ns now);
/* The peer that is to answer does not answer any more. */
void harp_connect_lose(struct harp_connect *c, harp_ns now);
/* Removes the connect from those that wait for its peer. */
void harp_connect_leave_peer(struct harp_connect *c);

/* Takes a peer's answer. */
void harp_connects_on_opened(struct harp_peer *peer, const struct harp_opened *opened, harp_ns now);
/* The peer answers no more: the connects that wait for it try again. */
void harp_connects_on_silence(struct harp_peer *peer, harp_ns now);

#endif
