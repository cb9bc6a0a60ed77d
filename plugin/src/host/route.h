/* SPDX-License-Identifier: Apache-2.0 */
/* Grades the kernel's way from an interface to an address. By rtnetlink, which needs no privilege. No
 * state; any thread; waits for the kernel alone. */
#ifndef HARP_HOST_ROUTE_H
#define HARP_HOST_ROUTE_H

#include <sys/socket.h>

#include "base/base.h"

/* The best first. */
enum harp_route_kind {
  HARP_ROUTE_LINK,    /* the peer is in the interface's subnet */
  HARP_ROUTE_GATEWAY, /* the route leads by the interface and a gateway */
  HARP_ROUTE_OTHER,   /* the route leads by another interface than the one that has the local address */
  HARP_ROUTE_SELF, /* the address is this host's own; the peer may be on this host, or its host have it too */
  HARP_ROUTE_NONE, /* there is none, or the kernel does not say */
  HARP_ROUTES
};

struct harp_route {
  uint8_t kind; /* enum harp_route_kind */
  /* GATEWAY: length of the prefix of the routing table's entry, 0 of a default route; else 0. Before
   * Linux 4.13 the kernel says the address's length for each. */
  uint8_t prefix_bits;
};

/* Looks up the route of packets from a local address, that of the interface `ifindex`, to another address of
 * the same family. */
struct harp_route harp_route_find(const struct sockaddr_storage *from, unsigned ifindex,
                                  const struct sockaddr_storage *to);

#endif
