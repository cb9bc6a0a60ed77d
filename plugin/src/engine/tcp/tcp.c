/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/tcp/tcp_accept.h"
#include "engine/tcp/tcp_path.h"

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
  int err = harp_tcp_watch_listener(e, eni);
  if (err) {
    harp_files_close(fd);
    t->listeners[eni].fd = -1;
    return err;
  }
  t->listeners[eni].port = port;
  if (harp_tcp_is_wanted(e, eni))
    HARP_INFO("%s%s: TCP connections for data are accepted on port %u", instance->ifname, e->mark, port);
  else
    HARP_INFO("%s%s: TCP port %u shows peers that this process runs", instance->ifname, e->mark, port);
  return 0;
}

/* An interface that has datagrams does without. */
static int open_or_do_without(struct harp_engine *e, unsigned eni, struct harp_error *error) {
  const struct harp_instance *instance = &e->enis[eni];
  int err = open_listener(e, eni);
  char text[HARP_LIMIT_TEXT_BYTES];
  const char *why = err == -EADDRINUSE && instance->ports.low ? "no port is free: widen `ports`"
                                                              : harp_limit_text(-err, text);
  if (err && instance->driver == HARP_DRIVER_TCP)
    return harp_error_set(error, err, "%s: cannot listen for TCP connections: %s", instance->ifname, why);
  if (err && harp_tcp_is_wanted(e, eni))
    HARP_INFO("%s%s: no TCP connections on this interface, data goes over UDP alone: %s", instance->ifname,
              e->mark, why);
  else if (err)
    HARP_INFO("%s%s: cannot listen for TCP connections, so that peers may know late that this process has "
              "ended: %s",
              instance->ifname, e->mark, why);
  return 0;
}

static struct harp_tcp *make_tcp(const struct harp_engine *e) {
  struct harp_tcp *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->is_alone = true;
  for (unsigned i = 0; i < e->eni_count; i++) {
    t->has_paths |= harp_tcp_is_wanted(e, i);
    t->is_alone &= e->enis[i].driver == HARP_DRIVER_TCP;
  }
  harp_page_pipe_init(&t->pages);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(t->listeners); i++) t->listeners[i].fd = -1;
  for (unsigned i = 0; i < HARP_TCP_ACCEPTED_MAX; i++) t->accepted[i].fd = -1;
  return t;
}

int harp_tcp_open(struct harp_engine *e, struct harp_error *error) {
  e->tcp = make_tcp(e);
  if (!e->tcp) return harp_shortage_set(error, -ENOMEM, "cannot open TCP connections");
  int err = 0;
  for (unsigned i = 0; i < e->eni_count && !err; i++)
    if (!e->enis[i].is_unnumbered) err = harp_tcp_open_late(e, i, error);
  return err;
}

int harp_tcp_open_late(struct harp_engine *e, unsigned eni, struct harp_error *error) {
  return e->tcp ? open_or_do_without(e, eni, error) : 0;
}

void harp_tcp_close(struct harp_engine *e) {
  struct harp_tcp *t = e->tcp;
  if (!t) return;
  HARP_ASSERT(!t->open_count); /* peers end their connections */
  harp_tcp_accepted_close(e);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(t->listeners); i++)
    if (t->listeners[i].fd >= 0) harp_files_close(t->listeners[i].fd);
  harp_page_pipe_close(&t->pages);
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

void harp_tcp_on_event(struct harp_engine *e, const struct epoll_event *event, harp_ns now) {
  uint64_t name = event->data.u64;
  switch (harp_io_ready_kind(name)) {
  case HARP_READY_TCP_LISTENER:
    harp_tcp_accept(e, (unsigned)harp_io_ready_rest(name), now);
    return;
  case HARP_READY_TCP_ACCEPTED:
    harp_tcp_accepted_on_readable(e, &e->tcp->accepted[harp_io_ready_rest(name)], now);
    return;
  default:
    on_path_event(harp_io_ready_address(name), event->events, now);
  }
}

struct harp_tcp_path *harp_tcp_begin_turn(struct harp_engine *e) {
  struct harp_tcp_path *p = e->tcp->readable_first;
  if (p) harp_tcp_unlist_readable(p);
  bool is_tried = harp_io_ready_kind(e->ready.tried) == HARP_READY_TCP_PATH;
  return !p && is_tried ? harp_io_ready_address(e->ready.tried) : p;
}

void harp_tcp_end_turn(struct harp_tcp_path *p, enum harp_tcp_read what) {
  if (what == HARP_TCP_READ_MORE && p->fd >= 0) harp_tcp_list_readable(p);
  if (what != HARP_TCP_READ_NOTHING && p->fd >= 0)
    harp_io_ready_received(&p->peer->engine->ready, harp_tcp_path_name(p));
}
