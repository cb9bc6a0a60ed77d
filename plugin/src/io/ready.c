/* SPDX-License-Identifier: Apache-2.0 */
#include "io/ready.h"

#include <errno.h>
#include <unistd.h>

int harp_io_ready_open(struct harp_io_ready *r) {
  *r = (struct harp_io_ready){
      .fd = epoll_create1(EPOLL_CLOEXEC), .last = HARP_READY_NONE, .tried = HARP_READY_NONE};
  return r->fd < 0 ? -errno : 0;
}

void harp_io_ready_close(struct harp_io_ready *r) {
  if (r->fd >= 0) close(r->fd);
  r->fd = -1;
}

int harp_io_ready_watch(struct harp_io_ready *r, int fd, uint32_t events, uint64_t name) {
  struct epoll_event event = {.events = events, .data.u64 = name};
  return epoll_ctl(r->fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void harp_io_ready_unwatch(struct harp_io_ready *r, int fd) {
  epoll_ctl(r->fd, EPOLL_CTL_DEL, fd, NULL);
}

int harp_io_ready_add(struct harp_io_ready *r, int fd) {
  unsigned number = 0;
  while (number < HARP_READY_MAX && r->taken[number / 64] >> number % 64 & 1) number++;
  if (number == HARP_READY_MAX) return -ENOSPC;
  int err = harp_io_ready_watch(r, fd, EPOLLIN, harp_io_ready_name(HARP_READY_SOCKET, number));
  if (err) return err;
  r->taken[number / 64] |= 1ull << number % 64;
  return (int)number;
}

void harp_io_ready_remove(struct harp_io_ready *r, int fd, unsigned number) {
  harp_io_ready_unwatch(r, fd);
  harp_io_ready_unmark(r, number);
  harp_io_ready_forget(r, harp_io_ready_name(HARP_READY_SOCKET, number));
  r->taken[number / 64] &= ~(1ull << number % 64);
}

/* Marks a socket. Returns false for another source. */
static bool mark_socket(struct harp_io_ready *r, uint64_t name) {
  if (harp_io_ready_kind(name) != HARP_READY_SOCKET) return false;
  r->marks[harp_io_ready_rest(name) / 64] |= 1ull << harp_io_ready_rest(name) % 64;
  return true;
}

/* Returns whether the source that brought something last is worth a try. A connection for data is tried once:
 * what answers its records comes as a datagram. */
static bool is_promising(const struct harp_io_ready *r) {
  bool is_of_datagrams = harp_io_ready_kind(r->last) <= HARP_READY_RINGS;
  return r->is_steady && (is_of_datagrams || !r->misses);
}

unsigned harp_io_ready_refresh(struct harp_io_ready *r, bool has_work, harp_ns now,
                               struct epoll_event others[HARP_READY_EVENTS]) {
  unsigned count = 0;
  r->tried = HARP_READY_NONE;
  if (++r->calls < HARP_READY_EVERY && now < r->look_ns) {
    if (has_work || harp_io_ready_has_marks(r)) return 0;
    if (is_promising(r)) {
      r->misses++;
      if (!mark_socket(r, r->last)) r->tried = r->last;
      return 0;
    }
  }
  r->calls = 0;
  r->look_ns = now + HARP_READY_LOOK_NS;
  r->misses = 0;
  int n = epoll_wait(r->fd, others, HARP_READY_EVENTS, 0);
  for (int i = 0; i < n; i++)
    if (!mark_socket(r, others[i].data.u64)) others[count++] = others[i];
  return count;
}
