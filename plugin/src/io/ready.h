/* Which of many sockets have something to receive: one system call to ask for all of them, instead of one
 * each that finds nothing. A socket is marked when the kernel says so, and unmarked by the driver that found
 * it empty. Owned by whoever asks on behalf of several sockets: a udp driver with several ports, or a bundle
 * of drivers. */
#ifndef HARP_READY_H
#define HARP_READY_H

#include "base/base.h"

enum { HARP_READY_MAX = 256 }; /* sockets */

struct harp_io_ready {
  int fd; /* epoll set; readable when a socket is */
  unsigned count;
  uint64_t marks[HARP_READY_MAX / 64];
};

/* Opens an empty set; returns 0 or -errno. */
int harp_io_ready_open(struct harp_io_ready *r) HARP_MUST_CHECK;
void harp_io_ready_close(struct harp_io_ready *r);

/* Adds a socket; returns the number under which it is marked, or -errno. It must be closed before the set
 * is. */
int harp_io_ready_add(struct harp_io_ready *r, int fd) HARP_MUST_CHECK;

/* Marks the sockets that have something; never blocks. */
void harp_io_ready_refresh(struct harp_io_ready *r);

static inline bool harp_io_ready_marked(const struct harp_io_ready *r, unsigned number) {
  return r->marks[number / 64] >> number % 64 & 1;
}
static inline void harp_io_ready_unmark(struct harp_io_ready *r, unsigned number) {
  r->marks[number / 64] &= ~(1ull << number % 64);
}

#endif
