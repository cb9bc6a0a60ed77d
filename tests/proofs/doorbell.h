/* SPDX-License-Identifier: Apache-2.0 */
/* What the proof of the doorbell and the files that it includes say to each other. */
#ifndef HARP_PROVE_DOORBELL_H
#define HARP_PROVE_DOORBELL_H

#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include "engine/engine.h"

/* Take the submissions of a link; transmit. */
void doorbell_take(struct harp_link *link, harp_ns now);
unsigned doorbell_transmit(struct harp_engine *e, harp_ns now);

/* Wait for the eventfd, without an end; read it; write it. */
int doorbell_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
ssize_t doorbell_read(int fd, void *to, size_t bytes);
ssize_t doorbell_write(int fd, const void *from, size_t bytes);

/* Takes the submissions, under the lock; releases the lock and sleeps until something wakes the thread. */
void doorbell_pass(struct harp_engine *e);
void doorbell_sleep(struct harp_engine *e);

#endif
