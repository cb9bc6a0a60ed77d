/* SPDX-License-Identifier: Apache-2.0 */
#include "io/ready.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS_MAX = 32 }; /* epoll_wait returns the others first at the next call */

int harp_io_ready_open(struct harp_io_ready *r) {
  *r = (struct harp_io_ready){.fd = epoll_create1(EPOLL_CLOEXEC), .last = -1};
  return r->fd < 0 ? -errno : 0;
}

void harp_io_ready_close(struct harp_io_ready *r) {
  if (r->fd >= 0) close(r->fd);
  r->fd = -1;
}

int harp_io_ready_add(struct harp_io_ready *r, int fd) {
  unsigned number = 0;
  while (number < HARP_READY_MAX && r->taken[number / 64] >> number % 64 & 1) number++;
  if (number == HARP_READY_MAX) return -ENOSPC;
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
  if (epoll_ctl(r->fd, EPOLL_CTL_ADD, fd, &event)) return -errno;
  r->taken[number / 64] |= 1ull << number % 64;
  return (int)number;
}

void harp_io_ready_remove(struct harp_io_ready *r, int fd, unsigned number) {
  epoll_ctl(r->fd, EPOLL_CTL_DEL, fd, NULL);
  harp_io_ready_unmark(r, number);
  if (r->last == (int)number) r->last = -1, r->is_steady = false;
  r->taken[number / 64] &= ~(1ull << number % 64);
}

static void mark(struct harp_io_ready *r, unsigned number) {
  r->marks[number / 64] |= 1ull << number % 64;
}

static bool has_marks(const struct harp_io_ready *r) {
  uint64_t any = 0;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(r->marks); i++) any |= r->marks[i];
  return any != 0;
}

void harp_io_ready_refresh(struct harp_io_ready *r) {
  struct epoll_event events[EVENTS_MAX];
  if (++r->calls < HARP_READY_EVERY) {
    if (has_marks(r)) return;
    if (r->is_steady) {
      mark(r, (unsigned)r->last);
      return;
    }
  }
  r->calls = 0;
  int n = epoll_wait(r->fd, events, EVENTS_MAX, 0);
  for (int i = 0; i < n; i++) mark(r, events[i].data.u32);
}
