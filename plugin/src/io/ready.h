/* SPDX-License-Identifier: Apache-2.0 */
/* Which of many sockets have something to receive: one system call to ask for all of them, instead of one
 * each that finds nothing. A socket is marked when the kernel says so, and unmarked by the driver that found
 * it empty, or that got an error. While marked sockets are being emptied the kernel is asked only now and
 * then, for the sake of the others. While one socket alone brings something, it is tried between the
 * questions: that costs less than to ask. Owned by whoever asks on behalf of several sockets: a udp driver,
 * or a bundle of drivers. */
#ifndef HARP_READY_H
#define HARP_READY_H

#include "base/base.h"

enum {
  HARP_READY_MAX = 256, /* sockets */
  HARP_READY_EVERY = 8, /* receive calls for which a socket may have to wait for another */
};

struct harp_io_ready {
  int fd;                              /* epoll set; readable when a socket is */
  unsigned calls;                      /* of refresh since the kernel was asked */
  int last;                            /* the socket that brought something last; -1: none did */
  bool is_steady;                      /* and it did so the time before, too */
  uint64_t marks[HARP_READY_MAX / 64]; /* by number */
  uint64_t taken[HARP_READY_MAX / 64]; /* numbers that are a socket's */
};

/* Opens an empty set; returns 0 or -errno. */
int harp_io_ready_open(struct harp_io_ready *r) HARP_MUST_CHECK;
void harp_io_ready_close(struct harp_io_ready *r);

/* Adds a socket; returns the number under which it is marked, or -errno. It must be closed before the set
 * is. */
int harp_io_ready_add(struct harp_io_ready *r, int fd) HARP_MUST_CHECK;
/* Takes a socket out that is still open; its number is another one's then. */
void harp_io_ready_remove(struct harp_io_ready *r, int fd, unsigned number);

/* Marks the sockets that have something, if none is marked or for the HARP_READY_EVERY-th time; does not
 * wait. To be called once for each receive call. */
void harp_io_ready_refresh(struct harp_io_ready *r);

static inline bool harp_io_ready_marked(const struct harp_io_ready *r, unsigned number) {
  return r->marks[number / 64] >> number % 64 & 1;
}
/* Tells that a socket brought something. */
static inline void harp_io_ready_received(struct harp_io_ready *r, unsigned number) {
  r->is_steady = r->last == (int)number;
  r->last = (int)number;
}
static inline void harp_io_ready_unmark(struct harp_io_ready *r, unsigned number) {
  r->marks[number / 64] &= ~(1ull << number % 64);
}

#endif
