/* SPDX-License-Identifier: Apache-2.0 */
/* What a world's processes wait for: events of files, epoll. */
#include <poll.h>

#include "whole/kernel.h"

static uint32_t events_of(const struct file *f);

static bool is_due(const struct watch *w) {
  if (!w->file || !(events_of(w->file) & (w->event.events | EPOLLERR | EPOLLHUP))) return false;
  return !(w->event.events & EPOLLET) || w->reported != w->file->changes;
}

static uint32_t events_of_tcp(const struct file *f) {
  const struct connection *c = f->c;
  if (!c) return EPOLLOUT | EPOLLHUP;
  const struct way *in = &c->ways[1 - f->end], *out = &c->ways[f->end];
  if (c->is_over[f->end]) return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP;
  if (!c->is_up[f->end]) return 0;
  return (in->arrived.bytes || in->is_ended ? EPOLLIN : 0u) | (in->is_ended ? EPOLLRDHUP : 0u) |
         (room_of(c, (unsigned)f->end) ? EPOLLOUT : 0u) | (in->is_ended && out->is_ending ? EPOLLHUP : 0u);
}

static uint32_t events_of(const struct file *f) {
  switch (f->kind) {
  case UDP:
    return (f->in.first || f->error ? EPOLLIN : 0u) | (f->error ? EPOLLERR : 0u) |
           (world.now >= f->full_until ? EPOLLOUT : 0u);
  case TCP:
    return events_of_tcp(f);
  case LISTENER:
    return f->waiting_count ? EPOLLIN : 0;
  case EVENT:
    return (f->count ? EPOLLIN : 0u) | EPOLLOUT;
  case EPOLL:
    for (unsigned i = 0; i < WATCHES_MAX; i++)
      if (is_due(&f->watches[i])) return EPOLLIN;
    return 0;
  default:
    return EPOLLIN | EPOLLOUT;
  }
}

short kernel_poll(const struct process *p, int fd, short events) {
  const struct file *f = fd < FILES_MAX ? p->files[fd] : NULL;
  return f ? (short)(events_of(f) & ((uint32_t)events | EPOLLERR | EPOLLHUP)) : POLLNVAL;
}

static struct watch *find_watch(struct file *set, const struct file *f) {
  for (unsigned i = 0; i < WATCHES_MAX; i++)
    if (set->watches[i].file == f) return &set->watches[i];
  return NULL;
}

long kernel_epoll_ctl(int fd, int operation, int of, const struct epoll_event *e) {
  struct file *set = socket_of(fd, EPOLL), *f = file_of(of);
  if (!set || !f) return -EBADF;
  struct watch *w = find_watch(set, f);
  if (operation == EPOLL_CTL_ADD && w) return -EEXIST;
  if (operation != EPOLL_CTL_ADD && !w) return -ENOENT;
  if (!w) w = find_watch(set, NULL);
  if (!w) return -ENOSPC;
  w->file = operation == EPOLL_CTL_DEL ? NULL : f;
  if (operation == EPOLL_CTL_DEL) return 0;
  w->event = *e;
  w->reported = UINT64_MAX;
  touch(set);
  return 0;
}

long kernel_epoll_wait(int fd, struct epoll_event *out, int most) {
  struct file *set = socket_of(fd, EPOLL);
  int n = 0;
  if (!set) return -EBADF;
  unsigned first = set->turn; /* others come first the next time */
  for (unsigned i = 0; i < WATCHES_MAX && n < most; i++) {
    struct watch *w = &set->watches[(first + i) % WATCHES_MAX];
    if (!is_due(w)) continue;
    w->reported = w->file->changes;
    out[n++] = (struct epoll_event){.events = events_of(w->file) & (w->event.events | EPOLLERR | EPOLLHUP),
                                    .data = w->event.data};
    set->turn = (first + i + 1) % WATCHES_MAX;
  }
  return n;
}
