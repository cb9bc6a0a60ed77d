/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch/stall.h"

#include <stdio.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/identity.h"
#include "base/log.h"
#include "base/seq.h"
#include "engine/control/connect.h"
#include "engine/control/listener.h"
#include "engine/engine.h"
#include "host/cpu.h"
#include "proto/path_report.h"

enum {
  LOOK_SLOTS = 512, /* the most links looked at in one pass */
  TEXT_BYTES = 320,
};

/* Tenths of the stall time. */
enum {
  ROUND = 1,
  ANSWER = 2,  /* a process that runs answers within this */
  FORGET = 3,  /* a stall that was not seen again for so long is over */
  NO_PASS = 3, /* a round that is so late means that nobody made a pass */
  PING = 7,    /* a PING was sent to the peer by then */
  STALL = 10,
  AGAIN = 30,
};

static harp_ns tenths_ns(const struct harp_engine *e, unsigned tenths) {
  return e->instance.stall_ns / 10 * tenths;
}

static unsigned long long seconds_of(harp_ns ns) {
  return ns / HARP_SEC(1);
}

const char *harp_stall_name(enum harp_stall_reason reason) {
  static const char *const names[] = {
      [HARP_STALL_NONE] = "",
      [HARP_STALL_NO_RECEIVE] = "no receive at the peer",
      [HARP_STALL_SENDS_NOTHING] = "peer sends nothing",
      [HARP_STALL_STOPPED] = "peer stopped",
      [HARP_STALL_UNREACHABLE] = "peer unreachable",
      [HARP_STALL_NOT_THROUGH] = "no packet gets through",
      [HARP_STALL_NO_CORE] = "engine lacks a core",
  };
  HARP_ASSERT((unsigned)reason < HARP_STALL_REASONS);
  return names[reason];
}

static bool is_stalled(const struct harp_peer *peer, harp_ns now) {
  return peer->stall.reason && peer->stall.seen_ns + tenths_ns(peer->engine, FORGET) > now;
}

static bool lacks_core(const struct harp_engine *e, harp_ns now) {
  return e->stalls.core.seen_ns && e->stalls.core.seen_ns + tenths_ns(e, FORGET) > now;
}

enum harp_stall_reason harp_stall_of_peer(const struct harp_peer *peer, harp_ns now) {
  if (lacks_core(peer->engine, now) && peer->outstanding) return HARP_STALL_NO_CORE;
  return is_stalled(peer, now) ? peer->stall.reason : HARP_STALL_NONE;
}

harp_ns harp_stall_since_ns(const struct harp_peer *peer, enum harp_stall_reason reason) {
  return reason == HARP_STALL_NO_CORE ? peer->engine->stalls.core.since_ns : peer->stall.since_ns;
}

/* ---- finding the reason ---- */

/* Returns whether a path in use carries nothing. */
static bool carries_nothing(const struct harp_path_report *p) {
  return p->state != HARP_PATH_DORMANT && p->is_silent;
}

/* An interface of which a path carries nothing; -1: there is none. */
static int silent_eni(const struct harp_peer *peer) {
  for (unsigned i = 0; i < peer->path_count; i++) {
    struct harp_path_report p = harp_path_report_of(&peer->session, i);
    if (carries_nothing(&p)) return p.local_eni;
  }
  return -1;
}

/* Returns what does not get through. */
static const char *silent_carrier(const struct harp_peer *peer) {
  bool udp = false, tcp = false;
  for (unsigned i = 0; i < peer->path_count; i++) {
    struct harp_path_report p = harp_path_report_of(&peer->session, i);
    if (carries_nothing(&p)) *(p.is_tcp ? &tcp : &udp) = true;
  }
  return udp && tcp ? "UDP and TCP" : tcp ? "TCP" : "UDP";
}

/* Returns whether the peer's process owes us an answer for longer than one that runs takes. */
static bool owes_answer(const struct harp_peer *peer, harp_ns now) {
  return peer->monitor.ping_ns && now - peer->monitor.ping_ns >= tenths_ns(peer->engine, ANSWER);
}

static enum harp_stall_reason reason_of(const struct harp_link *link, harp_ns now) {
  const struct harp_peer *peer = link->peer;
  if (peer->monitor.lost) return HARP_STALL_UNREACHABLE;
  if (owes_answer(peer, now))
    return harp_monitor_is_unacknowledged(&peer->monitor) ? HARP_STALL_UNREACHABLE : HARP_STALL_STOPPED;
  if (harp_sender_stalled_since_ns(peer->session.sender)) return HARP_STALL_NOT_THROUGH;
  if (link->rx) return HARP_STALL_SENDS_NOTHING;
  return harp_tx_stream_lacks_credit(link->tx) ? HARP_STALL_NO_RECEIVE : HARP_STALL_NOT_THROUGH;
}

/* ---- logging it ---- */

/* Returns what is known and what to try. */
static const char *advice_of(const struct harp_link *link, enum harp_stall_reason reason, char *text,
                             size_t bytes) {
  static const char *const plain[] = {
      [HARP_STALL_NO_RECEIVE] =
          "it has posted no receive: its rank has not come to this operation, or waits for "
          "another one; see what that rank does",
      [HARP_STALL_SENDS_NOTHING] =
          "its process answers, and nothing of what it is to send has come: its rank "
          "has not come to this operation, or waits itself; see its log",
      [HARP_STALL_STOPPED] =
          "its kernel answers but its process does not: it is stopped, in a debugger, or lacks a "
          "core; look at it there",
      [HARP_STALL_UNREACHABLE] =
          "nothing there answers: its host or the network in between is down; try ping",
  };
  int eni = link->peer->stall.eni;
  if (reason != HARP_STALL_NOT_THROUGH) return plain[reason];
  const char *carrier = silent_carrier(link->peer);
  snprintf(text, bytes,
           "its process answers, but nothing sent by %s from %s is acknowledged: look for a firewall or "
           "security group that drops %s between the hosts, and at that interface",
           carrier, eni < 0 ? link->engine->enis_name : link->engine->enis[eni].ifname, carrier);
  return text;
}

static void log_stall(const struct harp_link *link, harp_ns now) {
  char text[TEXT_BYTES];
  const struct harp_peer *peer = link->peer;
  HARP_ASSERT(peer->stall.reason != HARP_STALL_NONE && peer->stall.since_ns <= now);
  HARP_INFO("%s: %s has waited for %llu s for %s (%u requests): %s", link->engine->name, harp_user_name(),
            seconds_of(now - peer->stall.since_ns), peer->name, link->outstanding - link->copies_outstanding,
            advice_of(link, peer->stall.reason, text, sizeof text));
}

/* AF_XDP may lose what it sends, though the NIC says that it was sent: sends through sockets from now on. */
static void doubt_routes(const struct harp_peer *peer) {
  struct harp_io *io = peer->engine->io;
  bool sends_otherwise = false;
  for (unsigned i = 0; i < peer->route_count; i++)
    if (peer->routes[i] && io->ops->route_doubt(io, peer->routes[i])) sends_otherwise = true;
  if (sends_otherwise)
    HARP_INFO("%s: what AF_XDP sent to %s may be lost at the NIC; continuing with sockets to this peer",
              peer->engine->name, peer->name);
}

/* Learns that a link waits. Returns whether that was logged for the first time in this stall of its peer. */
static bool record_stall(struct harp_link *link, harp_ns now) {
  struct harp_peer_stall *s = &link->peer->stall;
  if (!is_stalled(link->peer, now)) {
    s->count++;
    s->logged_ns = 0;
    s->since_ns = link->stall.since_ns;
  }
  if (s->seen_ns == now && s->reason) return false; /* one link of it stands for all */
  s->seen_ns = now;
  s->since_ns = HARP_MIN(s->since_ns, link->stall.since_ns);
  s->reason = reason_of(link, now);
  bool is_of_network = s->reason == HARP_STALL_NOT_THROUGH || s->reason == HARP_STALL_UNREACHABLE;
  s->eni = is_of_network ? silent_eni(link->peer) : -1;
  if (lacks_core(link->engine, now)) return false; /* logged already, and not caused by the peer */
  if (s->logged_ns && now - s->logged_ns < tenths_ns(link->engine, AGAIN)) return false;
  bool is_first = !s->logged_ns;
  s->logged_ns = now;
  harp_recorder_trace_peer(link->peer, now,
                           (struct harp_trace_entry){.event = HARP_EVENT_STALL,
                                                     .a = s->reason,
                                                     .b = (uint32_t)((now - s->since_ns) / HARP_MS(1))});
  log_stall(link, now);
  if (is_first && s->reason == HARP_STALL_NOT_THROUGH) doubt_routes(link->peer);
  return is_first;
}

/* ---- connects and accepts ---- */

/* Returns whether it is to be logged now for what it waits. */
static bool is_due(struct harp_stall_wait *w, const struct harp_engine *e, harp_ns now) {
  if (!w->begun_ns) w->begun_ns = w->logged_ns = now;
  if (harp_likely(now - w->logged_ns < tenths_ns(e, w->logged_ns == w->begun_ns ? STALL : AGAIN)))
    return false;
  w->logged_ns = now;
  return true;
}

void harp_stall_log_connect(struct harp_connect *d, harp_ns now) {
  char addresses[HARP_CONTACT_TEXT_BYTES], why[HARP_LIMIT_TEXT_BYTES];
  if (!is_due(&d->wait, d->engine, now)) return;
  HARP_INFO("%s: a connect of %s has waited for %llu s for %s: %s", d->engine->name, harp_user_name(),
            seconds_of(now - d->wait.begun_ns), harp_contact_text(&d->contact, addresses),
            harp_connect_has_met(d)
                ? "its process accepts connections and has not answered: it is stopped, or its "
                  "rank does not accept yet; see what it does"
            : d->is_refused_busy ? "too many wait there for their accept: its rank does not accept yet"
            : d->last_errno      ? harp_limit_text(d->last_errno, why)
                                 : "nothing there answers: try ping, and look for a firewall that drops TCP");
}

/* Returns the pending peer whose handshake has been under way for longest; NULL: there is none. */
static const struct harp_pending_peer *oldest_pending(const struct harp_listener *l) {
  const struct harp_pending_peer *oldest = NULL;
  for (unsigned i = 0; i < l->place_count; i++) {
    const struct harp_pending_peer *p = l->pending[i];
    if (p->fd >= 0 && (!oldest || p->since_ns < oldest->since_ns)) oldest = p;
  }
  return oldest;
}

void harp_stall_log_accept(struct harp_listener *l, harp_ns now) {
  char here[HARP_ADDRESS_TEXT_BYTES], there[HARP_ADDRESS_TEXT_BYTES] = "";
  struct harp_engine *e = l->engine;
  if (!is_due(&l->wait, e, now)) return;
  harp_engine_lock(e);
  const struct harp_pending_peer *p = oldest_pending(l);
  if (p) harp_address_text(&p->peer_addr, there);
  harp_engine_unlock(e);
  struct sockaddr_storage a = {0};
  socklen_t n = sizeof a;
  getsockname(l->fd, (struct sockaddr *)&a, &n);
  HARP_INFO(
      "%s: an accept of %s has waited for %llu s for %s%s: %s", e->name, harp_user_name(),
      seconds_of(now - l->wait.begun_ns), p ? "a process at " : "anybody to connect to ",
      p ? there : harp_address_text(&a, here),
      p ? "it has connected and not finished the handshake: it is stopped, or a firewall drops what it sends"
        : "the rank that is to connect has not come to it, or a firewall drops TCP to this port; see "
          "that rank's log");
}

/* ---- rounds ---- */

/* A number that changes with all that moves on a link. */
static uint64_t progress_of(const struct harp_link *link) {
  uint32_t lines = link->tx ? link->tx->delivered + link->tx->ahead : link->rx->delivered + link->rx->ahead;
  return (link->messages << 32) + lines;
}

/* Returns whether its peer's stall was logged for the first time. */
static bool log_link_stall(struct harp_link *link, harp_ns awake_ns, harp_ns now) {
  struct harp_link_stall *s = &link->stall;
  HARP_ASSERT(link->copies_outstanding <= link->outstanding);
  if (!link->is_open || link->outstanding == link->copies_outstanding) {
    s->since_ns = 0;
    return false;
  }
  uint64_t progress = progress_of(link);
  if (!s->since_ns || progress != s->progress || s->since_ns < awake_ns) {
    s->since_ns = now;
    s->progress = progress;
    return false;
  }
  harp_ns waited_ns = now - s->since_ns;
  struct harp_monitor *m = &link->peer->monitor;
  if (waited_ns >= tenths_ns(link->engine, PING) && !m->ping_ns && m->fd >= 0 && !m->gone && !m->lost &&
      now - m->pong_ns >= tenths_ns(link->engine, ANSWER))
    harp_monitor_ping(link->peer, now);
  return waited_ns >= tenths_ns(link->engine, STALL) && record_stall(link, now);
}

/* Nobody has made a pass for long: what waited did not wait for peers. */
static void wake_up(struct harp_engine *e, harp_ns late_ns, harp_ns now) {
  e->stalls.awake_ns = now;
  harp_recorder_trace(
      e, now, (struct harp_trace_entry){.event = HARP_EVENT_NO_PASS, .b = (uint32_t)(late_ns / HARP_MS(1))});
  if (late_ns < tenths_ns(e, STALL) || !e->outstanding) return;
  HARP_INFO("%s: this engine has had no pass for %llu s while %s waited for %u requests: the process was "
            "stopped, or its threads lacked a core; see its cpuset and what else runs there",
            e->name, seconds_of(late_ns), harp_user_name(), e->outstanding);
}

/* ---- the engine's own thread ---- */

static void log_lack_of_core(struct harp_engine *e, harp_ns now) {
  char core[32] = "a core";
  if (e->core >= 0) snprintf(core, sizeof core, "core %d", e->core);
  HARP_INFO(
      "%s: of the last %llu s this engine's thread has waited for %s for %llu s: something else runs there, "
      "or a CPU quota (cpu.max) holds it back; look at that core, and at the cores of the other jobs",
      e->name, seconds_of(now - e->stalls.core.since_ns), core,
      seconds_of(e->stalls.core.delay_ns - e->stalls.core.since_delay_ns));
}

void harp_stalls_on_core_delay(struct harp_engine *e, harp_ns delay_ns, harp_ns now) {
  struct harp_stall_core *c = &e->stalls.core;
  bool is_waiting = c->looked_ns && 2 * (delay_ns - c->delay_ns) >= now - c->looked_ns;
  if (!is_waiting) {
    c->since_ns = c->seen_ns = 0;
  } else if (!c->since_ns) {
    c->since_ns = c->looked_ns;
    c->since_delay_ns = c->delay_ns;
    c->logged_ns = 0;
  }
  c->looked_ns = now;
  c->delay_ns = delay_ns;
  if (!c->since_ns || now - c->since_ns < tenths_ns(e, STALL)) return;
  c->seen_ns = now;
  if (c->logged_ns && now - c->logged_ns < tenths_ns(e, AGAIN)) return;
  c->logged_ns = now;
  log_lack_of_core(e, now);
}

/* Two threads that look at once may both log it. */
void harp_stall_watch_mt(struct harp_engine *e) {
  struct harp_stall_watch *w = &e->watch;
  if (!e->threaded) return;
  uint32_t turns = atomic_load_explicit(&e->turn_count, memory_order_relaxed);
  harp_ns now = e->clock(), since_ns = atomic_load_explicit(&w->since_ns, memory_order_relaxed);
  if (turns != atomic_load_explicit(&w->turns, memory_order_relaxed)) {
    atomic_store_explicit(&w->turns, turns, memory_order_relaxed);
    atomic_store_explicit(&w->since_ns, now, memory_order_relaxed);
    atomic_store_explicit(&w->logged_ns, 0, memory_order_relaxed);
    return;
  }
  harp_ns logged_ns = atomic_load_explicit(&w->logged_ns, memory_order_relaxed);
  if (now - since_ns < tenths_ns(e, STALL) || (logged_ns && now - logged_ns < tenths_ns(e, AGAIN))) return;
  atomic_store_explicit(&w->logged_ns, now, memory_order_relaxed);
  HARP_INFO("%s: %s waits, and this engine's thread has not run for %llu s: something else has its core "
            "(%d, -1: any), a CPU quota (cpu.max) holds it back, or it is stopped; look at thread %d",
            e->name, harp_user_name(), seconds_of(now - since_ns), e->core,
            (int)atomic_load_explicit(&e->thread_id, memory_order_relaxed));
}

/* ---- rounds of an engine ---- */

/* Begins the next round when it is due. Returns whether one is under way. */
static bool begin_round(struct harp_engine *e, harp_ns now) {
  struct harp_stalls *s = &e->stalls;
  harp_ns delay_ns;
  if (s->link_next < HARP_ENGINE_LINKS_MAX && s->round_ns) return true;
  if (now < s->round_ns) return false;
  if (s->round_ns && now - s->round_ns >= tenths_ns(e, NO_PASS)) wake_up(e, now - s->round_ns, now);
  if (e->threaded && !harp_cpu_delay_ns(&delay_ns)) harp_stalls_on_core_delay(e, delay_ns, now);
  s->round_ns = now + tenths_ns(e, ROUND);
  s->link_next = 0;
  return true;
}

struct harp_peer *harp_stalls_on_time(struct harp_engine *e, harp_ns now) {
  struct harp_stalls *s = &e->stalls;
  struct harp_peer *stalled = NULL;
  if (!begin_round(e, now)) return NULL;
  uint32_t end = HARP_MIN(s->link_next + LOOK_SLOTS, (uint32_t)HARP_ENGINE_LINKS_MAX);
  for (; s->link_next < end; s->link_next++) {
    struct harp_link *link = e->links[s->link_next];
    if (link && log_link_stall(link, s->awake_ns, now) && !stalled) stalled = link->peer;
  }
  return stalled;
}
