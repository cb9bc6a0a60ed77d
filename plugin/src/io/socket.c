/* SPDX-License-Identifier: Apache-2.0 */
#include "io/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* From the kernel's interface; not in every C library's headers. */
enum { UNICAST_IF_V4 = 50 /* IP_UNICAST_IF */, UNICAST_IF_V6 = 76 /* IPV6_UNICAST_IF */ };

int harp_socket_set(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) ? -errno : 0;
}

int harp_socket_set_free_bind(int fd) {
  return harp_socket_set(fd, IPPROTO_IP, IP_FREEBIND, 1); /* IPv6 sockets have this option, too */
}

int harp_socket_set_interface(int fd, int family, unsigned ifindex) {
  int index = (int)htonl(ifindex);
  return family == AF_INET6 ? harp_socket_set(fd, IPPROTO_IPV6, UNICAST_IF_V6, index)
                            : harp_socket_set(fd, IPPROTO_IP, UNICAST_IF_V4, index);
}

int harp_socket_set_traffic_class(int fd, int family, int traffic_class) {
  return family == AF_INET6 ? harp_socket_set(fd, IPPROTO_IPV6, IPV6_TCLASS, traffic_class)
                            : harp_socket_set(fd, IPPROTO_IP, IP_TOS, traffic_class);
}
