/* SPDX-License-Identifier: Apache-2.0 */
#include "host/route.h"

#include <string.h>

#include "base/address.h"
#include "base/netlink.h"

/* Tells the kind by the kernel's answer. */
static enum harp_route_kind kind_of(const void *reply, unsigned ifindex) {
  const struct rtmsg *route = NLMSG_DATA((const struct nlmsghdr *)reply);
  uint32_t by = 0;
  if (route->rtm_type == RTN_LOCAL) return HARP_ROUTE_SELF;
  const struct rtattr *out = harp_netlink_find(reply, sizeof *route, RTA_OIF);
  if (route->rtm_type != RTN_UNICAST || !out) return HARP_ROUTE_NONE;
  memcpy(&by, RTA_DATA(out), sizeof by);
  if (by != ifindex) return HARP_ROUTE_OTHER;
  bool has_gateway = harp_netlink_find(reply, sizeof *route, RTA_GATEWAY) ||
                     harp_netlink_find(reply, sizeof *route, RTA_VIA);
  return has_gateway ? HARP_ROUTE_GATEWAY : HARP_ROUTE_LINK;
}

struct harp_route harp_route_find(const struct sockaddr_storage *from, unsigned ifindex,
                                  const struct sockaddr_storage *to) {
  _Alignas(struct nlmsghdr) uint8_t reply[HARP_NETLINK_REPLY_BYTES];
  const struct rtmsg *route = NLMSG_DATA(reply);
  struct harp_route found = {.kind = HARP_ROUTE_NONE};
  if (harp_netlink_find_route(from, to, harp_address_scope(to), 0, reply)) return found;
  found.kind = kind_of(reply, ifindex);
  if (found.kind == HARP_ROUTE_GATEWAY &&
      harp_netlink_find_route(from, to, harp_address_scope(to), HARP_ROUTE_ENTRY, reply) == 0)
    found.prefix_bits = route->rtm_dst_len;
  return found;
}
