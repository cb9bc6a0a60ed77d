/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's threads poll sockets and yield without end while they wait. Where there are more threads than cores
 * each wait so takes the time of the thread that it waits for. These calls stand in for libc's in NCCL's
 * library while a plan runs, of which nothing is timed, and with --nap: they do the same, and sleep once they
 * were called often in vain.
 *
 * Any thread. */
#ifndef HARP_BOX_NAP_H
#define HARP_BOX_NAP_H

#include <sys/socket.h>
#include <sys/types.h>

/* Sets the length of a sleep, 50 us by default; before there are threads. */
void box_nap_set(int us);

ssize_t box_nap_recv(int fd, void *data, size_t bytes, int flags);
int box_nap_accept(int fd, struct sockaddr *address, socklen_t *bytes);
int box_nap_yield(void);

#endif
