/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

ssize_t harp_text_file_read(const char *path, char *text, size_t text_bytes) {
  text[0] = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -errno;
  ssize_t got = read(fd, text, text_bytes - 1);
  int error = errno;
  close(fd);
  if (got < 0) return -error;
  text[got] = 0;
  return got;
}
