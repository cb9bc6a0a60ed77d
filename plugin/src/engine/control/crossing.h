/* SPDX-License-Identifier: Apache-2.0 */
/* Connects that cross: two engines that connect to each other at the same moment get one connection, whose
 * client is the engine with the lower id.
 *
 * A server that has sent its WELCOME can not know whether the client counts itself connected. So an engine
 * never has both under way: a WELCOME to an engine, and a HELLO to the same whose WELCOME it would take. Of
 * two HELLOs that cross, the engine with the lower id refuses the other's as CROSSED while its own is under
 * way, and the other ends its own when it sends its WELCOME. Who was refused, or has ended its own, waits for
 * the connection that comes, and opens a stream on it; for a bounded time, since the handshake that won may
 * fail. The rule needs no answer to be right: an engine judges by its own handshakes alone.
 *
 * An engine that connects to itself is exempt. All calls under the engine's lock. */
#ifndef HARP_CROSSING_H
#define HARP_CROSSING_H

#include "engine/control/connect.h"

/* Returns whether a HELLO of that engine is to be refused, since a connect of ours to it wins: one under way
 * that somebody drives, or one that is done here and of which the other engine may not have the last word. */
bool harp_crossing_is_ours(const struct harp_engine *e, uint32_t engine_id, int traffic_class, harp_ns now);

/* Ends our own handshakes with an engine that is about to be welcomed. */
void harp_crossing_yield(struct harp_engine *e, uint32_t engine_id, int traffic_class, harp_ns now);

/* Returns whether another handshake may soon bring a connection with that engine, so that this connect waits
 * before it begins its own: another connect's, one whose WELCOME we sent, or the one that the peer reported
 * as the winner. */
bool harp_crossing_is_awaited(const struct harp_connect *c, harp_ns now);

#endif
