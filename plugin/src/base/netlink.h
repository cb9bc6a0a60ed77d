/* SPDX-License-Identifier: Apache-2.0 */
/* One question to the kernel by netlink, and its one answer: rtnetlink, or a family of generic netlink.
 * Sources: netlink(7), rtnetlink(7), Linux include/uapi/linux/genetlink.h. */
#ifndef HARP_BASE_NETLINK_H
#define HARP_BASE_NETLINK_H

#include <linux/genetlink.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

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

/* Begins a request of this type whose body is so long; the body is zero. */
void harp_netlink_begin(struct harp_netlink_request *r, uint16_t type, uint32_t body_bytes);

/* Adds an attribute. */
void harp_netlink_add(struct harp_netlink_request *r, uint16_t type, const void *data, uint32_t bytes);

/* Sends it by a protocol (NETLINK_ROUTE, NETLINK_GENERIC) and receives the answer, of
 * HARP_NETLINK_REPLY_BYTES at most. Returns 0, or -errno: the kernel's, or -EPROTO when the answer is of
 * another type or cut short. */
HARP_MUST_CHECK int harp_netlink_exchange(const struct harp_netlink_request *r, int protocol,
                                          uint16_t answer_type, void *reply);

/* Finds an attribute behind a body of so many bytes; NULL when there is none. */
const struct rtattr *harp_netlink_find(const void *reply, uint32_t body_bytes, uint16_t type);

/* Finds an attribute within another. */
const struct rtattr *harp_netlink_nested(const struct rtattr *outer, uint16_t type);

#endif
