/* SPDX-License-Identifier: Apache-2.0 */
/* getrandom, and /dev/urandom on kernels before 3.17 (CentOS 7). See random.h. */
#include "host/random.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static int fill_from_device(uint8_t *at, size_t left) {
  int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -errno;
  int rc = 0;
  while (left > 0 && rc == 0) {
    ssize_t got = read(fd, at, left);
    if (got > 0) {
      at += got;
      left -= (size_t)got;
    } else if (got == 0 || errno != EINTR) {
      rc = got == 0 ? -EIO : -errno;
    }
  }
  close(fd);
  return rc;
}

int harp_random_fill(void *buffer, size_t bytes) {
  uint8_t *at = buffer;
  size_t left = bytes;
  int rc = 0;
  while (left > 0) {
    ssize_t got = getrandom(at, left, 0);
    if (got >= 0) {
      at += got;
      left -= (size_t)got;
    } else if (errno != EINTR) {
      rc = errno == ENOSYS ? fill_from_device(at, left) : -errno;
      break;
    }
  }
  if (rc < 0) memset(buffer, 0, bytes);
  return rc;
}
