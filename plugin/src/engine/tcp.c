/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/tcp_path.h"

/* Time in which an accepted connection must send its JOIN. */
#define JOIN_NS HARP_SEC(5)
enum {
  ACCEPTS_PER_EVENT = 4,
  EVENTS = 32,
  TRIES = 8, /* of the path that alone brings something: for so many passes others may have to wait */
};
/* While nothing comes, an engine that has datagrams as well asks the kernel once in POLL_IDLE_NS: the
 * question takes 0.5 us, a tenth of the time of a message of 4 KiB. */
#define POLL_IDLE_NS HARP_US(20)

/* In the epoll set a path is named by its address, a listener and an accepted connection by their index and
 * these bits. */
enum { IS_LISTENER = 1, IS_ACCEPTED = 2, KIND_BITS = 2 };

static struct harp_tcp_options options_of(const struct harp_engine *e, unsigned eni, int traffic_class) {
  return (struct harp_tcp_options){
      .local = &e->enis[eni].addr,
      .ifindex = e->eni_count > 1 ? (unsigned)e->enis[eni].index : 0,
      .traffic_class = traffic_class,
      .timeout_ns = e->instance.peer_timeout_ns,
  };
}

static int watch(struct harp_tcp *t, int fd, uint32_t events, uint64_t name) {
  struct epoll_event ev = {.events = events, .data.u64 = name};
  return epoll_ctl(t->fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/* A copy that a forked child holds would keep a closed file in the set. */
static void drop(struct harp_tcp *t, int fd) {
  epoll_ctl(t->fd, EPOLL_CTL_DEL, fd, NULL);
  harp_files_close(fd);
}

/* ---- the engine's ---- */

/* AUTO: where the kernel's sockets carry the datagrams, too. */
static bool wants_tcp(struct harp_engine *e, unsigned eni) {
  enum harp_driver driver = e->enis[eni].driver;
  if (driver == HARP_DRIVER_AUTO) return harp_engine_io(e, eni)->ops == &harp_io_udp;
  return driver == HARP_DRIVER_TCP || driver == HARP_DRIVER_UDP_TCP;
}

static int open_listener(struct harp_engine *e, unsigned eni) {
  struct harp_tcp *t = e->tcp;
  const struct harp_instance *instance = &e->enis[eni];
  struct harp_tcp_options options = options_of(e, eni, -1);
  uint16_t port = harp_engine_io(e, eni)->info.ports[0]; /* one number for a firewall to know */
  int fd = harp_tcp_socket_listen(&options, instance->ports.low, instance->ports.high, &port);
  if (fd < 0) return fd;
  int err = watch(t, fd, EPOLLIN, (uint64_t)eni << KIND_BITS | IS_LISTENER);
  if (err) {
    harp_files_close(fd);
    return err;
  }
  t->listeners[eni].fd = fd;
  t->listeners[eni].port = port;
  HARP_INFO("%s%s: TCP connections for data are accepted on port %u", instance->ifname, e->mark, port);
  return 0;
}

/* An interface that has UDP as well does without. */
static int open_or_do_without(struct harp_engine *e, unsigned eni, struct harp_error *error) {
  const struct harp_instance *instance = &e->enis[eni];
  int err = open_listener(e, eni);
  const char *help = err == -EADDRINUSE ? ": widen `ports`" : "";
  if (err && instance->driver == HARP_DRIVER_TCP)
    return harp_error_set(error, err, "%s: cannot listen for TCP connections: %s%s", instance->ifname,
                          strerror(-err), help);
  if (err)
    HARP_INFO("%s%s: no TCP connections on this interface, data goes over UDP alone: %s%s", instance->ifname,
              e->mark, strerror(-err), help);
  return 0;
}

int harp_tcp_open(struct harp_engine *e, struct harp_error *error) {
  bool wanted = false, is_alone = true;
  for (unsigned i = 0; i < e->eni_count; i++) {
    wanted |= wants_tcp(e, i);
    is_alone &= e->enis[i].driver == HARP_DRIVER_TCP;
  }
  if (!wanted) return 0;
  struct harp_tcp *t = calloc(1, sizeof *t);
  if (!t) return harp_error_set(error, -ENOMEM, "no memory for TCP connections");
  e->tcp = t;
  t->is_alone = is_alone;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(t->listeners); i++) t->listeners[i].fd = -1;
  for (unsigned i = 0; i < HARP_TCP_ACCEPTED_MAX; i++) t->accepted[i].fd = -1;
  t->fd = epoll_create1(EPOLL_CLOEXEC);
  if (t->fd < 0) {
    int err = -errno;
    return harp_error_set(error, err, "cannot open an epoll set for TCP connections: %s", strerror(-err));
  }
  int err = 0;
  for (unsigned i = 0; i < e->eni_count && !err; i++)
    if (wants_tcp(e, i)) err = open_or_do_without(e, i, error);
  return err;
}

static void end_accepted(struct harp_tcp *t, struct harp_tcp_accepted *a) {
  if (a->fd < 0) return;
  drop(t, a->fd);
  a->fd = -1;
  t->accepted_count--;
}

void harp_tcp_close(struct harp_engine *e) {
  struct harp_tcp *t = e->tcp;
  if (!t) return;
  for (unsigned i = 0; i < HARP_TCP_ACCEPTED_MAX; i++) end_accepted(t, &t->accepted[i]);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(t->listeners); i++)
    if (t->listeners[i].fd >= 0) drop(t, t->listeners[i].fd);
  if (t->fd >= 0) close(t->fd);
  free(t);
  e->tcp = NULL;
}

/* ---- the connection of a path ---- */

/* Both directions, at edges: a path that has been read or written empty waits for the next one. */
static int watch_path(struct harp_tcp_path *p) {
  return watch(p->peer->engine->tcp, p->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, (uintptr_t)p);
}

static void retry_later(struct harp_tcp_path *p, harp_ns now) {
  p->retry_ns = now + p->wait_ns;
  p->wait_ns = HARP_MIN(2 * p->wait_ns, HARP_TCP_WAIT_MAX_NS);
}

static void connect_path(struct harp_tcp_path *p, harp_ns now) {
  struct harp_engine *e = p->peer->engine;
  unsigned eni = p->peer->route_enis[p->path];
  struct harp_tcp_options options = options_of(e, eni, p->peer->traffic_class);
  retry_later(p, now);
  int fd = harp_tcp_socket_connect(&options, &p->remote);
  if (fd < 0) return; /* tried again */
  p->fd = fd;
  p->connecting = true;
  p->opened_ns = now;
  e->tcp->open_count++;
  if (watch_path(p)) harp_tcp_path_end(p, now, "cannot be watched");
}

/* The connection stands: from here on records go. */
static void begin_path(struct harp_tcp_path *p, harp_ns now) {
  p->connecting = p->was_up = p->is_waiting = false;
  p->out_sent = p->out_bytes = p->payload_bytes = 0;
  p->payload_of = NULL;
  p->acked_bytes = p->sent_bytes = 0;
  harp_carrier_restart(&p->carrier, now);
  p->look_ns = p->opened_ns = now;
  harp_records_init(&p->in, &p->peer->session, p->path, p->ahead);
  harp_tcp_path_begin_zerocopy(p);
  harp_sender_unblock(p->peer->session.sender, p->path, now);
  harp_peer_touch(p->peer);
}

static void on_connected(struct harp_tcp_path *p, harp_ns now) {
  const struct harp_peer *peer = p->peer;
  int err = harp_tcp_socket_error(p->fd);
  if (err) {
    harp_tcp_path_end(p, now, strerror(-err));
    return;
  }
  begin_path(p, now);
  harp_record_encode_join(p->out, peer->session.keys.tx_token, p->path, p->attempts++,
                          peer->session.keys.tx_seed, peer->monitor.keys.tx);
  p->out_bytes = HARP_RECORD_HEAD_BYTES;
  harp_tcp_path_flush(p, now);
}

static void unlist(struct harp_tcp *t, struct harp_tcp_path *p) {
  struct harp_tcp_path **at = &t->readable_first, *before = NULL;
  if (!p->readable) return;
  while (*at != p) before = *at, at = &(*at)->next_readable;
  *at = p->next_readable;
  if (t->readable_last == p) t->readable_last = before;
  p->readable = false;
}

static void close_path(struct harp_tcp_path *p) {
  struct harp_tcp *t = p->peer->engine->tcp;
  unlist(t, p);
  if (t->brought == p) t->brought = NULL;
  if (p->fd < 0) return;
  if (!p->connecting) harp_records_end(&p->in);
  drop(t, p->fd);
  p->fd = -1;
  p->out_sent = p->out_bytes = p->payload_bytes = 0;
  p->payload_of = NULL;
  t->open_count--;
}

void harp_tcp_path_end(struct harp_tcp_path *p, harp_ns now, const char *why) {
  struct harp_peer *peer = p->peer;
  bool was_open = !p->connecting;
  if (p->fd < 0) return;
  close_path(p);
  p->connecting = false;
  if (peer->is_client) retry_later(p, now);
  if (was_open) {
    peer->engine->counters.tcp_ends++;
    harp_recorder_note_peer(
        peer, now, (struct harp_trace_entry){.event = HARP_EVENT_TCP_CLOSED, .path = (uint8_t)p->path});
    if (peer->links && !peer->monitor.final_received) /* else it is the end of all */
      HARP_INFO("%s: a TCP connection with %s has ended (%s); its data takes other paths",
                peer->engine->enis[peer->route_enis[p->path]].ifname, peer->name, why);
    harp_sender_block(peer->session.sender, p->path, now);
    harp_sender_path_down(peer->session.sender, p->path, now);
  }
  harp_peer_touch(peer);
}

void harp_tcp_path_init(struct harp_tcp_path *p, struct harp_peer *peer, unsigned path, unsigned beside,
                        const struct sockaddr_storage *remote) {
  p->peer = peer;
  p->path = path;
  p->beside = beside;
  p->fd = -1;
  p->connecting = p->readable = p->was_up = p->is_waiting = false;
  p->attempts = 0;
  harp_carrier_init(&p->carrier, peer->engine->clock());
  p->wait_ns = HARP_TCP_WAIT_NS;
  p->retry_ns = remote ? 0 : HARP_NEVER;
  p->out_sent = p->out_bytes = p->payload_bytes = 0;
  p->payload_of = NULL;
  if (remote) p->remote = *remote;
}

void harp_tcp_leave(struct harp_peer *peer) {
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    close_path(&peer->tcp[i]);
    peer->tcp[i].retry_ns = HARP_NEVER;
  }
}

void harp_tcp_forget(struct harp_peer *peer, const struct harp_tx_stream *stream, harp_ns now) {
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    struct harp_tcp_path *p = &peer->tcp[i];
    if (p->fd >= 0 && p->payload_bytes && p->payload_of == stream)
      harp_tcp_path_end(p, now, "a transfer on it was given up");
  }
}

/* Whether the connection is watched: for an answer, or until the kernel takes more. */
static bool owes(const struct harp_tcp_path *p) {
  return p->is_waiting || harp_sender_inflight_bytes(p->peer->session.sender, p->path);
}

static void avoid(const struct harp_tcp_path *p, bool avoided, harp_ns now) {
  harp_sender_avoid(p->peer->session.sender, p->path, avoided);
  harp_recorder_note_peer(p->peer, now,
                          (struct harp_trace_entry){.event = HARP_EVENT_CARRIER,
                                                    .path = (uint8_t)p->path,
                                                    .a = avoided ? 1 + p->carrier.why : 0});
}

static void say_avoided(const struct harp_tcp_path *p, const struct harp_carrier_sample *s) {
  const char *ifname = p->peer->engine->enis[p->peer->route_enis[p->path]].ifname, *name = p->peer->name;
  unsigned long long rest_ms = (p->carrier.until_ns - p->carrier.looked_ns) / HARP_MS(1);
  if (p->carrier.why == HARP_CARRIER_LOSS)
    HARP_INFO("%s: large messages to %s avoid TCP for %llu ms: its kernel repeated %u of %u segments", ifname,
              name, rest_ms, p->carrier.retransmitted, p->carrier.segments);
  else
    HARP_INFO("%s: large messages to %s avoid TCP for %llu ms: a round trip takes %.1f ms, at best %.1f",
              ifname, name, rest_ms, (double)s->rtt_ns / 1e6, (double)s->rtt_min_ns / 1e6);
}

/* The kernel's progress is the path's: a record takes long where the network is slow. */
static void look(struct harp_tcp_path *p, harp_ns now) {
  struct harp_tcp_stats f;
  p->look_ns = now + HARP_TCP_LOOK_NS;
  harp_tcp_socket_read_stats(p->fd, p->sent_bytes, &f);
  if (f.acked_bytes != p->acked_bytes) harp_sender_on_progress(p->peer->session.sender, p->path, now);
  p->acked_bytes = f.acked_bytes;
  struct harp_carrier_sample sample = {f.segments, f.retransmitted, f.rtt_ns, f.rtt_min_ns};
  if (!harp_carrier_on_look(&p->carrier, &sample, now)) return;
  p->peer->engine->counters.tcp_avoided++;
  say_avoided(p, &sample);
  avoid(p, true, now);
}

static harp_ns review_open(struct harp_tcp_path *p, harp_ns now) {
  const struct harp_sender *s = p->peer->session.sender;
  bool is_up = harp_sender_is_up(s, p->path);
  if (harp_sender_is_dormant(s, p->path)) {
    p->opened_ns = now; /* it proves itself when it is put to use */
    return HARP_NEVER;
  }
  if (is_up && !p->was_up) {
    p->was_up = true;
    p->wait_ns = HARP_TCP_WAIT_NS;
  }
  bool is_late = !is_up && now - p->opened_ns > HARP_TCP_PROOF_NS;
  if ((p->was_up && harp_sender_is_down(s, p->path)) || is_late) {
    harp_tcp_path_end(p, now, "nothing gets through");
    return now;
  }
  if (!is_up) return p->opened_ns + HARP_TCP_PROOF_NS;
  return owes(p) ? p->look_ns : HARP_NEVER;
}

void harp_tcp_note_progress(struct harp_peer *peer, harp_ns now) {
  const struct harp_sender *s = peer->session.sender;
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    struct harp_tcp_path *p = &peer->tcp[i];
    if (p->fd < 0 || !harp_sender_is_up(s, p->path) || !owes(p)) continue;
    if (p->look_ns <= now) look(p, now);
    if (p->readable) harp_sender_on_progress(peer->session.sender, p->path, now); /* it may be an answer */
  }
}

harp_ns harp_tcp_review(struct harp_peer *peer, harp_ns now) {
  harp_ns at = HARP_NEVER;
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    struct harp_tcp_path *p = &peer->tcp[i];
    if (harp_carrier_on_time(&p->carrier, now)) avoid(p, false, now);
    if (p->fd < 0 && p->retry_ns <= now) connect_path(p, now);
    if (p->fd >= 0 && p->connecting && now - p->opened_ns > HARP_TCP_PROOF_NS)
      harp_tcp_path_end(p, now, "no answer");
    if (p->fd < 0)
      at = HARP_MIN(at, p->retry_ns);
    else
      at = HARP_MIN(at, p->connecting ? p->opened_ns + HARP_TCP_PROOF_NS : review_open(p, now));
  }
  return at;
}

/* ---- accepted connections ---- */

/* Returns the path that a JOIN is for; NULL: none, or none yet (*is_early). */
static struct harp_tcp_path *path_of_join(struct harp_engine *e, const struct harp_tcp_accepted *a,
                                          bool *is_early) {
  struct harp_record record;
  *is_early = false;
  if (harp_record_decode(a->join, &record) || record.packet.type != HARP_PACKET_JOIN) return NULL;
  uint32_t slot = record.packet.token & 0xffff;
  struct harp_peer *peer = slot < HARP_ENGINE_PEERS_MAX ? e->peers[slot] : NULL;
  *is_early = peer == HARP_SLOT_RESERVED;
  if (!peer || *is_early || peer->session.keys.rx_token != record.packet.token) return NULL;
  if (peer->session.state != HARP_SESSION_OPEN || peer->is_client) return NULL;
  if (!harp_record_join_ok(a->join, peer->session.keys.rx_seed, peer->monitor.keys.rx)) return NULL;
  struct harp_tcp_path *p = harp_tcp_path_of(peer, record.packet.path);
  if (!p || peer->route_enis[p->path] != a->eni || record.packet.number < p->attempts) return NULL;
  p->attempts = record.packet.number + 1;
  return p;
}

/* Makes an accepted connection with a right JOIN the connection of its path, in place of an older one. */
static void adopt(struct harp_engine *e, struct harp_tcp_accepted *a, struct harp_tcp_path *p, harp_ns now) {
  int fd = a->fd;
  harp_tcp_path_end(p, now, "the other side has opened it anew");
  epoll_ctl(e->tcp->fd, EPOLL_CTL_DEL, fd, NULL);
  a->fd = -1;
  e->tcp->accepted_count--;
  e->tcp->open_count++;
  p->fd = fd;
  struct harp_tcp_options options = options_of(e, a->eni, p->peer->traffic_class);
  harp_tcp_socket_set_options(fd, &options);
  begin_path(p, now);
  if (watch_path(p)) harp_tcp_path_end(p, now, "cannot be watched");
}

static void refuse(struct harp_engine *e, struct harp_tcp_accepted *a) {
  e->counters.handshake_refused++;
  end_accepted(e->tcp, a);
}

/* Reads the JOIN of an accepted connection, no more, and checks it. */
static void run_accepted(struct harp_engine *e, struct harp_tcp_accepted *a, harp_ns now) {
  if (a->bytes < sizeof a->join) {
    ssize_t n = recv(a->fd, a->join + a->bytes, sizeof a->join - a->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      refuse(e, a);
      return;
    }
    a->bytes += (uint32_t)n;
    if (a->bytes < sizeof a->join) return;
  }
  bool is_early;
  struct harp_tcp_path *p = path_of_join(e, a, &is_early);
  if (p)
    adopt(e, a, p, now);
  else if (!is_early)
    refuse(e, a);
}

static struct harp_tcp_accepted *place_for_accepted(struct harp_engine *e) {
  struct harp_tcp_accepted *oldest = &e->tcp->accepted[0];
  for (unsigned i = 0; i < HARP_TCP_ACCEPTED_MAX; i++) {
    struct harp_tcp_accepted *a = &e->tcp->accepted[i];
    if (a->fd < 0) return a;
    if (a->since_ns < oldest->since_ns) oldest = a;
  }
  refuse(e, oldest);
  return oldest;
}

static void accept_some(struct harp_engine *e, unsigned eni, harp_ns now) {
  struct harp_tcp *t = e->tcp;
  for (unsigned i = 0; i < ACCEPTS_PER_EVENT; i++) {
    struct harp_tcp_options options = options_of(e, eni, -1);
    int fd = harp_tcp_socket_accept(t->listeners[eni].fd, &options);
    if (fd < 0) return; /* none waits, or the host is short of files: the client tries again */
    struct harp_tcp_accepted *a = place_for_accepted(e);
    *a = (struct harp_tcp_accepted){.fd = fd, .eni = eni, .since_ns = now};
    t->accepted_count++;
    if (watch(t, fd, EPOLLIN | EPOLLET, (uint64_t)(a - t->accepted) << KIND_BITS | IS_ACCEPTED))
      refuse(e, a);
    else
      run_accepted(e, a, now);
  }
}

void harp_tcp_tend(struct harp_engine *e, harp_ns now) {
  struct harp_tcp *t = e->tcp;
  for (unsigned i = 0; t && t->accepted_count && i < HARP_TCP_ACCEPTED_MAX; i++) {
    struct harp_tcp_accepted *a = &t->accepted[i];
    if (a->fd < 0) continue;
    run_accepted(e, a, now);
    if (a->fd >= 0 && now - a->since_ns > JOIN_NS) refuse(e, a);
  }
}

/* ---- what has come ---- */

static void list_readable(struct harp_tcp *t, struct harp_tcp_path *p) {
  if (p->readable) return;
  p->readable = true;
  p->next_readable = NULL;
  if (t->readable_last)
    t->readable_last->next_readable = p;
  else
    t->readable_first = p;
  t->readable_last = p;
}

static void on_event(struct harp_engine *e, const struct epoll_event *event, harp_ns now) {
  uint64_t name = event->data.u64;
  if (name & IS_LISTENER) {
    accept_some(e, (unsigned)(name >> KIND_BITS), now);
  } else if (name & IS_ACCEPTED) {
    struct harp_tcp_accepted *a = &e->tcp->accepted[name >> KIND_BITS];
    if (a->fd >= 0) run_accepted(e, a, now);
  } else {
    struct harp_tcp_path *p = (struct harp_tcp_path *)(uintptr_t)name;
    if (p->fd < 0) return; /* ended by what came before it */
    if (p->connecting && event->events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
      on_connected(p, now);
    else if (event->events & EPOLLOUT)
      harp_tcp_path_flush(p, now);
    if (event->events & EPOLLERR) harp_tcp_path_reap(p);
    if (p->fd >= 0 && !p->connecting && event->events & ~(uint32_t)EPOLLOUT) list_readable(e->tcp, p);
  }
}

static void poll_events(struct harp_engine *e, harp_ns now) {
  struct epoll_event events[EVENTS];
  int n = epoll_wait(e->tcp->fd, events, EVENTS, 0);
  for (int i = 0; i < n; i++) on_event(e, &events[i], now);
}

/* Returns the path to read next; NULL: nothing has come. While one path alone brings something it is tried
 * between the questions to the kernel, which costs no more than to ask. */
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

unsigned harp_tcp_receive(struct harp_engine *e, harp_ns now) {
  struct harp_tcp *t = e->tcp;
  struct harp_tcp_path *p = t ? next_to_read(e, now) : NULL;
  if (!p) return 0;
  /* One path a pass, in turn. */
  unlist(t, p);
  enum harp_tcp_read what = harp_tcp_path_read(p, now);
  if (what == HARP_TCP_READ_MORE) list_readable(t, p);
  if (what == HARP_TCP_READ_NOTHING) return 0;
  note_brought(t, p, now);
  return 1;
}
