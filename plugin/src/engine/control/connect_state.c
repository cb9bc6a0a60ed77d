/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/connect_state.h"

#include "base/assert.h"
#include "engine/engine.h"

#define BIT(state) (1u << HARP_CONNECT_##state)

/* The states that may follow each state. */
static const uint32_t followers[HARP_CONNECT_STATES] = {
    [HARP_CONNECT_WAITING] = BIT(DIALING) | BIT(REQUESTED),
    [HARP_CONNECT_DIALING] = BIT(HANDSHAKE) | BIT(WAITING),
    [HARP_CONNECT_HANDSHAKE] = BIT(CONFIRMING) | BIT(YIELDED) | BIT(WAITING),
    [HARP_CONNECT_YIELDED] = BIT(WAITING),
    [HARP_CONNECT_CONFIRMING] = BIT(OPENED) | BIT(LOST),
    [HARP_CONNECT_REQUESTED] = BIT(OPENED) | BIT(REFUSED) | BIT(LOST),
    [HARP_CONNECT_OPENED] = BIT(DONE),
    [HARP_CONNECT_REFUSED] = BIT(WAITING),
    [HARP_CONNECT_LOST] = BIT(WAITING),
};

/* Attempts that do not reach the peer are not recorded: they are many, and would overwrite what is rare. */
static void record_transition(const struct harp_connect *c, enum harp_connect_state from,
                              enum harp_connect_state to, harp_ns now) {
  if (from <= HARP_CONNECT_DIALING && to <= HARP_CONNECT_DIALING) return;
  harp_recorder_trace(
      c->engine, now,
      (struct harp_trace_entry){
          .event = HARP_EVENT_CONNECT_STATE, .number = c->contact.engine_id, .a = from, .b = to});
}

void harp_connect_enter(struct harp_connect *c, enum harp_connect_state to, harp_ns now) {
  enum harp_connect_state from = harp_connect_state(c);
  HARP_ASSERT(followers[from] >> to & 1);
  HARP_ASSERT(to != HARP_CONNECT_OPENED || c->link->peer->session.state == HARP_SESSION_OPEN);
  HARP_ASSERT(!c->peer == (to != HARP_CONNECT_REQUESTED));
  if (harp_connect_has_met(c) && now > c->since_ns) c->deadline_ns += now - c->since_ns;
  record_transition(c, from, to, now);
  c->since_ns = now;
  atomic_store_explicit(&c->state, to, memory_order_relaxed);
}

void harp_connect_await_answer(struct harp_connect *c, struct harp_peer *peer, harp_ns now) {
  HARP_ASSERT(!c->peer && c->link && c->link->peer == peer);
  c->peer = peer;
  c->next_of_peer = peer->connects;
  peer->connects = c;
  harp_connect_enter(c, HARP_CONNECT_REQUESTED, now);
}

void harp_connect_leave_peer(struct harp_connect *c) {
  if (!c->peer) return;
  struct harp_connect **at = &c->peer->connects;
  while (*at != c) {
    HARP_ASSERT(*at); /* a connect that waits for a peer is in its list */
    at = &(*at)->next_of_peer;
  }
  *at = c->next_of_peer;
  c->peer = NULL;
}

void harp_connect_lose(struct harp_connect *c, harp_ns now) {
  harp_connect_leave_peer(c);
  harp_connect_enter(c, HARP_CONNECT_LOST, now);
}

void harp_connects_on_opened(struct harp_peer *peer, const struct harp_opened *opened, harp_ns now) {
  struct harp_connect *c = peer->connects;
  while (c && c->link->tx->id != opened->stream) c = c->next_of_peer;
  if (!c) return; /* given up meanwhile */
  HARP_ASSERT(c->peer == peer);
  if (!harp_peer_is_usable(peer)) { /* it has said FINAL before */
    harp_connect_lose(c, now);
    return;
  }
  harp_connect_leave_peer(c);
  c->refusal = opened->refusal;
  harp_connect_enter(c, opened->refusal ? HARP_CONNECT_REFUSED : HARP_CONNECT_OPENED, now);
}

void harp_connects_on_silence(struct harp_peer *peer, harp_ns now) {
  while (peer->connects) harp_connect_lose(peer->connects, now);
}
