/* SPDX-License-Identifier: Apache-2.0 */
/* See udp_socket.h. */
#include "io/udp_socket.h"

#include <errno.h>
#include <unistd.h>

#include "base/address.h"
#include "io/ecn.h"
#include "io/socket.h"

enum { BUFFER_BYTES = 8 << 20 }; /* requested; the kernel may grant less */

int harp_udp_socket_open(int family) {
  int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP);
  return fd < 0 ? -errno : fd;
}

int harp_udp_socket_bind(int fd, const struct sockaddr_storage *addr, uint16_t low, uint16_t high,
                         uint32_t *port) {
  struct sockaddr_storage a = *addr;
  socklen_t n = harp_address_bytes(addr);
  (void)harp_socket_set_free_bind(fd);
  if (!low) {
    harp_address_set_port(&a, 0);
    return bind(fd, (struct sockaddr *)&a, n) ? -errno : 0;
  }
  for (; *port <= high; ++*port) {
    harp_address_set_port(&a, (uint16_t)*port);
    if (!bind(fd, (struct sockaddr *)&a, n)) return ++*port, 0;
    if (errno != EADDRINUSE) return -errno;
  }
  return -EADDRINUSE;
}

uint16_t harp_udp_socket_port(int fd) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
  return harp_address_port(&a);
}

static uint32_t set_buffers(int fd) {
  int got = 0;
  socklen_t n = sizeof got;
  if (harp_socket_set(fd, SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES))
    harp_socket_set(fd, SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES);
  if (harp_socket_set(fd, SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES))
    harp_socket_set(fd, SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES);
  /* The kernel reports twice the granted size; the other half is for its own bookkeeping. */
  return getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &got, &n) ? 65536 : (uint32_t)got / 2;
}

/* Failure leaves the path without ECN, which the protocol does not depend on. */
static void set_ecn(int fd, const struct harp_udp_options *options) {
  if (options->ecn) harp_socket_set_traffic_class(fd, options->family, harp_ecn_traffic_class(-1, true));
  if (options->family == AF_INET6)
    harp_socket_set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  else
    harp_socket_set(fd, IPPROTO_IP, IP_RECVTOS, 1);
}

int harp_udp_socket_prepare(int fd, const struct harp_udp_options *options, uint32_t *buffer_bytes) {
  if (options->ifindex) harp_udp_socket_set_interface(fd, options);
  *buffer_bytes = set_buffers(fd);
  if (options->family == AF_INET6) {
    harp_socket_set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    harp_socket_set(fd, IPPROTO_IPV6, 62 /* IPV6_DONTFRAG */, 1);
  } else {
    harp_socket_set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  }
  set_ecn(fd, options);
  return options->gro ? harp_socket_set(fd, SOL_UDP, UDP_GRO, 1) : 0;
}

void harp_udp_socket_set_interface(int fd, const struct harp_udp_options *options) {
  (void)harp_socket_set_interface(fd, options->family, options->ifindex);
}

void harp_udp_socket_stop_merging(int fd) {
  harp_socket_set(fd, SOL_UDP, UDP_GRO, 0);
}

void harp_udp_socket_stop_receiving(int fd) {
  harp_socket_set(fd, SOL_SOCKET, SO_RCVBUF, 0);
}

/* Binds to the port of another socket. SO_REUSEADDR is set on that one only meanwhile, so that no other
 * process can bind the port. */
static int share_port(int fd, int bound) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  if (getsockname(bound, (struct sockaddr *)&a, &n)) return -errno;
  int e = harp_socket_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (!e) e = harp_socket_set(bound, SOL_SOCKET, SO_REUSEADDR, 1);
  if (!e && bind(fd, (struct sockaddr *)&a, n)) e = -errno;
  harp_socket_set(bound, SOL_SOCKET, SO_REUSEADDR, 0);
  return e;
}

int harp_udp_socket_connect(int bound, const struct sockaddr_storage *peer, int traffic_class,
                            const struct harp_udp_options *options) {
  uint32_t buffer_bytes;
  int fd = harp_udp_socket_open(options->family);
  if (fd < 0) return fd;
  int e = harp_udp_socket_prepare(fd, options, &buffer_bytes);
  if (!e && traffic_class >= 0)
    e = harp_socket_set_traffic_class(fd, options->family,
                                      harp_ecn_traffic_class(traffic_class, options->ecn));
  if (!e) e = share_port(fd, bound);
  if (!e && connect(fd, (const struct sockaddr *)peer, harp_address_bytes(peer))) e = -errno;
  if (!e) return fd;
  close(fd);
  return e;
}
