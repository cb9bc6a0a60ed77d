/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/crossing.h"

#include "engine/control/connect_state.h"
#include "engine/control/listener.h"

/* A connect waits so long for another's handshake with the same engine before it begins its own, and a
 * handshake wins over the other side's only if somebody drove it so lately. */
#define SHARE_NS HARP_MS(200)
/* A connect waits so long for a CONFIRM: a recorded HELLO must not delay connects for longer. */
#define CONFIRM_NS HARP_SEC(1)

static bool is_connecting(const struct harp_connect *c, uint32_t engine_id, int traffic_class) {
  return c->contact.engine_id == engine_id && c->traffic_class == traffic_class;
}

bool harp_crossing_is_ours(const struct harp_engine *e, uint32_t engine_id, int traffic_class, harp_ns now) {
  if (engine_id == e->token_prefix) return false;
  if (harp_peer_has_unconfirmed(e, engine_id, traffic_class)) return true;
  if (engine_id < e->token_prefix) return false;
  for (const struct harp_connect *c = e->connects; c; c = c->next) {
    if (harp_connect_state(c) != HARP_CONNECT_HANDSHAKE || !is_connecting(c, engine_id, traffic_class))
      continue;
    if (now - c->polled_ns < SHARE_NS && now - c->since_ns < e->instance.peer_timeout_ns / 2) return true;
  }
  return false;
}

void harp_crossing_yield(struct harp_engine *e, uint32_t engine_id, int traffic_class, harp_ns now) {
  if (engine_id == e->token_prefix) return;
  for (struct harp_connect *c = e->connects; c; c = c->next) {
    if (harp_connect_state(c) != HARP_CONNECT_HANDSHAKE || !is_connecting(c, engine_id, traffic_class))
      continue;
    harp_connect_enter(c, HARP_CONNECT_YIELDED, now);
    /* the fd is closed by the thread that polls the connect, perhaps never */
    shutdown(c->pending.fd, SHUT_RDWR);
  }
}

static bool has_welcomed(const struct harp_listener *l, uint32_t engine_id, harp_ns now) {
  for (unsigned i = 0; i < l->place_count; i++) {
    const struct harp_pending_peer *p = l->pending[i];
    if (p->fd < 0 || p->handshake.state != HARP_HANDSHAKE_WAIT_CONFIRM) continue;
    if (p->handshake.peer.token >> 32 == engine_id && now - p->since_ns < CONFIRM_NS) return true;
  }
  return false;
}

bool harp_crossing_is_awaited(const struct harp_connect *c, harp_ns now) {
  const struct harp_engine *e = c->engine;
  if (c->crossed_ns && now - c->crossed_ns < SHARE_NS) return true;
  for (const struct harp_connect *o = e->connects; o; o = o->next)
    if (o != c && harp_connect_is_in_attempt(o) && now - o->pending.since_ns < SHARE_NS &&
        is_connecting(o, c->contact.engine_id, c->traffic_class))
      return true;
  for (const struct harp_listener *l = e->listeners; l; l = l->next)
    if (l->pending_count && l->traffic_class == c->traffic_class &&
        has_welcomed(l, c->contact.engine_id, now))
      return true;
  return false;
}
