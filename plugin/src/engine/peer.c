/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/peer.h"

#include "engine/engine.h"

void harp_peer_touch(struct harp_peer *peer) {
  peer->deadline_ns = 0;
  harp_engine_activate(peer->engine, peer);
}

bool harp_peer_is_usable(const struct harp_peer *peer) {
  const struct harp_monitor *m = &peer->monitor;
  return peer->session.state == HARP_SESSION_OPEN && harp_monitor_takes_messages(m) && !m->final_received;
}

struct harp_peer *harp_peer_find(struct harp_engine *e, const struct harp_contact *contact,
                                 int traffic_class) {
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));) {
    if (peer->engine_id != contact->engine_id || peer->traffic_class != traffic_class) continue;
    if (!harp_contact_has(contact, &peer->engine_addr)) continue;
    if (harp_peer_is_usable(peer)) return peer;
  }
  return NULL;
}

bool harp_peer_has_unconfirmed(const struct harp_engine *e, uint32_t engine_id, int traffic_class) {
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (const struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));) {
    if (peer->is_confirmed || peer->engine_id != engine_id) continue;
    if (peer->traffic_class == traffic_class && harp_peer_is_usable(peer)) return true;
  }
  return false;
}
