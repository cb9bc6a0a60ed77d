#include "engine/inbound.h"

#include "engine/engine.h"

/* The kernel grants a socket 2 x buffer_bytes. A quarter of that may stay booked for packets that were read
 * (udp_rmem_release), and a packet takes up to 5/4 of what the window counts for it. */
enum { WINDOW_NUMERATOR = 6, WINDOW_DENOMINATOR = 5 };

static uint32_t buffer_window_bytes(const struct harp_engine *e) {
  uint64_t bytes = (uint64_t)e->io->info.buffer_bytes * WINDOW_NUMERATOR / WINDOW_DENOMINATOR;
  return (uint32_t)HARP_MIN(bytes, HARP_WINDOW_MAX_BYTES + 0u);
}

static struct harp_peer *peer_at(const struct harp_engine *e, uint32_t slot) {
  struct harp_peer *peer = e->peers[slot];
  return peer == HARP_SLOT_RESERVED ? NULL : peer;
}

/* Whether no other peer's packets come to the buffers that the peer's come to. */
static bool is_alone(const struct harp_peer *peer) {
  struct harp_io *io = peer->engine->io;
  for (unsigned i = 0; i < peer->route_count; i++)
    if (!io->ops->route_is_alone(io, peer->routes[i])) return false;
  return true;
}

static uint32_t count_sharers(const struct harp_engine *e) {
  uint32_t count = 0;
  for (uint32_t slot = 0, seen = 0; slot < HARP_ENGINE_PEERS_MAX && seen < e->peer_count; slot++) {
    const struct harp_peer *peer = peer_at(e, slot);
    seen += e->peers[slot] != NULL;
    count += peer && peer->sends && !is_alone(peer);
  }
  return count;
}

uint32_t harp_inbound_window_bytes(const struct harp_engine *e) {
  return buffer_window_bytes(e) / (count_sharers(e) + 1);
}

static void share_out(struct harp_engine *e) {
  uint32_t whole = buffer_window_bytes(e), sharers = count_sharers(e);
  for (uint32_t slot = 0, seen = 0; slot < HARP_ENGINE_PEERS_MAX && seen < e->peer_count; slot++) {
    struct harp_peer *peer = peer_at(e, slot);
    seen += e->peers[slot] != NULL;
    if (!peer) continue;
    uint32_t parts = is_alone(peer) ? 1 : sharers + !peer->sends;
    harp_receiver_set_window(peer->session.receiver, whole / parts);
  }
}

void harp_inbound_on_data(struct harp_peer *peer, harp_ns now) {
  peer->data_ns = now;
  if (harp_likely(peer->sends)) return;
  peer->sends = true;
  share_out(peer->engine);
}

void harp_inbound_review(struct harp_engine *e, harp_ns now) {
  for (uint32_t slot = 0, seen = 0; slot < HARP_ENGINE_PEERS_MAX && seen < e->peer_count; slot++) {
    struct harp_peer *peer = peer_at(e, slot);
    seen += e->peers[slot] != NULL;
    if (peer && now - peer->data_ns >= HARP_INBOUND_LATELY_NS) peer->sends = false;
  }
  share_out(e);
}
