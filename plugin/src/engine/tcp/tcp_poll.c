/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tcp/tcp_poll.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "engine/engine.h"

int harp_tcp_watch(struct harp_tcp *t, int fd, uint32_t events, uint64_t name) {
  struct epoll_event ev = {.events = events, .data.u64 = name};
  return epoll_ctl(t->fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

int harp_tcp_watch_path(struct harp_tcp_path *p) {
  uint64_t name = (uintptr_t)p;
  HARP_ASSERT(!(name & (HARP_TCP_IS_LISTENER | HARP_TCP_IS_ACCEPTED)));
  return harp_tcp_watch(p->peer->engine->tcp, p->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, name);
}

int harp_tcp_watch_listener(struct harp_tcp *t, unsigned eni) {
  uint64_t name = (uint64_t)eni << HARP_TCP_KIND_BITS | HARP_TCP_IS_LISTENER;
  return harp_tcp_watch(t, t->listeners[eni].fd, EPOLLIN, name);
}

void harp_tcp_unwatch(struct harp_tcp *t, int fd) {
  epoll_ctl(t->fd, EPOLL_CTL_DEL, fd, NULL);
}

void harp_tcp_list_readable(struct harp_tcp_path *p) {
  struct harp_tcp *t = p->peer->engine->tcp;
  if (p->readable) return;
  HARP_ASSERT(p->fd >= 0 && !p->connecting);
  p->readable = true;
  p->next_readable = NULL;
  if (t->readable_last)
    t->readable_last->next_readable = p;
  else
    t->readable_first = p;
  t->readable_last = p;
}

void harp_tcp_unlist_readable(struct harp_tcp_path *p) {
  struct harp_tcp *t = p->peer->engine->tcp;
  struct harp_tcp_path **at = &t->readable_first, *before = NULL;
  if (!p->readable) return;
  while (*at != p) {
    HARP_ASSERT(*at); /* one that is readable is in the list */
    before = *at;
    at = &before->next_readable;
  }
  *at = p->next_readable;
  if (t->readable_last == p) t->readable_last = before;
  p->readable = false;
}
