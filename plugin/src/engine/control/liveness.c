/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/liveness.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/log_limit.h"
#include "engine/engine.h"
#include "engine/peer_life.h"

/* Keepalives are a second apart at least: a kernel that has answered all of them may be silent for so long.
 */
#define KERNEL_SILENT_MIN_NS HARP_SEC(3)

/* Returns whether the peer's kernel has sent nothing for so long, though it was sent several keepalives. TCP
 * need not give up then: it takes packets that our own host drops for a local congestion. */
static bool is_kernel_silent(int fd, harp_ns limit) {
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n)) return false;
  return HARP_MS(HARP_MIN(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)) >=
         HARP_MAX(limit, KERNEL_SILENT_MIN_NS);
}

void harp_liveness_on_silence(struct harp_peer *peer, harp_ns now) {
  const struct harp_monitor *m = &peer->monitor;
  harp_ns limit = peer->engine->instance.peer_timeout_ns;
  harp_ns quiet = now - HARP_MAX(peer->last_received_ns, peer->waits_ns);
  if (!peer->outstanding || m->gone || quiet < limit) return;
  if (!m->lost && !is_kernel_silent(m->fd, limit)) return;
  harp_peer_fail(peer, HARP_ERR_REMOTE, now,
                 "lost %s: its control connection to %s %s, and nothing has come over any path for %llu s: "
                 "the process, its host or the network in between is down",
                 peer->name, peer->engine->name, m->lost ? "broke" : "brings nothing",
                 (unsigned long long)(quiet / HARP_SEC(1)));
}

static void fail_ended(struct harp_peer *peer, harp_ns now) {
  harp_peer_fail(
      peer, HARP_ERR_REMOTE, now,
      "lost %s: its process has ended, or has closed all its connections: its host refuses connections "
      "to the ports it had, and its control connection to %s brings nothing",
      peer->name, peer->engine->name);
  harp_monitor_leave(peer);
}

void harp_liveness_inquire(struct harp_engine *e, harp_ns now) {
  e->inquire_ns = now + HARP_INQUIRY_NS;
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));)
    if (harp_inquiry_on_time(peer, now)) fail_ended(peer, now);
}

/* Returns for how long, as far as these checks have seen, the peer's kernel has acknowledged nothing of what
 * was sent. What was sent just now is not acknowledged either, by a peer that is well. */
static harp_ns unacknowledged_ns(struct harp_monitor *m, harp_ns now) {
  if (!harp_monitor_is_unacknowledged(m))
    m->unacknowledged_ns = 0;
  else if (!m->unacknowledged_ns)
    m->unacknowledged_ns = now;
  return m->unacknowledged_ns ? now - m->unacknowledged_ns : 0;
}

/* The verdict on a peer whose sender is stalled. */
enum stall_verdict {
  STALL_WAITS,   /* nothing yet */
  STALL_BLOCKED, /* the process answers on the control connection */
  STALL_DOWN,    /* nothing answers, on the control connection either */
};

static enum stall_verdict judge_stall(struct harp_monitor *m, harp_ns since, harp_ns limit, harp_ns now) {
  harp_ns ping_age_ns = m->ping_ns ? now - m->ping_ns : 0, silent_ns = unacknowledged_ns(m, now);
  if (now - since < limit) return STALL_WAITS;
  if (m->pong_ns > since && ping_age_ns < limit / 4) return STALL_BLOCKED;
  /* TCP's own timeout would show it as well, but it began with the PING. */
  if (silent_ns >= limit / 2) return STALL_DOWN;
  return STALL_WAITS;
}

/* Returns what carries the engine's data. */
static const char *carrier_of(const struct harp_engine *e) {
  return !e->tcp || !e->tcp->has_paths ? "UDP" : e->tcp->is_alone ? "TCP" : "UDP or TCP";
}

static void fail_stalled(struct harp_peer *peer, enum stall_verdict verdict, harp_ns since, harp_ns now) {
  const char *name = peer->engine->name, *carrier = carrier_of(peer->engine);
  unsigned long long seconds = (now - since) / HARP_SEC(1);
  if (verdict == STALL_BLOCKED)
    harp_peer_fail(
        peer, HARP_ERR_REMOTE, now,
        "nothing sent from %s to %s by %s was acknowledged for %llu s, though its process answers on the "
        "control connection: is %s allowed between the hosts?",
        name, peer->name, carrier, seconds, carrier);
  else
    harp_peer_fail(
        peer, HARP_ERR_REMOTE, now,
        "lost %s: neither its control connection nor %s has brought anything to %s for %llu s: the "
        "host or the network in between is down",
        peer->name, carrier, name, seconds);
  harp_monitor_leave(peer);
}

/* Sends the peer's process a PING; logs once that it does not answer while its kernel does. */
static void ping_stalled(struct harp_peer *peer, harp_ns limit, harp_ns now) {
  struct harp_monitor *m = &peer->monitor;
  if (!m->ping_ns) {
    if (now - m->pong_ns >= limit / 8)
      harp_monitor_ping(peer, now); /* one that is dropped: at the next look */
    return;
  }
  if (now - m->ping_ns < limit || m->logged_paused || harp_monitor_is_unacknowledged(m)) return;
  m->logged_paused = true;
  HARP_INFO_LIMITED(
      &peer->log, now,
      "%s has not answered for %llu s, but its kernel has: the process is stopped or lacks a core; "
      "waiting for it",
      peer->name, (unsigned long long)((now - m->ping_ns) / HARP_SEC(1)));
}

static void check_stall(struct harp_peer *peer, harp_ns now) {
  struct harp_monitor *m = &peer->monitor;
  harp_ns since = harp_sender_stalled_since_ns(peer->session.sender),
          limit = peer->engine->instance.peer_timeout_ns;
  if (!since || m->fd < 0 || m->gone || m->lost || now - since < limit / 4) return;
  enum stall_verdict verdict = judge_stall(m, since, limit, now);
  if (verdict == STALL_WAITS)
    ping_stalled(peer, limit, now);
  else
    fail_stalled(peer, verdict, since, now);
}

/* A message that did not fit is lost, and the peer may wait for it: no stream can be relied on any more. */
static void fail_overflowed(struct harp_peer *peer, harp_ns now) {
  harp_peer_fail(
      peer, HARP_ERR_REMOTE, now,
      "lost %s: it does not read its control connection to %s, and no more messages fit there: its "
      "process is stopped, lacks a core or misbehaves",
      peer->name, peer->engine->name);
  harp_monitor_leave(peer);
}

/* Fails a peer that has acknowledged what was never sent. */
static void fail_false(struct harp_peer *peer, harp_ns now) {
  harp_peer_fail(
      peer, HARP_ERR_REMOTE, now,
      "%s acknowledged packets that %s never sent: its software is faulty, or claims more than its share of "
      "the network",
      peer->name, peer->engine->name);
  harp_monitor_leave(peer);
}

void harp_liveness_on_visit(struct harp_peer *peer, harp_ns now) {
  check_stall(peer, now);
  if (harp_unlikely(peer->is_false)) fail_false(peer, now);
  if (harp_unlikely(peer->monitor.overflowed)) fail_overflowed(peer, now);
}
