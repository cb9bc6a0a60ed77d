/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of a world's kernels: names, options, and the kernel's answers about routes. */
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include "whole/kernel.h"

long kernel_socket(int family, int type, int protocol) {
  (void)protocol;
  bool is_ip = family == AF_INET || (family == AF_INET6 && world.plan.is_v6);
  if (!is_ip && family != AF_NETLINK && family != AF_UNIX) return -EAFNOSUPPORT;
  bool is_stream = (type & 0xf) == SOCK_STREAM;
  return add(file_new(family == AF_NETLINK ? NETLINK : family == AF_UNIX ? NAME : is_stream ? TCP : UDP));
}

static bool is_taken(const struct file *f, struct name n) {
  const struct process *p = &world.processes[f->process];
  for (int fd = 0; fd < FILES_MAX; fd++) {
    const struct file *g = p->files[fd];
    bool is_udp = g && g->kind == UDP;
    if (!g || g == f || !g->is_bound || g->name.port != n.port || is_udp != (f->kind == UDP)) continue;
    if (g->name.ip && n.ip && g->name.ip != n.ip) continue;
    if (!(g->reuses && f->reuses) && !(g->kind == TCP && g->c)) return true;
  }
  return false;
}

void bind_any(struct file *f) {
  struct name n = {f->name.ip, 0};
  do n.port = (uint16_t)rng_between(&world.rng, 32768, 60999);
  while (is_taken(f, n));
  f->name.port = n.port;
}

long kernel_bind(int fd, const struct sockaddr *a) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == NAME) return 0;
  struct name n = name_of(a);
  if (n.ip && (!is_host(n.ip) || host_of(n.ip) != f->process)) return -EADDRNOTAVAIL;
  if (n.port && is_taken(f, n)) return -EADDRINUSE;
  f->name = n;
  f->is_bound = true;
  if (!n.port) bind_any(f);
  return 0;
}

long kernel_listen(int fd) {
  struct file *f = socket_of(fd, TCP);
  if (!f) return -EBADF;
  f->kind = LISTENER;
  return 0;
}

long kernel_connect(int fd, const struct sockaddr *a) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == TCP) return connect_tcp(f, name_of(a));
  if (f->kind != UDP) return -EINVAL;
  f->peer = name_of(a);
  return 0;
}

long kernel_name(int fd, struct sockaddr *a, socklen_t *bytes) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  put_name(f->name, a, bytes);
  return 0;
}

long kernel_shutdown(int fd, int how) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == TCP && how != SHUT_RD) shut_tcp(f);
  return 0;
}

void kernel_reset(int fd, int error) {
  struct file *f = socket_of(fd, TCP);
  if (!f || !f->c || f->c->is_over[f->end]) return;
  reset_tcp(f->c, (unsigned)f->end);
  f->c->error[f->end] = error;
  touch(f);
}

long kernel_set(int fd, int level, int option, const void *value, socklen_t bytes) {
  struct file *f = file_of(fd);
  int number = 0;
  if (!f) return -EBADF;
  memcpy(&number, value, HARP_MIN(bytes, (socklen_t)sizeof number));
  if (level == SOL_SOCKET && (option == SO_RCVBUFFORCE || option == SO_SNDBUFFORCE)) return -EPERM;
  if (level == SOL_SOCKET && option == SO_RCVBUF)
    f->room_bytes = HARP_MIN((uint32_t)number, world.plan.buffer_bytes);
  if (level == SOL_SOCKET && option == SO_LINGER) f->resets = true;
  if (level == SOL_SOCKET && option == SO_REUSEADDR) f->reuses = number != 0;
  if (level == UDP_LEVEL && option == OPTION_GRO) f->merges = number != 0;
  if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT) {
    f->timeout_ns = HARP_MS((harp_ns)number);
    if (f->c) f->c->timeout_ns[f->end] = f->timeout_ns;
  }
  return 0;
}

/* Keepalives are answered by the host, while something passes. */
static uint32_t silent_ms(const struct connection *c, int end) {
  const struct simnet_link *l = link_of(c->names[1 - end].ip);
  harp_ns heard = c->heard_ns[end];
  bool is_broken = false;
  for (unsigned i = 0; i < l->blackhole_count; i++)
    is_broken |= l->blackholes[i].from_ns <= world.now && world.now < l->blackholes[i].to_ns;
  return (uint32_t)((world.now - heard) / HARP_MS(1) % (is_broken ? UINT32_MAX : 500));
}

long kernel_get(int fd, int level, int option, void *value, socklen_t *bytes) {
  struct file *f = file_of(fd);
  int number = 0;
  if (!f) return -EBADF;
  if (level == IPPROTO_TCP && option == TCP_INFO) {
    struct tcp_info info = {.tcpi_state = TCP_CLOSE, .tcpi_rtt = 100, .tcpi_snd_mss = 1448};
    if (f->c && f->c->is_up[f->end] && !f->c->is_over[f->end]) {
      info.tcpi_state = f->c->ways[1 - f->end].is_ended ? TCP_CLOSE_WAIT : TCP_ESTABLISHED;
      info.tcpi_last_ack_recv = info.tcpi_last_data_recv = silent_ms(f->c, f->end);
    }
    *bytes = HARP_MIN(*bytes, (socklen_t)sizeof info);
    memcpy(value, &info, *bytes);
    return 0;
  }
  if (level == SOL_SOCKET && option == SO_RCVBUF) number = (int)HARP_MAX(2 * f->room_bytes, 2304u);
  if (level == SOL_SOCKET && option == SO_TYPE) number = f->kind == UDP ? SOCK_DGRAM : SOCK_STREAM;
  if (level == SOL_SOCKET && option == OPTION_BIND_INDEX) number = 2;
  if (level == SOL_SOCKET && option == SO_ERROR && f->c) {
    number = f->c->error[f->end];
    f->c->error[f->end] = 0;
  }
  *bytes = HARP_MIN(*bytes, (socklen_t)sizeof number);
  memcpy(value, &number, *bytes);
  return 0;
}

long kernel_ioctl(int fd, unsigned long request, void *word) {
  struct file *f = file_of(fd);
  struct ifreq *interface = word;
  if (!f) return -EBADF;
  if (request == SIOCGIFMTU) return interface->ifr_mtu = (int)world.plan.mtu, 0;
  if (f->kind != TCP || !f->c) return -EOPNOTSUPP;
  const struct way *w = &f->c->ways[f->end];
  if (request == SIOCOUTQ) return *(int *)word = (int)(w->written - w->acked), 0;
  if (request == SIOCOUTQNSD) return *(int *)word = 0, 0;
  return -EOPNOTSUPP;
}

/* The kernel's answer about routes and interfaces: all hosts are on the link of the interface asked about. */
static long ask_kernel(struct file *f, const struct nlmsghdr *request) {
  struct {
    struct nlmsghdr head;
    union {
      struct rtmsg route;
      struct ifinfomsg link;
    };
    struct rtattr attribute;
    uint32_t index;
  } *answer = new (sizeof *answer);
  bool is_route = request->nlmsg_type == RTM_GETROUTE;
  uint32_t from = address_of(f->process, 0);
  const uint8_t *body = NLMSG_DATA((struct nlmsghdr *)(uintptr_t)request);
  const struct rtattr *a = (const void *)(body + NLMSG_ALIGN(sizeof(struct rtmsg)));
  int left = (int)request->nlmsg_len - (int)NLMSG_SPACE(sizeof(struct rtmsg));
  for (; is_route && RTA_OK(a, left); a = RTA_NEXT(a, left))
    if (a->rta_type == RTA_SRC) /* the last bytes, also of IPv6 */
      memcpy(&from, (const uint8_t *)RTA_DATA(a) + RTA_PAYLOAD(a) - sizeof from, sizeof from);
  answer->head.nlmsg_type = is_route ? RTM_NEWROUTE : RTM_NEWLINK;
  answer->head.nlmsg_len = NLMSG_LENGTH(is_route ? sizeof(struct rtmsg) : sizeof(struct ifinfomsg));
  if (is_route) {
    answer->route.rtm_type = RTN_UNICAST;
    uint8_t *end = (uint8_t *)answer + NLMSG_ALIGN(answer->head.nlmsg_len);
    struct rtattr out = {.rta_type = RTA_OIF, .rta_len = RTA_LENGTH(4)};
    uint32_t index = 2 + eni_of(from);
    memcpy(end, &out, sizeof out);
    memcpy(end + RTA_LENGTH(0), &index, sizeof index);
    answer->head.nlmsg_len = NLMSG_ALIGN(answer->head.nlmsg_len) + RTA_SPACE(4);
  } else {
    answer->link.ifi_index = 2;
  }
  struct piece *p = new (sizeof *p);
  *p = (struct piece){.data = (uint8_t *)answer, .bytes = answer->head.nlmsg_len};
  put(&f->in, p);
  return (long)request->nlmsg_len;
}

long kernel_send(int fd, const struct msghdr *m) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == UDP) return send_udp(f, m);
  if (f->kind == TCP) return write_tcp(f, m->msg_iov, m->msg_iovlen);
  return f->kind == NETLINK ? ask_kernel(f, m->msg_iov->iov_base) : -ENOTSOCK;
}

long kernel_receive(int fd, struct msghdr *m) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == UDP) return receive_udp(f, m);
  if (f->kind == TCP) return read_tcp(f, m->msg_iov, m->msg_iovlen);
  return f->kind == NETLINK && f->in.first ? read_queue(&f->in, m->msg_iov, 1) : -EAGAIN;
}
