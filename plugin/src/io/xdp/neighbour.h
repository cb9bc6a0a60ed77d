/* SPDX-License-Identifier: Apache-2.0 */
/* The MAC address of the next hop to a peer, from the kernel's routing and neighbour tables.
 *
 * Read by netlink; nothing here sends ARP or waits for it. To resolve an address the
 * driver sends through an ordinary socket meanwhile, and the kernel does the rest. Called by the xdp driver's
 * thread. Source: rtnetlink(7). */
#ifndef HARP_IO_XDP_NEIGHBOUR_H
#define HARP_IO_XDP_NEIGHBOUR_H

#include <sys/socket.h>

#include "base/base.h"

/* Finds the MAC address of the next hop from `local` to `peer` through the interface. Returns 0, -EAGAIN when
 * it is not resolved yet, -EXDEV when the route uses another interface or the peer is on this host, or
 * another -errno, such as -EHOSTUNREACH when there is no route. */
HARP_MUST_CHECK int harp_neighbour_find(unsigned ifindex, const struct sockaddr_storage *local,
                                        const struct sockaddr_storage *peer, uint8_t mac[6]);

/* Subscribes to changes of neighbours, routes and links. Returns the socket, non-blocking, which the caller
 * closes; or -errno. */
HARP_MUST_CHECK int harp_neighbour_watch(void);

/* Reads the pending notifications; returns whether next hops through the interface may have changed. */
bool harp_neighbour_changed(int watch_fd, unsigned ifindex);

#endif
