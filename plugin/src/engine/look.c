/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/look.h"

#include "engine/control/dispatch.h"
#include "engine/control/listener.h"
#include "engine/engine.h"
#include "engine/peer_life.h"

static bool is_of_tcp_paths(const struct epoll_event *event) {
  return harp_io_ready_kind(event->data.u64) >= HARP_READY_TCP_PATH;
}

static void on_peer_event(struct harp_peer *peer, uint32_t events, harp_ns now) {
  if (events & EPOLLOUT) harp_monitor_on_writable(peer, now);
  if (events & ~(uint32_t)EPOLLOUT) harp_dispatch_control(peer, now);
  harp_peer_complete_news(peer);
}

static void on_control_event(struct harp_engine *e, const struct epoll_event *event, harp_ns now) {
  uint64_t name = event->data.u64;
  if (harp_io_ready_kind(name) != HARP_READY_PEER) {
    harp_listeners_on_ready(name, now);
    return;
  }
  struct harp_peer *peer = harp_engine_peer_at(e, (uint32_t)harp_io_ready_rest(name));
  if (peer) on_peer_event(peer, event->events, now);
}

void harp_look(struct harp_engine *e) {
  struct epoll_event events[HARP_READY_EVENTS];
  bool has_work = e->tcp && e->tcp->readable_first;
  unsigned n = harp_io_ready_refresh(&e->ready, has_work, e->looked_ns, events);
  if (harp_likely(!n)) return;
  harp_ns now = e->clock();
  /* Those of tcp paths first, which are named by their addresses: a control message may end their peer. */
  for (unsigned i = 0; i < n; i++)
    if (is_of_tcp_paths(&events[i])) harp_tcp_on_event(e, &events[i], now);
  for (unsigned i = 0; i < n; i++)
    if (!is_of_tcp_paths(&events[i])) on_control_event(e, &events[i], now);
}
