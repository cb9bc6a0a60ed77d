/* SPDX-License-Identifier: Apache-2.0 */
/* See netlink.h. */
#include "base/netlink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"

enum { ANSWER_MS = 200 }; /* the kernel answers within the call; this is for a kernel that does not */

void harp_netlink_begin(struct harp_netlink_request *r, uint16_t type, uint32_t body_bytes) {
  memset(r, 0, sizeof *r);
  r->head.nlmsg_type = type;
  r->head.nlmsg_flags = NLM_F_REQUEST;
  r->head.nlmsg_len = NLMSG_LENGTH(body_bytes);
}

void harp_netlink_add(struct harp_netlink_request *r, uint16_t type, const void *data, uint32_t bytes) {
  struct rtattr *a = (struct rtattr *)(void *)((uint8_t *)r + NLMSG_ALIGN(r->head.nlmsg_len));
  HARP_ASSERT(NLMSG_ALIGN(r->head.nlmsg_len) + RTA_SPACE(bytes) <= sizeof *r);
  a->rta_type = type;
  a->rta_len = (uint16_t)RTA_LENGTH(bytes);
  memcpy(RTA_DATA(a), data, bytes);
  r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static ssize_t exchange_messages(const struct harp_netlink_request *r, int protocol, void *reply) {
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
  struct timeval limit = {.tv_usec = ANSWER_MS * 1000};
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  if (fd < 0) return -errno;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ssize_t n = sendto(fd, r, r->head.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof kernel);
  if (n >= 0) n = recv(fd, reply, HARP_NETLINK_REPLY_BYTES, 0);
  if (n < 0) n = -errno;
  close(fd);
  return n;
}

int harp_netlink_exchange(const struct harp_netlink_request *r, int protocol, uint16_t answer_type,
                          void *reply) {
  ssize_t n = exchange_messages(r, protocol, reply);
  if (n < 0) return (int)n;
  const struct nlmsghdr *h = reply;
  if (!NLMSG_OK(h, (size_t)n)) return -EPROTO;
  if (h->nlmsg_type == NLMSG_ERROR) {
    int code = ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
    return code ? code : -EPROTO;
  }
  return h->nlmsg_type == answer_type ? 0 : -EPROTO;
}

int harp_netlink_find_route(const struct sockaddr_storage *from, const struct sockaddr_storage *to,
                            uint32_t ifindex, unsigned flags, void *reply) {
  struct harp_netlink_request r;
  uint32_t bytes = harp_ip_bytes(to->ss_family);
  harp_netlink_begin(&r, RTM_GETROUTE, sizeof r.body.route);
  r.body.route.rtm_flags = flags;
  r.body.route.rtm_family = (uint8_t)to->ss_family;
  r.body.route.rtm_dst_len = r.body.route.rtm_src_len = (uint8_t)(bytes * 8);
  harp_netlink_add(&r, RTA_DST, harp_address_ip(to), bytes);
  harp_netlink_add(&r, RTA_SRC, harp_address_ip(from), bytes);
  if (ifindex) harp_netlink_add(&r, RTA_OIF, &ifindex, sizeof ifindex);
  return harp_netlink_exchange(&r, NETLINK_ROUTE, RTM_NEWROUTE, reply);
}

static const struct rtattr *find_attribute(const struct rtattr *a, uint32_t left, uint16_t type) {
  for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
    if ((a->rta_type & NLA_TYPE_MASK) == type) return a;
  return NULL;
}

const struct rtattr *harp_netlink_find(const void *reply, uint32_t body_bytes, uint16_t type) {
  const struct nlmsghdr *h = reply;
  uint32_t from = (uint32_t)NLMSG_SPACE(body_bytes);
  if (h->nlmsg_len < from) return NULL;
  return find_attribute((const struct rtattr *)(const void *)((const uint8_t *)reply + from),
                        h->nlmsg_len - from, type);
}

const struct rtattr *harp_netlink_nested(const struct rtattr *outer, uint16_t type) {
  return find_attribute(RTA_DATA(outer), (uint32_t)RTA_PAYLOAD(outer), type);
}
