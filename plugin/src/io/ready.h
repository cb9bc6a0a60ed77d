/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several sockets are readable: one epoll_wait for all, instead of a receive call for each.
 *
 * refresh marks the readable sockets; the driver unmarks one that it found empty or in error. While sockets
 * are marked, refresh calls epoll_wait only every HARP_READY_EVERY times. While only one socket receives,
 * refresh marks it in between without epoll_wait, because a receive call that finds nothing is cheaper. Owned
 * by a udp driver or a bundle, and used by its thread. */
#ifndef HARP_READY_H
#define HARP_READY_H

#include "base/base.h"

enum {
  HARP_READY_MAX = 256, /* sockets */
  HARP_READY_EVERY = 8, /* receive calls after which epoll_wait is called in any case */
};

struct harp_io_ready {
  int fd;                              /* epoll set; readable when a socket is */
  unsigned calls;                      /* of refresh since the last epoll_wait */
  int last;                            /* number of the socket that received last; -1: none */
  bool is_steady;                      /* the same socket received the time before, too */
  uint64_t marks[HARP_READY_MAX / 64]; /* readable sockets, by number */
  uint64_t taken[HARP_READY_MAX / 64]; /* numbers in use */
};

/* Opens an empty set; returns 0 or -errno. */
int harp_io_ready_open(struct harp_io_ready *r) HARP_MUST_CHECK;
/* Closes the set, not its sockets. */
void harp_io_ready_close(struct harp_io_ready *r);

/* Adds a socket. Returns its number in the set, or -errno: -ENOSPC when the set is full. */
int harp_io_ready_add(struct harp_io_ready *r, int fd) HARP_MUST_CHECK;
/* Removes a socket that is still open, and frees its number. */
void harp_io_ready_remove(struct harp_io_ready *r, int fd, unsigned number);

/* Marks the readable sockets as described above; does not block. Called once per receive call. */
void harp_io_ready_refresh(struct harp_io_ready *r);

/* Returns whether a socket is marked. */
static inline bool harp_io_ready_marked(const struct harp_io_ready *r, unsigned number) {
  return r->marks[number / 64] >> number % 64 & 1;
}
/* Notes that a socket has received something. */
static inline void harp_io_ready_received(struct harp_io_ready *r, unsigned number) {
  r->is_steady = r->last == (int)number;
  r->last = (int)number;
}
/* Unmarks a socket: it is empty, or has failed. */
static inline void harp_io_ready_unmark(struct harp_io_ready *r, unsigned number) {
  r->marks[number / 64] &= ~(1ull << number % 64);
}

#endif
