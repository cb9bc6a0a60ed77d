/* SPDX-License-Identifier: Apache-2.0 */
/* Which sockets of an engine's tcp paths have something to read: the epoll set, and the list of paths that
 * may have more than was read of them. Used by the files of tcp paths alone, under the engine's lock. */
#ifndef HARP_TCP_POLL_H
#define HARP_TCP_POLL_H

#include "engine/tcp/tcp.h"

/* In the epoll set a path is named by its address, a listener and an accepted connection by their index and
 * these bits. */
enum { HARP_TCP_IS_LISTENER = 1, HARP_TCP_IS_ACCEPTED = 2, HARP_TCP_KIND_BITS = 2 };

/* Adds a socket to the set. Returns 0 or -errno. */
int harp_tcp_watch(struct harp_tcp *t, int fd, uint32_t events, uint64_t name) HARP_MUST_CHECK;
/* The same with the connection of a path: in both directions, at edges, so that one that was read or written
 * empty waits for the next edge. */
int harp_tcp_watch_path(struct harp_tcp_path *p) HARP_MUST_CHECK;
/* The same with an interface's listener. */
int harp_tcp_watch_listener(struct harp_tcp *t, unsigned eni) HARP_MUST_CHECK;
/* Takes a socket out of the set. */
void harp_tcp_unwatch(struct harp_tcp *t, int fd);

/* Appends a path to the list of those that may have something to read; or takes it out. */
void harp_tcp_list_readable(struct harp_tcp_path *p);
void harp_tcp_unlist_readable(struct harp_tcp_path *p);

#endif
