/* SPDX-License-Identifier: Apache-2.0 */
/* See port.h. */
#include "io/xdp/port.h"

#include <netinet/in.h>
#include <unistd.h>

int harp_port_hold(const struct sockaddr_storage *local, uint16_t port) {
  struct sockaddr_storage at = *local;
  bool is_v6 = at.ss_family == AF_INET6;
  ((struct sockaddr_in *)&at)->sin_port = htons(port); /* it stands at the same place for both families */
  int fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t bytes = is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
  if (fd < 0 || !bind(fd, (const struct sockaddr *)&at, bytes)) return fd;
  close(fd);
  return -1;
}
