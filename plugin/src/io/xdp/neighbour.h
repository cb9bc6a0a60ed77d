/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows of the way to a peer: next hop, its MAC address, and what is attached to an
 * interface.
 *
 * Asked by netlink, answered at once from the kernel's tables; nothing here speaks ARP or waits for it. Who
 * wants an address resolved sends through an ordinary socket meanwhile, and the kernel does the rest. Called
 * by the xdp driver. Source: rtnetlink(7). */
#ifndef HARP_IO_XDP_NEIGHBOUR_H
#define HARP_IO_XDP_NEIGHBOUR_H

#include <sys/socket.h>

#include "base/base.h"

/* Finds the MAC address of the next hop from `local` to `peer` out of the interface. Returns 0; -EAGAIN: not
 * resolved yet; -EXDEV: the kernel would send by another interface, or the peer is on this host;
 * -EHOSTUNREACH and the like: no route. */
HARP_MUST_CHECK int harp_neighbour_find(unsigned ifindex, const struct sockaddr_storage *local,
                                        const struct sockaddr_storage *peer, uint8_t mac[6]);

/* Opens a watch on neighbours, routes and links; returns its file descriptor, or -errno. */
HARP_MUST_CHECK int harp_neighbour_watch(void);

/* Takes what the watch has to say; returns whether the way of packets out of the interface may have changed.
 */
bool harp_neighbour_changed(int watch_fd, unsigned ifindex);

#endif
