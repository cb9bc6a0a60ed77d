/* SPDX-License-Identifier: Apache-2.0 */
/* Reads next hops from the kernel's routing and neighbour tables, and its news of them (hops.h keeps them).
 *
 * Read by netlink; nothing here sends ARP or waits for it. To resolve an address the driver sends through an
 * ordinary socket meanwhile, and the kernel does the rest. Look-ups are called by a thread of their own
 * (look_up.h), since they may wait for whoever changes the kernel's network configuration; the news are read
 * under the engine's lock. Source: rtnetlink(7). */
#ifndef HARP_IO_XDP_NEIGHBOUR_H
#define HARP_IO_XDP_NEIGHBOUR_H

#include <string.h>
#include <sys/socket.h>

#include "base/base.h"

/* The address of a next hop; its IP version may differ from that of the packets (RFC 5549). */
struct harp_neighbour {
  uint8_t family;
  uint8_t ip[16];
};

static inline bool harp_neighbour_is_same(const struct harp_neighbour *a, const struct harp_neighbour *b) {
  return a->family == b->family && !memcmp(a->ip, b->ip, sizeof a->ip);
}

/* Finds the next hop from `local` to `peer` through the interface: the peer itself, or a gateway. Returns 0,
 * -EXDEV when the route uses another interface or the peer is on this host, or another -errno, such as
 * -EHOSTUNREACH when there is no route. */
HARP_MUST_CHECK int harp_neighbour_find(unsigned ifindex, const struct sockaddr_storage *local,
                                        const struct sockaddr_storage *peer, struct harp_neighbour *hop);

/* Finds its MAC address. Returns 0, -EAGAIN when it is not resolved yet, or another -errno. */
HARP_MUST_CHECK int harp_neighbour_find_mac(unsigned ifindex, const struct harp_neighbour *hop,
                                            uint8_t mac[6]);

enum harp_neighbour_event {
  HARP_NEIGHBOUR_NONE,     /* the news do not concern the interface */
  HARP_NEIGHBOUR_RESOLVED, /* the hop has this MAC address */
  HARP_NEIGHBOUR_FAILED,   /* the hop has no MAC address */
  HARP_NEIGHBOUR_ROUTE,    /* the route of destinations has changed whose first bits `hop` has */
  HARP_NEIGHBOUR_LINK,     /* the interface has changed; its MAC address */
  HARP_NEIGHBOUR_GONE,     /* the interface is gone */
  HARP_NEIGHBOUR_LOST,     /* news were lost */
};

struct harp_neighbour_news {
  enum harp_neighbour_event event;
  struct harp_neighbour hop;
  unsigned bits;
  bool has_mac;
  uint8_t mac[6];
};

/* Subscribes to news of neighbours, routes and links. Returns the socket, non-blocking, which the caller
 * closes; or -errno. */
HARP_MUST_CHECK int harp_neighbour_watch(void);

/* Reads some of the news, and calls for each that may concern the interface. Returns whether there may be
 * more. */
bool harp_neighbour_read(int watch_fd, unsigned ifindex,
                         void (*on_news)(void *owner, const struct harp_neighbour_news *news), void *owner);

#endif
