/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tcp/tcp_accept.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/files.h"
#include "engine/engine.h"
#include "engine/tcp/tcp_path.h"

/* Time in which an accepted connection must send its JOIN. */
#define JOIN_NS HARP_SEC(5)
enum { ACCEPTS_PER_EVENT = 4 };

/* Takes the socket out of an entry, which is free then. */
static int take_accepted(struct harp_engine *e, struct harp_tcp_accepted *a) {
  int fd = a->fd;
  HARP_ASSERT(fd >= 0 && e->tcp->accepted_count);
  harp_io_ready_unwatch(&e->ready, fd);
  a->fd = -1;
  e->tcp->accepted_count--;
  return fd;
}

static void end_accepted(struct harp_engine *e, struct harp_tcp_accepted *a) {
  if (a->fd >= 0) harp_files_close(take_accepted(e, a));
}

static void refuse_accepted(struct harp_engine *e, struct harp_tcp_accepted *a) {
  e->counters.handshake_refused++;
  end_accepted(e, a);
}

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
  if (!p || peer->ends[p->path].local_eni != a->eni || record.packet.number < p->attempts) return NULL;
  p->attempts = record.packet.number + 1;
  return p;
}

/* Reads the JOIN of an accepted connection, no more, and checks it. */
void harp_tcp_accepted_on_readable(struct harp_engine *e, struct harp_tcp_accepted *a, harp_ns now) {
  if (a->fd < 0) return;
  if (a->bytes < sizeof a->join) {
    ssize_t n = recv(a->fd, a->join + a->bytes, sizeof a->join - a->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n == 0 && !a->bytes) {
      end_accepted(e, a); /* an inquiry whether we live */
      return;
    }
    if (n <= 0) {
      refuse_accepted(e, a);
      return;
    }
    a->bytes += (uint32_t)n;
    if (a->bytes < sizeof a->join) return;
  }
  bool is_early;
  struct harp_tcp_path *p = path_of_join(e, a, &is_early);
  if (p) {
    harp_strangers_on_proved(&e->strangers);
    harp_tcp_path_adopt(p, take_accepted(e, a), now);
  } else if (!is_early) {
    refuse_accepted(e, a);
  }
}

static struct harp_tcp_accepted *place_for_accepted(struct harp_engine *e) {
  struct harp_tcp_accepted *oldest = &e->tcp->accepted[0];
  for (unsigned i = 0; i < HARP_TCP_ACCEPTED_MAX; i++) {
    struct harp_tcp_accepted *a = &e->tcp->accepted[i];
    if (a->fd < 0) return a;
    if (a->since_ns < oldest->since_ns) oldest = a;
  }
  refuse_accepted(e, oldest);
  return oldest;
}

int harp_tcp_watch_listener(struct harp_engine *e, unsigned eni) {
  return harp_io_ready_watch(&e->ready, e->tcp->listeners[eni].fd, EPOLLIN,
                             harp_io_ready_name(HARP_READY_TCP_LISTENER, eni));
}

/* Stops waiting for a listener while accept fails, or too many strangers come: it would stay ready, and the
 * runner would spin. */
static void pause_accept(struct harp_engine *e, unsigned eni, bool pause) {
  struct harp_tcp *t = e->tcp;
  if (t->listeners[eni].paused == pause) return;
  if (pause)
    harp_io_ready_unwatch(&e->ready, t->listeners[eni].fd);
  else
    pause = harp_tcp_watch_listener(e, eni) != 0;
  t->listeners[eni].paused = pause;
}

void harp_tcp_accept(struct harp_engine *e, unsigned eni, harp_ns now) {
  struct harp_tcp *t = e->tcp;
  for (unsigned i = 0; i < ACCEPTS_PER_EVENT; i++) {
    struct harp_tcp_options options = harp_tcp_options_of(e, eni, -1);
    if (!harp_strangers_may_come(&e->strangers, now)) {
      pause_accept(e, eni, true);
      return;
    }
    int fd = harp_tcp_socket_accept(t->listeners[eni].fd, &options);
    bool is_short = fd < 0 && harp_limit_is_hosts(-fd);
    pause_accept(e, eni, is_short);
    if (is_short) harp_tcp_log_shortage(e, -fd);
    if (fd < 0) return; /* none waits, or there may be more files soon */
    harp_strangers_on_accepted(&e->strangers, now);
    if (options.spares_files && harp_files_are_scarce(fd)) {
      harp_tcp_log_shortage(e, HARP_EFEWFILES);
      harp_files_close(fd); /* the client tries again, ever more rarely */
      continue;
    }
    struct harp_tcp_accepted *a = place_for_accepted(e);
    HARP_ASSERT(a->fd < 0);
    *a = (struct harp_tcp_accepted){.fd = fd, .eni = eni, .since_ns = now};
    t->accepted_count++;
    if (harp_io_ready_watch(&e->ready, fd, EPOLLIN | EPOLLET,
                            harp_io_ready_name(HARP_READY_TCP_ACCEPTED, (uint64_t)(a - t->accepted))))
      refuse_accepted(e, a);
    else
      harp_tcp_accepted_on_readable(e, a, now);
  }
}

void harp_tcp_accepts_on_time(struct harp_engine *e, harp_ns now) {
  struct harp_tcp *t = e->tcp;
  for (unsigned i = 0; t && i < e->eni_count; i++)
    if (t->listeners[i].paused) harp_tcp_accept(e, i, now);
  for (unsigned i = 0; t && t->accepted_count && i < HARP_TCP_ACCEPTED_MAX; i++) {
    struct harp_tcp_accepted *a = &t->accepted[i];
    if (a->fd < 0) continue;
    harp_tcp_accepted_on_readable(e, a, now);
    if (a->fd >= 0 && now - a->since_ns > JOIN_NS) refuse_accepted(e, a);
  }
}

void harp_tcp_accepted_close(struct harp_engine *e) {
  for (unsigned i = 0; i < HARP_TCP_ACCEPTED_MAX; i++) end_accepted(e, &e->tcp->accepted[i]);
  HARP_ASSERT(!e->tcp->accepted_count);
}
