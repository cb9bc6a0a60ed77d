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

/* Reads the gateway of a route into *hop; without one *hop is unchanged. */
static int read_gateway(const struct rtattr *gateway, const struct rtattr *via, struct harp_neighbour *hop) {
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

int harp_neighbour_find(unsigned ifindex, const struct sockaddr_storage *local,
                        const struct sockaddr_storage *peer, struct harp_neighbour *hop) {
  _Alignas(struct nlmsghdr) uint8_t reply[HARP_NETLINK_REPLY_BYTES];
  uint32_t by;
  int err = harp_netlink_find_route(local, peer, ifindex, 0, reply);
  if (err) return err;
  const struct rtmsg *route = NLMSG_DATA(reply);
  const struct rtattr *out = harp_netlink_find(reply, sizeof *route, RTA_OIF);
  if (!out) return -EPROTO;
  memcpy(&by, RTA_DATA(out), sizeof by);
  if (route->rtm_type != RTN_UNICAST || by != ifindex) return -EXDEV;
  *hop = (struct harp_neighbour){.family = (uint8_t)peer->ss_family};
  memcpy(hop->ip, harp_address_ip(peer), harp_ip_bytes(peer->ss_family));
  return read_gateway(harp_netlink_find(reply, sizeof *route, RTA_GATEWAY),
                      harp_netlink_find(reply, sizeof *route, RTA_VIA), hop);
}

/* Reads the MAC address out of a message about a neighbour. Returns whether it has one that can be used. */
static bool read_mac(const void *message, uint8_t mac[6]) {
  const struct ndmsg *neighbour = NLMSG_DATA((const struct nlmsghdr *)message);
  const struct rtattr *address = harp_netlink_find(message, sizeof *neighbour, NDA_LLADDR);
  if (!(neighbour->ndm_state & USABLE) || !address || RTA_PAYLOAD(address) != 6) return false;
  memcpy(mac, RTA_DATA(address), 6);
  return true;
}

int harp_neighbour_find_mac(unsigned ifindex, const struct harp_neighbour *hop, uint8_t mac[6]) {
  _Alignas(struct nlmsghdr) uint8_t reply[HARP_NETLINK_REPLY_BYTES];
  struct harp_netlink_request r;
  harp_netlink_begin(&r, RTM_GETNEIGH, sizeof r.body.neighbour);
  r.body.neighbour.ndm_family = hop->family;
  r.body.neighbour.ndm_ifindex = (int)ifindex;
  harp_netlink_add(&r, NDA_DST, hop->ip, harp_ip_bytes(hop->family));
  int err = harp_netlink_exchange(&r, NETLINK_ROUTE, RTM_NEWNEIGH, reply);
  if (err) return err == -ENOENT ? -EAGAIN : err;
  return read_mac(reply, mac) ? 0 : -EAGAIN;
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

/* Reads an address of a family into *hop; false: it has another size. */
static bool read_ip(const struct rtattr *address, int family, struct harp_neighbour *hop) {
  if ((family != AF_INET && family != AF_INET6) || !address || RTA_PAYLOAD(address) != harp_ip_bytes(family))
    return false;
  hop->family = (uint8_t)family;
  memcpy(hop->ip, RTA_DATA(address), harp_ip_bytes(family));
  return true;
}

static enum harp_neighbour_event read_neighbour(const struct nlmsghdr *h, unsigned ifindex,
                                                struct harp_neighbour_news *news) {
  const struct ndmsg *neighbour = NLMSG_DATA(h);
  if (neighbour->ndm_ifindex != (int)ifindex ||
      !read_ip(harp_netlink_find(h, sizeof *neighbour, NDA_DST), neighbour->ndm_family, &news->hop))
    return HARP_NEIGHBOUR_NONE;
  news->has_mac = h->nlmsg_type == RTM_NEWNEIGH && read_mac(h, news->mac);
  return news->has_mac ? HARP_NEIGHBOUR_RESOLVED : HARP_NEIGHBOUR_FAILED;
}

/* A route by any interface counts: it may stand in for one by ours, or take its place. */
static enum harp_neighbour_event read_route(const struct nlmsghdr *h, struct harp_neighbour_news *news) {
  const struct rtmsg *route = NLMSG_DATA(h);
  news->hop.family = route->rtm_family;
  news->bits = route->rtm_dst_len;
  if (news->bits && !read_ip(harp_netlink_find(h, sizeof *route, RTA_DST), route->rtm_family, &news->hop))
    news->bits = 0;
  return HARP_NEIGHBOUR_ROUTE;
}

/* A bridge's news of its ports have the same types. */
static enum harp_neighbour_event read_link(const struct nlmsghdr *h, unsigned ifindex,
                                           struct harp_neighbour_news *news) {
  const struct ifinfomsg *link = NLMSG_DATA(h);
  if (link->ifi_index != (int)ifindex || link->ifi_family != AF_UNSPEC) return HARP_NEIGHBOUR_NONE;
  if (h->nlmsg_type == RTM_DELLINK) return HARP_NEIGHBOUR_GONE;
  const struct rtattr *address = harp_netlink_find(h, sizeof *link, IFLA_ADDRESS);
  news->has_mac = address && RTA_PAYLOAD(address) == 6;
  if (news->has_mac) memcpy(news->mac, RTA_DATA(address), 6);
  return HARP_NEIGHBOUR_LINK;
}

static enum harp_neighbour_event read_news(const struct nlmsghdr *h, unsigned ifindex,
                                           struct harp_neighbour_news *news) {
  switch (h->nlmsg_type) {
  case RTM_NEWNEIGH:
  case RTM_DELNEIGH:
    return read_neighbour(h, ifindex, news);
  case RTM_NEWLINK:
  case RTM_DELLINK:
    return read_link(h, ifindex, news);
  case RTM_NEWROUTE:
  case RTM_DELROUTE:
    return read_route(h, news);
  default:
    return HARP_NEIGHBOUR_NONE;
  }
}

bool harp_neighbour_read(int watch_fd, unsigned ifindex,
                         void (*on_news)(void *owner, const struct harp_neighbour_news *news), void *owner) {
  _Alignas(struct nlmsghdr) uint8_t text[HARP_NETLINK_REPLY_BYTES];
  for (unsigned i = 0; i < CHANGES_MAX; i++) {
    ssize_t n = recv(watch_fd, text, sizeof text, MSG_DONTWAIT);
    if (n < 0 && errno != ENOBUFS) return false;
    if (n < 0) on_news(owner, &(struct harp_neighbour_news){.event = HARP_NEIGHBOUR_LOST});
    const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)text;
    for (; n > 0 && NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
      struct harp_neighbour_news news = {0};
      news.event = read_news(h, ifindex, &news);
      if (news.event != HARP_NEIGHBOUR_NONE) on_news(owner, &news);
    }
  }
  return true;
}
