/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/answers.h"

#include <stdlib.h>

#include "base/assert.h"
#include "engine/engine.h"

bool harp_answers_is_same(const struct harp_connect_name *a, const struct harp_connect_name *b) {
  return a->engine_id == b->engine_id && a->first_line == b->first_line &&
         a->first_message == b->first_message;
}

struct harp_answer *harp_answers_find(const struct harp_answers *as, const struct harp_connect_name *name) {
  struct harp_answer *a = as->first;
  while (a && !harp_answers_is_same(&a->name, name)) a = a->next;
  return a;
}

void harp_answers_remove(struct harp_answers *as, struct harp_answer *a) {
  struct harp_answer **at = &as->first;
  while (*at != a) {
    HARP_ASSERT(*at); /* an entry is in its list */
    at = &(*at)->next;
  }
  *at = a->next;
  as->count--;
  if (a->link) a->link->answer = NULL;
  free(a);
}

static void remove_oldest(struct harp_answers *as) {
  struct harp_answer *a = as->first;
  while (a->next) a = a->next;
  harp_answers_remove(as, a);
}

struct harp_answer *harp_answers_add(struct harp_answers *as, const struct harp_connect_name *name) {
  HARP_ASSERT(as->count <= HARP_ANSWERS_MAX && !harp_answers_find(as, name));
  struct harp_answer *a = calloc(1, sizeof *a);
  if (!a) return NULL;
  if (as->count == HARP_ANSWERS_MAX) remove_oldest(as);
  a->name = *name;
  a->next = as->first;
  as->first = a;
  as->count++;
  return a;
}

void harp_answer_set(struct harp_answer *a, const struct harp_connect_name *name, struct harp_link *link,
                     const struct harp_peer *peer, bool awaits_ping) {
  HARP_ASSERT(harp_answers_is_same(&a->name, name) && (!a->link || a->link == link));
  a->name = *name;
  a->link = link;
  if (link) link->answer = a;
  a->token = peer->session.keys.rx_token;
  a->awaits_ping = awaits_ping;
  a->until_ns = HARP_NEVER;
}

/* Returns the peer over which an answer went; NULL: it has ended. */
static const struct harp_peer *peer_of(const struct harp_answer *a, const struct harp_engine *e) {
  const struct harp_peer *peer = harp_engine_peer_at(e, (uint32_t)(a->token & (HARP_ENGINE_PEERS_MAX - 1)));
  return peer && peer->session.keys.rx_token == a->token ? peer : NULL;
}

/* Returns whether the other side has the answer. One that has left in order has nothing to ask. */
static bool is_known(const struct harp_answer *a, const struct harp_peer *peer) {
  if (peer->session.state != HARP_SESSION_OPEN) return false;
  if (peer->monitor.final_received) return true;
  return (!a->awaits_ping || peer->monitor.pong_sent) && harp_monitor_has_delivered(&peer->monitor);
}

/* Returns whether the other side may still wait for the answer over this peer. */
static bool is_awaited_over(const struct harp_peer *peer) {
  return peer && peer->session.state == HARP_SESSION_OPEN && !peer->monitor.gone && !peer->monitor.lost;
}

/* Returns whether nobody will ask for it. */
static bool is_over(struct harp_answer *a, const struct harp_engine *e, harp_ns now) {
  const struct harp_peer *peer = peer_of(a, e);
  if (peer && is_known(a, peer)) return true;
  if (a->until_ns == HARP_NEVER && !is_awaited_over(peer))
    a->until_ns = now + HARP_ANSWER_TIMEOUTS * e->instance.peer_timeout_ns;
  return now >= a->until_ns;
}

void harp_answers_on_time(struct harp_answers *as, const struct harp_engine *e, harp_ns now) {
  for (struct harp_answer *a = as->first, *next; a; a = next) {
    next = a->next;
    if (is_over(a, e, now)) harp_answers_remove(as, a);
  }
}

void harp_answers_clear(struct harp_answers *as) {
  while (as->first) harp_answers_remove(as, as->first);
}
