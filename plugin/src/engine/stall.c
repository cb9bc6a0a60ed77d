/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/stall.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/seq.h"
#include "engine/address.h"
#include "engine/dial.h"
#include "engine/engine.h"

enum {
  LOOK_SLOTS = 512, /* of links, in one pass */
  TEXT_BYTES = 320,
};
#define ROUND_NS   HARP_SEC(1)
#define ANSWER_NS  HARP_SEC(2) /* a process that runs answers within this */
#define FORGET_NS  HARP_SEC(3) /* a stall that was not seen again for so long is over */
#define NO_PASS_NS HARP_SEC(3) /* a round that is so late means that nobody made a pass */

const char *harp_stall_name(enum harp_stall_reason reason) {
  static const char *const names[] = {
      [HARP_STALL_NONE] = "",
      [HARP_STALL_NO_RECEIVE] = "no receive at the peer",
      [HARP_STALL_SENDS_NOTHING] = "peer sends nothing",
      [HARP_STALL_STOPPED] = "peer stopped",
      [HARP_STALL_UNREACHABLE] = "peer unreachable",
      [HARP_STALL_NOT_THROUGH] = "no packet gets through",
  };
  HARP_ASSERT((unsigned)reason < HARP_STALL_REASONS);
  return names[reason];
}

enum harp_stall_reason harp_stall_of_peer(const struct harp_peer *peer, harp_ns now) {
  return peer->stall.seen_ns + FORGET_NS > now ? peer->stall.reason : HARP_STALL_NONE;
}

/* ---- finding the reason ---- */

/* An interface of which a path carries nothing; -1: there is none. */
static int silent_eni(const struct harp_peer *peer) {
  const struct harp_sender *s = peer->session.sender;
  for (unsigned i = 0; i < s->path_count; i++)
    if (s->paths[i].state != HARP_PATH_DORMANT && harp_path_silent(&s->paths[i]))
      return s->paths[i].local_eni;
  return -1;
}

/* Whether the peer's process owes us an answer for longer than one that runs takes. */
static bool owes_answer(const struct harp_peer *peer, harp_ns now) {
  return peer->monitor.ping_ns && now - peer->monitor.ping_ns >= ANSWER_NS;
}

static enum harp_stall_reason reason_of(const struct harp_link *link, harp_ns now) {
  const struct harp_peer *peer = link->peer;
  if (peer->monitor.lost) return HARP_STALL_UNREACHABLE;
  if (owes_answer(peer, now))
    return harp_monitor_is_unacknowledged(peer) ? HARP_STALL_UNREACHABLE : HARP_STALL_STOPPED;
  if (harp_sender_stalled_since_ns(peer->session.sender)) return HARP_STALL_NOT_THROUGH;
  if (link->rx) return HARP_STALL_SENDS_NOTHING;
  return harp_tx_stream_lacks_credit(link->tx) ? HARP_STALL_NO_RECEIVE : HARP_STALL_NOT_THROUGH;
}

/* ---- saying it ---- */

/* Says what is known and what to try. */
static const char *advice(const struct harp_link *link, enum harp_stall_reason reason, char *text,
                          size_t bytes) {
  static const char *const plain[] = {
      [HARP_STALL_NO_RECEIVE] =
          "it has posted no receive: its rank has not come to this operation, or waits for "
          "another one; look what that rank does",
      [HARP_STALL_SENDS_NOTHING] =
          "its process answers, and nothing of what it is to send has come: its rank "
          "has not come to this operation, or waits itself; look what it says there",
      [HARP_STALL_STOPPED] =
          "its kernel answers but its process does not: it is stopped, in a debugger, or has no "
          "core; look at it there",
      [HARP_STALL_UNREACHABLE] =
          "nothing there answers: its host or the network in between is down; try ping",
  };
  int eni = link->peer->stall.eni;
  if (reason != HARP_STALL_NOT_THROUGH) return plain[reason];
  snprintf(
      text, bytes,
      "its process answers, but no packet from %s is acknowledged: look for a firewall or security group "
      "between the hosts, and at that interface",
      eni < 0 ? link->engine->enis_name : link->engine->enis[eni].ifname);
  return text;
}

static void tell(const struct harp_link *link, harp_ns now) {
  char text[TEXT_BYTES];
  const struct harp_peer *peer = link->peer;
  HARP_INFO("%s: NCCL has waited for %llu s for %s (%u requests): %s", link->engine->name,
            (unsigned long long)((now - peer->stall.since_ns) / HARP_SEC(1)), peer->name,
            link->outstanding - link->copies_outstanding,
            advice(link, peer->stall.reason, text, sizeof text));
}

static void note(struct harp_link *link, harp_ns now) {
  struct harp_peer_stall *s = &link->peer->stall;
  if (harp_stall_of_peer(link->peer, now) == HARP_STALL_NONE) {
    s->count++;
    s->told_ns = 0;
    s->since_ns = link->stall.since_ns;
  }
  if (s->seen_ns == now && s->reason) return; /* one link of it stands for all */
  s->seen_ns = now;
  s->since_ns = HARP_MIN(s->since_ns, link->stall.since_ns);
  s->reason = reason_of(link, now);
  s->eni = s->reason == HARP_STALL_NOT_THROUGH ? silent_eni(link->peer) : -1;
  if (s->told_ns && now - s->told_ns < HARP_STALL_AGAIN_NS) return;
  s->told_ns = now;
  tell(link, now);
}

void harp_stall_review_dial(struct harp_dial *d, harp_ns now) {
  char address[HARP_ADDRESS_TEXT_BYTES];
  if (!d->begun_ns) d->begun_ns = d->told_ns = now;
  harp_ns quiet_ns = d->told_ns == d->begun_ns ? HARP_STALL_NS : HARP_STALL_AGAIN_NS;
  if (harp_likely(now - d->told_ns < quiet_ns)) return;
  d->told_ns = now;
  HARP_INFO("%s: a connect of NCCL has waited for %llu s for %s: %s", d->engine->name,
            (unsigned long long)((now - d->begun_ns) / HARP_SEC(1)), harp_address_text(&d->to, address),
            d->link || d->connected
                ? "its process accepts connections and has not answered: it is stopped, or its "
                  "rank does not accept yet; look what it does"
            : d->is_refused_busy ? "too many wait there for their accept: its rank does not accept yet"
            : d->last_errno      ? strerror(d->last_errno)
                                 : "nothing there answers: try ping, and look for a firewall that drops TCP");
}

/* ---- rounds ---- */

/* A number that changes with all that moves on a link. */
static uint64_t progress_of(const struct harp_link *link) {
  uint32_t lines = link->tx ? link->tx->delivered + link->tx->ahead : link->rx->delivered + link->rx->ahead;
  return (link->messages << 32) + lines;
}

static void review(struct harp_link *link, harp_ns awake_ns, harp_ns now) {
  struct harp_link_stall *s = &link->stall;
  if (!link->is_open || link->outstanding == link->copies_outstanding) {
    s->since_ns = 0;
    return;
  }
  uint64_t progress = progress_of(link);
  if (!s->since_ns || progress != s->progress || s->since_ns < awake_ns) {
    s->since_ns = now;
    s->progress = progress;
    return;
  }
  harp_ns waited_ns = now - s->since_ns;
  struct harp_monitor *m = &link->peer->monitor;
  if (waited_ns >= HARP_STALL_ASK_NS && !m->ping_ns && m->fd >= 0 && !m->gone && !m->lost &&
      now - m->pong_ns >= ANSWER_NS)
    harp_monitor_ask(link->peer, now);
  if (waited_ns >= HARP_STALL_NS) note(link, now);
}

/* Nobody has made a pass for long: what waited did not wait for peers. */
static void wake_up(struct harp_engine *e, harp_ns late_ns, harp_ns now) {
  e->stalls.awake_ns = now;
  if (late_ns < HARP_STALL_NS || !e->outstanding) return;
  HARP_INFO("%s: this engine has had no pass for %llu s while NCCL waited for %u requests: the process was "
            "stopped, or its threads had no core; see its cpuset and what else runs there",
            e->name, (unsigned long long)(late_ns / HARP_SEC(1)), e->outstanding);
}

void harp_stalls_review(struct harp_engine *e, harp_ns now) {
  struct harp_stalls *s = &e->stalls;
  if (s->link_next >= HARP_ENGINE_LINKS_MAX || !s->round_ns) {
    if (now < s->round_ns) return;
    if (s->round_ns && now - s->round_ns >= NO_PASS_NS) wake_up(e, now - s->round_ns, now);
    s->round_ns = now + ROUND_NS;
    s->link_next = 0;
  }
  uint32_t end = HARP_MIN(s->link_next + LOOK_SLOTS, (uint32_t)HARP_ENGINE_LINKS_MAX);
  for (; s->link_next < end; s->link_next++)
    if (e->links[s->link_next]) review(e->links[s->link_next], s->awake_ns, now);
}
