/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/tcp/tcp_accept.h"
#include "engine/tcp/tcp_path.h"
#include "engine/tcp/tcp_poll.h"

enum {
  EVENTS = 32,
  TRIES = 8, /* of the path that alone brings something: for so many passes others may have to wait */
};
/* While nothing comes, an engine that has datagrams as well calls epoll_wait once in POLL_IDLE_NS: the
 * call takes 0.5 us, a tenth of the time of a message of 4 KiB. */
#define POLL_IDLE_NS HARP_US(20)

/* ---- opening ---- */

/* AUTO: where the kernel's sockets carry the datagrams, too. */
bool harp_tcp_is_wanted(const struct harp_engine *e, unsigned eni) {
  enum harp_driver driver = e->enis[eni].driver;
  if (driver == HARP_DRIVER_AUTO)
    return e->enis[eni].is_unnumbered || harp_engine_io(e, eni)->ops == &harp_io_udp;
  return driver == HARP_DRIVER_TCP || driver == HARP_DRIVER_UDP_TCP;
}

static int open_listener(struct harp_engine *e, unsigned eni) {
  struct harp_tcp *t = e->tcp;
  const struct harp_instance *instance = &e->enis[eni];
  struct harp_tcp_options options = harp_tcp_options_of(e, eni, -1);
  uint16_t port = harp_engine_io(e, eni)->info.ports[0]; /* one number for a firewall to know */
  int fd = harp_tcp_socket_listen(&options, instance->ports.low, instance->ports.high, &port);
  if (fd < 0) return fd;
  t->listeners[eni].fd = fd;
  int err = harp_tcp_watch_listener(t, eni);
  if (err) {
    harp_files_close(fd);
    t->listeners[eni].fd = -1;
    return err;
  }
  t->listeners[eni].port = port;
  HARP_INFO("%s%s: TCP connections for data are accepted on port %u", instance->ifname, e->mark, port);
  return 0;
}

/* An interface that has UDP as well does without. */
static int open_or_do_without(struct harp_engine *e, unsigned eni, struct harp_error *error) {
  const struct harp_instance *instance = &e->enis[eni];
  int err = open_listener(e, eni);
  char text[HARP_LIMIT_TEXT_BYTES];
  const char *why = err == -EADDRINUSE && instance->ports.low ? "no port is free: widen `ports`"
                                                              : harp_limit_text(-err, text);
  if (err && instance->driver == HARP_DRIVER_TCP)
    return harp_error_set(error, err, "%s: cannot listen for TCP connections: %s", instance->ifname, why);
  if (err)
    HARP_INFO("%s%s: no TCP connections on this interface, data goes over UDP alone: %s", instance->ifname,
              e->mark, why);
  return 0;
}

static struct harp_tcp *make(bool is_alone) {
  struct harp_tcp *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->is_alone = is_alone;
  harp_page_pipe_init(&t->pages);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(t->listeners); i++) t->listeners[i].fd = -1;
  for (unsigned i = 0; i < HARP_TCP_ACCEPTED_MAX; i++) t->accepted[i].fd = -1;
  t->fd = epoll_create1(EPOLL_CLOEXEC);
  return t;
}

int harp_tcp_open(struct harp_engine *e, struct harp_error *error) {
  bool wanted = false, is_alone = true;
  for (unsigned i = 0; i < e->eni_count; i++) {
    wanted |= harp_tcp_is_wanted(e, i);
    is_alone &= e->enis[i].driver == HARP_DRIVER_TCP;
  }
  if (!wanted) return 0;
  e->tcp = make(is_alone);
  if (!e->tcp) return harp_shortage_set(error, -ENOMEM, "cannot open TCP connections");
  if (e->tcp->fd < 0) return harp_shortage_set(error, -errno, "cannot open an epoll set for TCP connections");
  int err = 0;
  for (unsigned i = 0; i < e->eni_count && !err; i++)
    if (!e->enis[i].is_unnumbered) err = harp_tcp_open_late(e, i, error);
  return err;
}

int harp_tcp_open_late(struct harp_engine *e, unsigned eni, struct harp_error *error) {
  return e->tcp && harp_tcp_is_wanted(e, eni) ? open_or_do_without(e, eni, error) : 0;
}

void harp_tcp_close(struct harp_engine *e) {
  struct harp_tcp *t = e->tcp;
  if (!t) return;
  HARP_ASSERT(!t->open_count); /* peers end their connections */
  harp_tcp_accepted_close(t);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(t->listeners); i++)
    if (t->listeners[i].fd >= 0) harp_files_close(t->listeners[i].fd);
  harp_page_pipe_close(&t->pages);
  if (t->fd >= 0) close(t->fd);
  free(t);
  e->tcp = NULL;
}

/* ---- receiving ---- */

static void on_path_event(struct harp_tcp_path *p, uint32_t events, harp_ns now) {
  if (p->fd < 0) return; /* ended by what came before it */
  if (p->connecting && events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
    harp_tcp_path_on_connected(p, now);
  else if (events & EPOLLOUT)
    harp_tcp_path_flush(p, now);
  /* One event may stand for the last bytes and for the end, which then makes no event of its own. */
  p->is_ending |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (p->fd >= 0 && !p->connecting && events & ~(uint32_t)EPOLLOUT) harp_tcp_list_readable(p);
}

static void on_event(struct harp_engine *e, const struct epoll_event *event, harp_ns now) {
  uint64_t name = event->data.u64, index = name >> HARP_TCP_KIND_BITS;
  if (name & HARP_TCP_IS_LISTENER)
    harp_tcp_accept(e, (unsigned)index, now);
  else if (name & HARP_TCP_IS_ACCEPTED)
    harp_tcp_accepted_on_readable(e, &e->tcp->accepted[index], now);
  else
    on_path_event((struct harp_tcp_path *)(uintptr_t)name, event->events, now);
}

static void poll_events(struct harp_engine *e, harp_ns now) {
  struct epoll_event events[EVENTS];
  int n = epoll_wait(e->tcp->fd, events, EVENTS, 0);
  for (int i = 0; i < n; i++) on_event(e, &events[i], now);
}

/* Returns the path to read next; NULL: nothing has come. While one path alone brings something it is read
 * between the calls of epoll_wait, which costs no more than such a call. */
static struct harp_tcp_path *next_to_read(struct harp_engine *e, harp_ns now) {
  struct harp_tcp *t = e->tcp;
  bool is_live = harp_tcp_is_live(t, now);
  if (t->brought && t->is_steady && is_live && !t->readable_first && t->tries++ < TRIES) return t->brought;
  if (!t->readable_first && now < t->poll_ns) return NULL;
  poll_events(e, now);
  t->tries = 0;
  t->poll_ns = !t->is_alone && !is_live ? now + POLL_IDLE_NS : 0;
  return t->readable_first;
}

static void note_brought(struct harp_tcp *t, struct harp_tcp_path *p, harp_ns now) {
  t->is_steady = t->brought == p;
  t->brought = p->fd < 0 ? NULL : p;
  t->brought_ns = now;
}

struct harp_tcp_path *harp_tcp_begin_turn(struct harp_engine *e, harp_ns now) {
  struct harp_tcp_path *p = next_to_read(e, now);
  if (p) harp_tcp_unlist_readable(p);
  return p;
}

void harp_tcp_end_turn(struct harp_tcp_path *p, enum harp_tcp_read what, harp_ns now) {
  if (what == HARP_TCP_READ_MORE && p->fd >= 0) harp_tcp_list_readable(p);
  if (what != HARP_TCP_READ_NOTHING) note_brought(p->peer->engine->tcp, p, now);
}
