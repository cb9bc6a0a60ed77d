/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/receive.h"

#include "base/assert.h"
#include "engine/control/listener.h"
#include "engine/engine.h"
#include "engine/inbound.h"
#include "engine/peer_life.h"

enum {
  RX_BUDGET = 2, /* superframes of 64 KB (with single packets, batches): then acknowledge */
  RX_AGAIN_BYTES = 16384,
  RECORD_READS = 2, /* the reads of one tcp path in a pass */
};
#define PENDING_DRIVE_NS HARP_US(50)

_Static_assert(HARP_ENGINE_PEERS_MAX <= 65536, "the low 16 bits of a token name the slot");

/* ---- datagrams ---- */

static struct harp_peer *peer_of_token(struct harp_engine *e, uint64_t token, harp_ns now) {
  uint32_t slot = token & 0xffff;
  if (slot >= HARP_ENGINE_PEERS_MAX) return NULL;
  if (e->peers[slot] == HARP_SLOT_RESERVED && now >= e->pending_drive_ns) {
    /* The peer's first packet has overtaken the end of its handshake, unless it is from another process. */
    e->pending_drive_ns = now + PENDING_DRIVE_NS;
    harp_listeners_drive(e, now);
  }
  struct harp_peer *peer = e->peers[slot];
  return peer && peer != HARP_SLOT_RESERVED && peer->session.keys.rx_token == token ? peer : NULL;
}

/* What a superframe has brought so far: the peer, and the link that the last packet was for. */
struct arrival {
  struct harp_peer *peer;
  struct harp_link *link;
};

/* Completes what has come, before the next packet may be another's. */
static void complete_arrival(struct arrival *a) {
  if (a->link) harp_link_complete(a->link);
  if (a->peer) harp_peer_complete_news(a->peer);
  *a = (struct arrival){0};
}

/* Handles one packet of a superframe. */
static void receive_packet(struct harp_engine *e, const struct harp_rx_superframe *sf, const uint8_t *wire,
                           uint32_t bytes, struct arrival *a, harp_ns now) {
  struct harp_packet p;
  struct harp_placement where;
  enum harp_drop drop = harp_packet_decode(wire, bytes, &p);
  if (harp_unlikely(drop)) {
    e->counters.drops[drop]++;
    return;
  }
  struct harp_peer *peer = peer_of_token(e, p.token, now);
  if (harp_unlikely(!peer)) {
    e->counters.drops[HARP_DROP_TOKEN]++;
    return;
  }
  p.detour = sf->detour;
  p.ce = sf->ce;
  drop = harp_session_on_packet(&peer->session, wire, bytes, &p, &where, now);
  harp_peer_on_drop(peer, drop);
  if (drop && drop != HARP_DROP_CONTRADICTION && drop != HARP_DROP_DUPLICATE && drop != HARP_DROP_STREAM)
    return;
  if (peer != a->peer) {
    complete_arrival(a);
    a->peer = peer;
    peer->last_received_ns = now;
    peer->is_confirmed = true;
    if (p.type == HARP_PACKET_DATA) harp_inbound_on_data(peer, now);
  }
  if (p.type != HARP_PACKET_DATA || drop == HARP_DROP_STREAM) return;
  if (harp_likely(!drop) && !where.is_placed) harp_placement_copy(&where, p.data.payload);
  struct harp_link *link = harp_receiver_stream(peer->session.receiver, p.data.stream)->owner;
  if (link != a->link && a->link) harp_link_complete(a->link);
  a->link = link;
  if (harp_unlikely(drop == HARP_DROP_CONTRADICTION)) harp_link_fail_if_misused(link);
}

static void receive_superframe(struct harp_engine *e, const struct harp_rx_superframe *sf) {
  harp_ns now = e->clock();
  struct arrival a = {0};
  HARP_ASSERT(sf->segment_bytes); /* or this never ends */
  for (uint32_t at = 0; at < sf->bytes; at += sf->segment_bytes) {
    receive_packet(e, sf, sf->data + at, HARP_MIN(sf->segment_bytes, sf->bytes - at), &a, now);
    e->counters.rx_packets++;
  }
  complete_arrival(&a);
  e->counters.rx_superframes++;
  e->counters.rx_bytes += sf->bytes;
}

unsigned harp_receive_datagrams(struct harp_engine *e) {
  unsigned total = 0;
  while (total < RX_BUDGET) {
    struct harp_rx_superframe batch[HARP_RX_BATCH_MAX];
    unsigned n = e->io->ops->rx(e->io, batch, e->io->info.rx_batch);
    HARP_ASSERT(n <= HARP_RX_BATCH_MAX);
    for (unsigned i = 0; i < n; i++) receive_superframe(e, &batch[i]);
    if (!n) break;
    e->io->ops->rx_release(e->io, batch, n);
    total += n;
    /* A small superframe emptied the queue, most likely: hand on what it brought instead of asking again. */
    if (batch[n - 1].bytes < RX_AGAIN_BYTES) break;
  }
  return total;
}

/* ---- records ---- */

unsigned harp_receive_records(struct harp_engine *e, harp_ns *now) {
  struct harp_tcp_path *p = harp_tcp_begin_turn(e);
  enum harp_tcp_read last = HARP_TCP_READ_NOTHING;
  if (!p) return 0;
  for (unsigned i = 0; i < RECORD_READS && p->fd >= 0; i++) {
    enum harp_tcp_read what = harp_tcp_read_once(p, now);
    if (what == HARP_TCP_READ_NOTHING) break;
    last = what;
    harp_peer_complete_news(p->peer);
    if (what != HARP_TCP_READ_MORE) break;
  }
  harp_tcp_end_turn(p, last);
  return last != HARP_TCP_READ_NOTHING;
}
