#include "io/ready.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS_MAX = 32 }; /* the kernel gives the others first next time */

int harp_io_ready_open(struct harp_io_ready *r) {
  *r = (struct harp_io_ready){.fd = epoll_create1(EPOLL_CLOEXEC)};
  return r->fd < 0 ? -errno : 0;
}

void harp_io_ready_close(struct harp_io_ready *r) {
  if (r->fd >= 0) close(r->fd);
  r->fd = -1;
}

int harp_io_ready_add(struct harp_io_ready *r, int fd) {
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = r->count};
  if (r->count == HARP_READY_MAX) return -ENOSPC;
  if (epoll_ctl(r->fd, EPOLL_CTL_ADD, fd, &event)) return -errno;
  return (int)r->count++;
}

void harp_io_ready_refresh(struct harp_io_ready *r) {
  struct epoll_event events[EVENTS_MAX];
  int n = epoll_wait(r->fd, events, EVENTS_MAX, 0);
  for (int i = 0; i < n; i++) r->marks[events[i].data.u32 / 64] |= 1ull << events[i].data.u32 % 64;
}
