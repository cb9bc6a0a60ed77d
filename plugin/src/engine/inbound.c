/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/inbound.h"

#include "base/assert.h"
#include "engine/engine.h"

/* The kernel grants a socket 2 x buffer_bytes. A quarter of that may stay booked for packets that were read
 * (udp_rmem_release), and a packet takes up to 5/4 of what the window counts for it. */
enum { WINDOW_NUMERATOR = 6, WINDOW_DENOMINATOR = 5 };

static uint32_t buffer_window_bytes(const struct harp_engine *e) {
  uint64_t bytes = (uint64_t)e->io->info.buffer_bytes * WINDOW_NUMERATOR / WINDOW_DENOMINATOR;
  return (uint32_t)HARP_MIN(bytes, HARP_WINDOW_MAX_BYTES + 0u);
}

/* Returns whether no other peer's packets come to the buffers that the peer's come to. */
static bool has_own_buffers(const struct harp_peer *peer) {
  struct harp_io *io = peer->engine->io;
  for (unsigned i = 0; i < peer->route_count; i++) /* tcp paths have none */
    if (!peer->routes[i] || !io->ops->route_has_own_buffer(io, peer->routes[i])) return false;
  return true;
}

/* Peers whose packets come to a shared buffer: those that sent lately, and those that may begin to. */
struct sharers {
  uint32_t senders, idle;
};

static struct sharers count_sharers(const struct harp_engine *e) {
  struct sharers n = {0};
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (const struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));) {
    if (has_own_buffers(peer)) continue;
    n.senders += peer->sends;
    n.idle += !peer->sends;
  }
  return n;
}

/* Returns a peer's part of a buffer: each sender has one, and the idle peers have one together, since all
 * may begin at once. */
static uint32_t part_bytes(uint32_t whole, struct sharers n, bool sends) {
  HARP_ASSERT(sends ? n.senders : n.idle); /* the peer itself was counted */
  uint32_t part = whole / (n.senders + (n.idle > 0));
  return sends ? part : part / n.idle;
}

uint32_t harp_inbound_window_bytes(const struct harp_engine *e) {
  struct sharers n = count_sharers(e);
  n.idle++;
  return part_bytes(buffer_window_bytes(e), n, false);
}

static void share_out(struct harp_engine *e) {
  uint32_t whole = buffer_window_bytes(e);
  struct sharers n = count_sharers(e);
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (const struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));)
    harp_receiver_set_window(peer->session.receiver,
                             has_own_buffers(peer) ? whole : part_bytes(whole, n, peer->sends));
}

void harp_inbound_on_data(struct harp_peer *peer, harp_ns now) {
  peer->data_ns = now;
  if (harp_likely(peer->sends)) return;
  peer->sends = true;
  share_out(peer->engine);
}

void harp_inbound_on_time(struct harp_engine *e, harp_ns now) {
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));)
    if (now - peer->data_ns >= HARP_INBOUND_LATELY_NS) peer->sends = false;
  share_out(e);
}
