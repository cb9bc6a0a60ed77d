/* SPDX-License-Identifier: Apache-2.0 */
#include "host/claim.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int harp_claim_core(int core, unsigned level) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "harp-core-%d.%u", core, level);
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)length;
  if (!bind(fd, (const struct sockaddr *)(const void *)&name, bytes)) return fd;
  int err = -errno;
  close(fd);
  return err;
}
