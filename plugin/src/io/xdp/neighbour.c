/* SPDX-License-Identifier: Apache-2.0 */
/* See neighbour.h. */
#include "io/xdp/neighbour.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/netlink.h"

enum { USABLE = NUD_PERMANENT | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE, CHANGES_MAX = 16 };

/* The address of a next hop; its IP version may differ from that of the packets (RFC 5549). */
struct hop {
  uint8_t family;
  uint8_t ip[16];
};

/* Reads the gateway of a route into *hop; without one *hop is unchanged. */
static int read_gateway(const struct rtattr *gateway, const struct rtattr *via, struct hop *hop) {
  const uint8_t *ip = gateway ? RTA_DATA(gateway) : NULL;
  size_t bytes = gateway ? RTA_PAYLOAD(gateway) : 0;
  if (via) {
    const struct rtvia *v = RTA_DATA(via);
    if (RTA_PAYLOAD(via) < sizeof *v) return -EPROTO;
    hop->family = (uint8_t)v->rtvia_family;
    ip = v->rtvia_addr;
    bytes = RTA_PAYLOAD(via) - sizeof *v;
  }
  if (ip && bytes != harp_ip_bytes(hop->family)) return -EPROTO;
  if (ip) memcpy(hop->ip, ip, bytes);
  return 0;
}

/* Finds the next hop to the peer: the peer itself, or a gateway. */
static int next_hop(unsigned ifindex, const struct sockaddr_storage *local,
                    const struct sockaddr_storage *peer, struct hop *hop) {
  _Alignas(struct nlmsghdr) uint8_t reply[HARP_NETLINK_REPLY_BYTES];
  uint32_t by;
  int err = harp_netlink_find_route(local, peer, ifindex, 0, reply);
  if (err) return err;
  const struct rtmsg *route = NLMSG_DATA(reply);
  const struct rtattr *out = harp_netlink_find(reply, sizeof *route, RTA_OIF);
  if (!out) return -EPROTO;
  memcpy(&by, RTA_DATA(out), sizeof by);
  if (route->rtm_type != RTN_UNICAST || by != ifindex) return -EXDEV;
  hop->family = (uint8_t)peer->ss_family;
  memcpy(hop->ip, harp_address_ip(peer), harp_ip_bytes(peer->ss_family));
  return read_gateway(harp_netlink_find(reply, sizeof *route, RTA_GATEWAY),
                      harp_netlink_find(reply, sizeof *route, RTA_VIA), hop);
}

int harp_neighbour_find(unsigned ifindex, const struct sockaddr_storage *local,
                        const struct sockaddr_storage *peer, uint8_t mac[6]) {
  _Alignas(struct nlmsghdr) uint8_t reply[HARP_NETLINK_REPLY_BYTES];
  struct harp_netlink_request r;
  struct hop hop;
  int err = next_hop(ifindex, local, peer, &hop);
  if (err) return err;
  harp_netlink_begin(&r, RTM_GETNEIGH, sizeof r.body.neighbour);
  r.body.neighbour.ndm_family = hop.family;
  r.body.neighbour.ndm_ifindex = (int)ifindex;
  harp_netlink_add(&r, NDA_DST, hop.ip, harp_ip_bytes(hop.family));
  err = harp_netlink_exchange(&r, NETLINK_ROUTE, RTM_NEWNEIGH, reply);
  if (err) return err == -ENOENT ? -EAGAIN : err;
  const struct ndmsg *neighbour = NLMSG_DATA(reply);
  const struct rtattr *address = harp_netlink_find(reply, sizeof *neighbour, NDA_LLADDR);
  if (!(neighbour->ndm_state & USABLE) || !address || RTA_PAYLOAD(address) != 6) return -EAGAIN;
  memcpy(mac, RTA_DATA(address), 6);
  return 0;
}

int harp_neighbour_watch(void) {
  struct sockaddr_nl us = {
      .nl_family = AF_NETLINK,
      .nl_groups = RTMGRP_NEIGH | RTMGRP_LINK | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE,
  };
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return -errno;
  if (!bind(fd, (struct sockaddr *)&us, sizeof us)) return fd;
  int err = -errno;
  close(fd);
  return err;
}

/* Returns whether a notification may change the next hops through the interface. Any route may. */
static bool concerns(const struct nlmsghdr *h, unsigned ifindex) {
  switch (h->nlmsg_type) {
  case RTM_NEWNEIGH:
  case RTM_DELNEIGH:
    return ((const struct ndmsg *)NLMSG_DATA(h))->ndm_ifindex == (int)ifindex;
  case RTM_NEWLINK:
  case RTM_DELLINK:
    return ((const struct ifinfomsg *)NLMSG_DATA(h))->ifi_index == (int)ifindex;
  default:
    return true;
  }
}

bool harp_neighbour_changed(int watch_fd, unsigned ifindex) {
  _Alignas(struct nlmsghdr) uint8_t text[HARP_NETLINK_REPLY_BYTES];
  bool changed = false;
  for (unsigned i = 0; i < CHANGES_MAX; i++) { /* more are read at the next call */
    ssize_t n = recv(watch_fd, text, sizeof text, MSG_DONTWAIT);
    if (n < 0 && errno != ENOBUFS) break;
    if (n < 0) changed = true; /* ENOBUFS: notifications were lost */
    const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)text;
    for (; n > 0 && NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) changed |= concerns(h, ifindex);
  }
  return changed;
}
