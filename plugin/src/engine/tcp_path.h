/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a tcp path: records go to the kernel, what comes goes to the session. Called by tcp.c and by
 * the engine's pass, under the engine's lock. */
#ifndef HARP_TCP_PATH_H
#define HARP_TCP_PATH_H

#include "engine/tcp.h"

/* Between two attempts to connect: first, and at most. */
#define HARP_TCP_WAIT_NS     HARP_MS(10)
#define HARP_TCP_WAIT_MAX_NS HARP_SEC(10)
/* A connection over which nothing was acknowledged for so long, since it was begun, is of no use. */
#define HARP_TCP_PROOF_NS HARP_SEC(2)
/* Between two looks at the kernel's progress. */
#define HARP_TCP_LOOK_NS HARP_MS(4)

enum harp_tcp_read {
  HARP_TCP_READ_NOTHING,
  HARP_TCP_READ_SOME, /* all that there was */
  HARP_TCP_READ_MORE, /* there may be more */
};

/* Reads a bounded part of what has come. Ends the connection where that is at its end, or broken. */
enum harp_tcp_read harp_tcp_path_read(struct harp_tcp_path *p, harp_ns now);

/* Hands to the kernel what waits for it; unblocks the path when all of it is gone. */
void harp_tcp_path_flush(struct harp_tcp_path *p, harp_ns now);

/* Begins to find out whether payload is to go without a copy, as the configuration says. */
void harp_tcp_path_begin_zerocopy(struct harp_tcp_path *p);

/* Takes what the kernel tells of payload that went without a copy. */
void harp_tcp_path_reap(struct harp_tcp_path *p);

/* Closes the connection; what was in flight is given to other paths, and it is opened again later. */
void harp_tcp_path_end(struct harp_tcp_path *p, harp_ns now, const char *why);

/* Returns the peer's tcp path of this number; NULL: it is none. */
struct harp_tcp_path *harp_tcp_path_of(struct harp_peer *peer, unsigned path);

#endif
