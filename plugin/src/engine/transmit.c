/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/transmit.h"

#include "base/assert.h"
#include "engine/control/liveness.h"
#include "engine/engine.h"
#include "engine/superframe.h"

enum {
  TX_BUDGET = 8,      /* superframes and acknowledgements a pass; then no other peer is visited */
  TX_PEER_BUDGET = 4, /* superframes for one peer */
  TX_RECORD_COST = 4, /* what a record of a tcp path counts as */
};

/* Between two looks whether a tcp path can repeat an acknowledgement. */
#define REPEAT_NS HARP_MS(1)

/* Returns whether a path is a kernel TCP connection: those come after the paths with routes. */
static bool is_tcp(const struct harp_peer *peer, unsigned path) {
  HARP_ASSERT(path < peer->path_count);
  return harp_unlikely(path >= peer->route_count);
}

/* Returns the path over which an acknowledgement of a path goes. It never waits behind records where there is
 * another way: its own path, or, where that is a tcp path with a queue, the datagrams beside it, any
 * datagrams, and at last any tcp path that takes something. -1: none takes it before a tcp path is ready. */
static int path_of_ack(struct harp_peer *peer, unsigned path) {
  const struct harp_sender *s = peer->session.sender;
  if (!is_tcp(peer, path) || harp_tcp_is_clear(peer, path)) return (int)path;
  unsigned beside = harp_tcp_beside(peer, path);
  if (beside != path && harp_sender_is_up(s, beside)) return (int)beside;
  for (unsigned i = 0; i < peer->route_count; i++)
    if (harp_sender_is_up(s, i)) return (int)i;
  if (harp_tcp_ready(peer, path)) return (int)path;
  for (unsigned i = peer->route_count; i < peer->path_count; i++)
    if (harp_sender_is_up(s, i) && harp_tcp_ready(peer, i)) return (int)i;
  return -1;
}

/* Has acknowledgements repeated by their own tcp paths which went by datagrams: these may be lost. Returns
 * when to look again for those paths on which they would wait. */
static harp_ns repeat_acks(struct harp_peer *peer, harp_ns now) {
  struct harp_receiver *r = peer->session.receiver;
  harp_ns at = HARP_NEVER;
  HARP_EACH_BIT (i, harp_receiver_elsewhere(r)) {
    if (harp_tcp_is_clear(peer, (unsigned)i))
      harp_receiver_repeat_ack(r, (unsigned)i, now);
    else if (harp_tcp_ready(peer, (unsigned)i))
      at = now + REPEAT_NS;
  }
  return at;
}

/* Sends the acknowledgements that are due, at most HARP_TRANSMIT_PEER_ACKS. Returns how many. */
static unsigned transmit_acks(struct harp_peer *peer, harp_ns now) {
  struct harp_receiver *r = peer->session.receiver;
  uint64_t held = 0; /* paths whose acknowledgements nothing takes now */
  unsigned sent = 0;
  int path;
  /* NCCL has nothing more to wait for and may not call again for long: the peer must not wait for that. */
  if (!peer->engine->outstanding) harp_receiver_ack_requested(r, now);
  peer->deadline_ns = HARP_MIN(peer->deadline_ns, repeat_acks(peer, now));
  while (sent < HARP_TRANSMIT_PEER_ACKS && (path = harp_receiver_next_ack(r, held, now)) >= 0) {
    int over = path_of_ack(peer, (unsigned)path);
    if (over < 0) {
      held |= 1ull << path;
      continue;
    }
    if (is_tcp(peer, (unsigned)over))
      harp_tcp_send_ack(peer, (unsigned)over, (unsigned)path, now);
    else if (!harp_superframe_send_ack(peer, (unsigned)over, (unsigned)path, now))
      break;
    if (over != path) harp_receiver_on_ack_elsewhere(r, (unsigned)path);
    sent++;
  }
  peer->deadline_ns = HARP_MIN(peer->deadline_ns, harp_receiver_deadline_ns(r, held));
  return sent;
}

/* Sends at most `budget` superframes of data. */
static unsigned transmit_data(struct harp_peer *peer, unsigned budget, harp_ns now) {
  unsigned sent = 0;
  HARP_ASSERT(budget && budget <= TX_PEER_BUDGET);
  bool is_measured = harp_sender_is_measured(peer->session.sender);
  harp_ns from_ns = is_measured ? peer->engine->clock() : 0;
  peer->deadline_ns = now; /* there is more than fits this pass, or no frame for it */
  while (sent < budget) {
    struct harp_tx_choice choice = harp_sender_choose(peer->session.sender, now);
    if (choice.kind == HARP_TX_NOTHING) {
      peer->deadline_ns = choice.deadline_ns;
      break;
    }
    if (is_tcp(peer, choice.path)) {
      harp_tcp_send(peer, &choice, now);
      sent += TX_RECORD_COST;
    } else {
      if (!harp_superframe_send(peer, &choice, now)) break;
      sent++;
    }
  }
  if (is_measured && sent) harp_sender_on_cpu_time(peer->session.sender, peer->engine->clock() - from_ns);
  return sent;
}

/* Runs timers and sends what is due; notes when the peer is to be visited again. */
static unsigned transmit_peer(struct harp_peer *peer, unsigned budget, harp_ns now) {
  peer->deadline_ns = HARP_NEVER;
  if (peer->session.state != HARP_SESSION_OPEN) return 0;
  if (peer->tcp_count) harp_tcp_report_progress(peer, now);
  harp_session_on_timeout(&peer->session, now);
  harp_ns review_ns = peer->tcp_count ? harp_tcp_on_time(peer, now) : HARP_NEVER;
  unsigned sent = transmit_data(peer, budget, now);
  sent += transmit_acks(peer, now);
  harp_liveness_on_visit(peer, now);
  peer->deadline_ns = HARP_MIN(peer->deadline_ns, review_ns);
  return sent;
}

/* Visits the active peers in turn, each at most once, while the pass's budget lasts: those that it does not
 * reach come first in the next pass. Those with nothing to wait for leave the list. */
unsigned harp_transmit_due(struct harp_engine *e, harp_ns now) {
  unsigned sent = 0;
  struct harp_peer *peer = e->active_first, *last = e->active_last;
  e->active_first = e->active_last = NULL;
  while (peer && sent < TX_BUDGET) {
    struct harp_peer *next = peer->next_active;
    HARP_ASSERT(peer->active && peer->engine == e);
    peer->active = false;
    if (peer->deadline_ns <= now)
      sent += transmit_peer(peer, HARP_MIN(TX_BUDGET - sent, TX_PEER_BUDGET + 0u), now);
    if (peer->deadline_ns != HARP_NEVER) harp_engine_activate(e, peer);
    peer = next;
  }
  if (peer) { /* the loop ends before this */
    last->next_active = e->active_first;
    if (!e->active_last) e->active_last = last;
    e->active_first = peer;
  }
  e->io->ops->tx_flush(e->io);
  return sent;
}
