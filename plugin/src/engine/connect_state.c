/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/connect_state.h"

#include "engine/engine.h"

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

void harp_connects_on_opened(struct harp_peer *peer, const struct harp_opened *opened) {
  struct harp_connect *c = peer->connects;
  while (c && c->link->tx->id != opened->stream) c = c->next_of_peer;
  if (!c) return; /* given up meanwhile */
  HARP_ASSERT(c->peer == peer);
  harp_connect_leave_peer(c);
  c->is_open = !opened->refusal;
  c->refusal = opened->refusal;
}

void harp_connects_forget(struct harp_peer *peer) {
  while (peer->connects) harp_connect_leave_peer(peer->connects);
}
