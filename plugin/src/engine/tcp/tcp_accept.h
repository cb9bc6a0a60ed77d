/* SPDX-License-Identifier: Apache-2.0 */
/* Accepted connections that have not sent their JOIN, which names their path and proves who they are.
 * Under the engine's lock. */
#ifndef HARP_TCP_ACCEPT_H
#define HARP_TCP_ACCEPT_H

#include "engine/tcp/tcp.h"

/* Accepts some of the connections that wait at an interface's listener. */
void harp_tcp_accept(struct harp_engine *e, unsigned eni, harp_ns now);

/* Reads the JOIN, no more; with a right one the connection becomes its path's, with a wrong one it ends. */
void harp_tcp_accepted_on_readable(struct harp_engine *e, struct harp_tcp_accepted *a, harp_ns now);

/* Waits for connections to an interface's listener. Returns 0 or -errno. */
int harp_tcp_watch_listener(struct harp_engine *e, unsigned eni) HARP_MUST_CHECK;

/* Ends all of them. */
void harp_tcp_accepted_close(struct harp_engine *e);

#endif
