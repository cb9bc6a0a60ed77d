/* See neighbour.h. */
#include "io/neighbour.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

enum {
  REQUEST_BYTES = 256,
  REPLY_BYTES = 32768,
  ANSWER_MS = 200, /* the kernel answers within the call; this is for a kernel that does not */
  LINK_XDP = 43,   /* IFLA_XDP */
  XDP_PROGRAM_ID = 4,
  USABLE = NUD_PERMANENT | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE,
};

struct request {
  struct nlmsghdr head;
  union {
    struct rtmsg route;
    struct ndmsg neighbour;
    struct ifinfomsg link;
  } body;
  uint8_t rest[REQUEST_BYTES];
};

static void begin(struct request *r, uint16_t type, uint32_t body_bytes) {
  memset(r, 0, sizeof *r);
  r->head.nlmsg_type = type;
  r->head.nlmsg_flags = NLM_F_REQUEST;
  r->head.nlmsg_len = NLMSG_LENGTH(body_bytes);
}

static void add(struct request *r, uint16_t type, const void *data, uint32_t bytes) {
  struct rtattr *a = (struct rtattr *)((uint8_t *)r + NLMSG_ALIGN(r->head.nlmsg_len));
  a->rta_type = type;
  a->rta_len = (uint16_t)RTA_LENGTH(bytes);
  memcpy(RTA_DATA(a), data, bytes);
  r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

/* Sends one request and receives its one answer. Returns the answer's bytes, or -errno. */
static int ask(struct request *r, void *reply) {
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
  struct timeval limit = {.tv_usec = ANSWER_MS * 1000};
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return -errno;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ssize_t n = sendto(fd, r, r->head.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof kernel);
  if (n >= 0) n = recv(fd, reply, REPLY_BYTES, 0);
  int err = n < 0 ? -errno : 0;
  close(fd);
  if (err) return err;
  const struct nlmsghdr *h = reply;
  if (!NLMSG_OK(h, (uint32_t)n)) return -EPROTO;
  if (h->nlmsg_type == NLMSG_ERROR) {
    int code = ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
    return code ? code : -EPROTO;
  }
  return (int)n;
}

static const struct rtattr *find(const struct nlmsghdr *h, uint32_t body_bytes, uint16_t type) {
  const struct rtattr *a = (const struct rtattr *)((const uint8_t *)h + NLMSG_SPACE(body_bytes));
  uint32_t left =
      h->nlmsg_len > NLMSG_SPACE(body_bytes) ? h->nlmsg_len - (uint32_t)NLMSG_SPACE(body_bytes) : 0;
  for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
    if ((a->rta_type & NLA_TYPE_MASK) == type) return a;
  return NULL;
}

static const void *ip_of(const struct sockaddr_storage *a, uint32_t *bytes) {
  *bytes = a->ss_family == AF_INET6 ? 16 : 4;
  return a->ss_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr
                                  : (const void *)&((const struct sockaddr_in *)a)->sin_addr;
}

/* Finds the address to which packets for the peer go next: its own, or a gateway's. */
static int next_hop(unsigned ifindex, const struct sockaddr_storage *local,
                    const struct sockaddr_storage *peer, uint8_t ip[16]) {
  _Alignas(struct nlmsghdr) uint8_t reply[REPLY_BYTES];
  struct request r;
  uint32_t bytes;
  const void *to = ip_of(peer, &bytes);
  begin(&r, RTM_GETROUTE, sizeof r.body.route);
  r.body.route.rtm_family = (uint8_t)peer->ss_family;
  r.body.route.rtm_dst_len = r.body.route.rtm_src_len = (uint8_t)(bytes * 8);
  add(&r, RTA_DST, to, bytes);
  add(&r, RTA_SRC, ip_of(local, &bytes), bytes);
  add(&r, RTA_OIF, &(uint32_t){ifindex}, sizeof(uint32_t));
  int n = ask(&r, reply);
  if (n < 0) return n;
  const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)reply;
  const struct rtmsg *route = NLMSG_DATA(h);
  const struct rtattr *out = find(h, sizeof *route, RTA_OIF), *gateway = find(h, sizeof *route, RTA_GATEWAY);
  if (h->nlmsg_type != RTM_NEWROUTE || !out) return -EPROTO;
  uint32_t by;
  memcpy(&by, RTA_DATA(out), sizeof by);
  if (route->rtm_type != RTN_UNICAST || by != ifindex) return -EXDEV;
  if (gateway && RTA_PAYLOAD(gateway) != bytes) return -EPROTO;
  memcpy(ip, gateway ? RTA_DATA(gateway) : to, bytes);
  return 0;
}

int harp_neighbour_find(unsigned ifindex, const struct sockaddr_storage *local,
                        const struct sockaddr_storage *peer, uint8_t mac[6]) {
  _Alignas(struct nlmsghdr) uint8_t reply[REPLY_BYTES];
  struct request r;
  uint8_t ip[16];
  int err = next_hop(ifindex, local, peer, ip);
  if (err) return err;
  begin(&r, RTM_GETNEIGH, sizeof r.body.neighbour);
  r.body.neighbour.ndm_family = (uint8_t)peer->ss_family;
  r.body.neighbour.ndm_ifindex = (int)ifindex;
  add(&r, NDA_DST, ip, peer->ss_family == AF_INET6 ? 16 : 4);
  int n = ask(&r, reply);
  if (n == -ENOENT) return -EAGAIN;
  if (n < 0) return n;
  const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)reply;
  const struct ndmsg *neighbour = NLMSG_DATA(h);
  const struct rtattr *address = find(h, sizeof *neighbour, NDA_LLADDR);
  if (h->nlmsg_type != RTM_NEWNEIGH) return -EPROTO;
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

bool harp_neighbour_changed(int watch_fd) {
  uint8_t text[REPLY_BYTES];
  bool changed = false;
  for (unsigned tries = 0; tries < 16; tries++) { /* a storm of changes is looked at again next time */
    ssize_t n = recv(watch_fd, text, sizeof text, MSG_DONTWAIT);
    if (n < 0 && errno != ENOBUFS) break; /* ENOBUFS: some were lost, so something changed */
    changed = true;
  }
  return changed;
}

int harp_neighbour_xdp_program(unsigned ifindex, uint32_t *id) {
  _Alignas(struct nlmsghdr) uint8_t reply[REPLY_BYTES];
  struct request r;
  *id = 0;
  begin(&r, RTM_GETLINK, sizeof r.body.link);
  r.body.link.ifi_family = AF_UNSPEC;
  r.body.link.ifi_index = (int)ifindex;
  int n = ask(&r, reply);
  if (n < 0) return n;
  const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)reply;
  const struct rtattr *xdp = find(h, sizeof(struct ifinfomsg), LINK_XDP);
  if (!xdp) return 0;
  const struct rtattr *a = RTA_DATA(xdp);
  uint32_t left = (uint32_t)RTA_PAYLOAD(xdp);
  for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
    if ((a->rta_type & NLA_TYPE_MASK) == XDP_PROGRAM_ID && RTA_PAYLOAD(a) == sizeof *id)
      memcpy(id, RTA_DATA(a), sizeof *id);
  return 0;
}

void harp_neighbour_nic_driver(unsigned ifindex, char name[HARP_NIC_DRIVER_BYTES]) {
  struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
  struct ifreq request = {.ifr_data = (char *)&info};
  name[0] = 0;
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  if (if_indextoname(ifindex, request.ifr_name) && !ioctl(fd, SIOCETHTOOL, &request)) {
    memcpy(name, info.driver, sizeof info.driver);
    name[HARP_NIC_DRIVER_BYTES - 1] = 0;
  }
  close(fd);
}
