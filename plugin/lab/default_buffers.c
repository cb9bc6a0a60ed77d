/* SPDX-License-Identifier: Apache-2.0 */
/* A preloaded library that bounds what a process gets for SO_RCVBUF and SO_SNDBUF, as net.core.rmem_max and
 * wmem_max do where nobody has raised them. Like these it bounds a negative size too, and leaves all other
 * options alone. */
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LIMIT_BYTES = 212992 }; /* the limit of Linux, on 64-bit machines */

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int option, const void *value,
                                                      socklen_t bytes) {
  unsigned wanted;
  if (level == SOL_SOCKET && (option == SO_RCVBUF || option == SO_SNDBUF) && bytes >= sizeof wanted) {
    memcpy(&wanted, value, sizeof wanted);
    if (wanted > LIMIT_BYTES) wanted = LIMIT_BYTES;
    return (int)syscall(SYS_setsockopt, fd, level, option, &wanted, sizeof wanted);
  }
  return (int)syscall(SYS_setsockopt, fd, level, option, value, bytes);
}
