/* SPDX-License-Identifier: Apache-2.0 */
/* One netlink request to the kernel and its one reply: rtnetlink, or a family of generic netlink.
 * Sources: netlink(7), rtnetlink(7), Linux include/uapi/linux/genetlink.h. No state; any thread; waits for
 * the kernel. */
#ifndef HARP_BASE_NETLINK_H
#define HARP_BASE_NETLINK_H

#include <linux/genetlink.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "base/base.h"

enum { HARP_NETLINK_REQUEST_BYTES = 256, HARP_NETLINK_REPLY_BYTES = 32768 };

struct harp_netlink_request {
  struct nlmsghdr head;
  union {
    struct rtmsg route;
    struct ndmsg neighbour;
    struct ifinfomsg link;
    struct genlmsghdr generic;
  } body;
  uint8_t rest[HARP_NETLINK_REQUEST_BYTES];
};

/* Begins a request of this type with a body of body_bytes, zeroed. */
void harp_netlink_begin(struct harp_netlink_request *r, uint16_t type, uint32_t body_bytes);

/* Appends an attribute; `data` is copied. */
void harp_netlink_add(struct harp_netlink_request *r, uint16_t type, const void *data, uint32_t bytes);

/* Sends the request by a protocol (NETLINK_ROUTE, NETLINK_GENERIC) and receives the reply into `reply`, of
 * HARP_NETLINK_REPLY_BYTES. Returns 0, or -errno: the kernel's, or -EPROTO when the reply has another type or
 * is truncated. */
HARP_MUST_CHECK int harp_netlink_exchange(const struct harp_netlink_request *r, int protocol,
                                          uint16_t answer_type, void *reply);

/* Flag of a request for a route: the reply is the entry of the routing table, with its prefix, and not the
 * way of one packet (RTM_F_FIB_MATCH, Linux 4.13). */
enum { HARP_ROUTE_ENTRY = 0x2000 };

/* Requests the route from an address to another, by the interface `ifindex`; 0: by the one that the routing
 * tables choose. flags: 0 or HARP_ROUTE_ENTRY. The reply has a struct rtmsg. Returns 0, or -errno:
 * -ENETUNREACH, -EHOSTUNREACH, -EACCES or -EINVAL where there is none. */
HARP_MUST_CHECK int harp_netlink_find_route(const struct sockaddr_storage *from,
                                            const struct sockaddr_storage *to, uint32_t ifindex,
                                            unsigned flags, void *reply);

/* Returns an attribute behind a body of body_bytes, within `reply`; NULL: there is none. */
const struct rtattr *harp_netlink_find(const void *reply, uint32_t body_bytes, uint16_t type);

/* Returns an attribute within another; NULL: there is none. */
const struct rtattr *harp_netlink_nested(const struct rtattr *outer, uint16_t type);

#endif
