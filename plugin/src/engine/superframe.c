/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/superframe.h"

#include <string.h>

#include "base/assert.h"
#include "engine/engine.h"

/* The kernel fetches a payload from this size on: that saves a copy, but makes two pieces of a packet. One
 * with a MAC behind it is copied: the MAC is then of the bytes that leave. */
enum { GATHER_MIN_BYTES = 3072 };
/* A driver without a frame for so long has a queue that is stuck: where there are other interfaces, and where
 * there is one, which may be slow. */
#define STUCK_NS      HARP_MS(10)
#define LONE_STUCK_NS HARP_MS(500)

/* ---- frames ---- */

/* Superframes that are built here are lost. */
static void use_scrap(struct harp_engine *e, uint32_t segment_bytes, struct harp_tx_superframe *sf) {
  *sf = (struct harp_tx_superframe){
      .base = e->scrap, .stride = segment_bytes, .segment_bytes = segment_bytes, .count_max = 1};
}

/* Takes a frame of the driver for packets on a path; false: it has none now. An interface that is stuck must
 * neither block the others nor hide from the protocol that nothing leaves: its packets are built into scrap
 * and lost one by one, until the protocol uses the others or gives the peer up. So are those of a path
 * without a route. */
static bool take_frame(const struct harp_peer *peer, unsigned path, uint32_t segment_bytes,
                       struct harp_tx_superframe *sf, harp_ns now) {
  struct harp_engine *e = peer->engine;
  HARP_ASSERT(path < peer->route_count);
  harp_ns *short_since_ns = &e->short_since_ns[peer->ends[path].local_eni];
  if (harp_unlikely(!peer->routes[path])) {
    use_scrap(e, segment_bytes, sf);
    return true;
  }
  if (harp_likely(e->io->ops->tx_take(e->io, peer->routes[path], segment_bytes, sf))) {
    HARP_ASSERT(sf->count_max && sf->segment_bytes <= sf->stride);
    *short_since_ns = 0;
    return true;
  }
  if (!*short_since_ns) *short_since_ns = now;
  if (now - *short_since_ns < (e->eni_count == 1 ? LONE_STUCK_NS : STUCK_NS)) return false;
  use_scrap(e, segment_bytes, sf);
  return true;
}

static bool is_scrap(const struct harp_engine *e, const struct harp_tx_superframe *sf) {
  return sf->base == e->scrap;
}

/* Packets that the kernel refuses for good count as lost, and are found by loss detection; what it refuses
 * for now, the driver keeps. */
static void submit_frame(struct harp_engine *e, struct harp_tx_superframe *sf) {
  HARP_ASSERT(sf->count && sf->count <= sf->count_max && sf->last_bytes <= sf->segment_bytes);
  if (!is_scrap(e, sf))
    e->io->ops->tx_submit(e->io, sf);
  else
    e->counters.tx_busy++;
}

/* ---- packets ---- */

/* Builds packet i of a run as the next segment of the superframe. */
static void build_packet(const struct harp_peer *peer, struct harp_tx_superframe *sf,
                         const struct harp_tx_run *run, uint32_t i, harp_ns now) {
  bool last = i + 1 == run->count;
  uint32_t step = run->lines_per_packet * HARP_LINE_BYTES;
  struct harp_packet p = {
      .type = run->type,
      .flags = last ? run->flags : 0,
      .path = run->path,
      .token = peer->session.keys.tx_token,
      .data = {.time = harp_ticks_from_ns(now),
               .message = run->message,
               .line = run->line + i * run->lines_per_packet,
               .offset = run->offset + i * step,
               .size = run->size,
               .length = last ? run->last_bytes : step,
               .stream = run->stream},
  };
  uint8_t *wire = sf->base + (size_t)sf->count * sf->stride;
  const uint8_t *payload = run->data + (size_t)i * step;
  uint64_t number = run->number + i;
  uint32_t seed = peer->session.keys.tx_seed;
  if (p.type == HARP_PACKET_PROBE) {
    harp_packet_encode_probe(wire, &p, number, seed);
  } else if (sf->gather) {
    harp_packet_encode_data_header(wire, &p, number, seed, payload);
    sf->payload[sf->count] = payload;
    sf->payload_bytes[sf->count] = p.data.length;
  } else {
    harp_packet_encode_data(wire, &p, number, seed, payload);
  }
  sf->last_bytes = harp_session_seal(&peer->session, wire, HARP_DATA_HEADER_BYTES + p.data.length, number);
  sf->count++;
}

/* Returns whether a short packet at the end of the superframe may be padded so that more can follow: when
 * that costs little. */
static bool may_follow(const struct harp_tx_superframe *sf, uint32_t packet_bytes) {
  uint32_t padding = sf->segment_bytes - sf->last_bytes;
  if (packet_bytes > sf->segment_bytes || (sf->gather && padding)) return false;
  return padding <= sf->count * sf->segment_bytes / 8;
}

static void pad_last(struct harp_tx_superframe *sf) {
  uint8_t *end = sf->base + (size_t)(sf->count - 1) * sf->stride + sf->last_bytes;
  memset(end, 0, sf->segment_bytes - sf->last_bytes);
}

/* Returns how long an acknowledgement is that goes with what was chosen; 0: none does. */
static uint32_t riding_ack_bytes(const struct harp_peer *peer, const struct harp_tx_choice *choice,
                                 harp_ns now) {
  if (choice->kind == HARP_TX_SIZE_PROBE) return 0;
  return harp_receiver_ride_bytes(peer->session.receiver, choice->path, now);
}

/* Adds the end of a packet, which stands behind the other headers, to the payload pieces that the driver
 * fetches. */
static void split_at_head(struct harp_tx_superframe *sf, uint8_t *wire) {
  uint32_t bytes = HARP_MAX(sf->last_bytes, sf->head_bytes);
  memset(wire + sf->last_bytes, 0, bytes - sf->last_bytes);
  sf->payload[sf->count] = wire + sf->head_bytes;
  sf->payload_bytes[sf->count] = bytes - sf->head_bytes;
  sf->last_bytes = bytes;
}

static uint32_t encode_ack(const struct harp_peer *peer, uint8_t *wire, struct harp_packet *ack,
                           uint64_t number) {
  const struct harp_session *session = &peer->session;
  ack->token = session->keys.tx_token;
  uint32_t bytes = (uint32_t)harp_packet_encode_ack(wire, ack, number, session->keys.tx_seed);
  return harp_session_seal(session, wire, bytes, number);
}

/* Builds an acknowledgement as the last, short segment. */
static void build_riding_ack(struct harp_peer *peer, struct harp_tx_superframe *sf, unsigned path,
                             harp_ns now) {
  struct harp_packet ack;
  uint64_t number;
  uint8_t *wire = sf->base + (size_t)sf->count * sf->stride;
  if (!harp_receiver_ride_ack(peer->session.receiver, path, sf->segment_bytes, &ack, &number, now)) return;
  if (sf->last_bytes < sf->segment_bytes) pad_last(sf);
  sf->last_bytes = encode_ack(peer, wire, &ack, number);
  if (sf->gather) split_at_head(sf, wire);
  sf->count++;
  peer->engine->counters.acks_riding++;
}

/* ---- superframes ---- */

/* Returns the bytes of the packet that was chosen. */
static uint32_t packet_bytes(const struct harp_peer *peer, const struct harp_tx_choice *choice) {
  return HARP_DATA_HEADER_BYTES + choice->bytes + harp_session_mac_bytes(&peer->session);
}

/* Builds what was chosen, and what follows on the same path, until `room` segments are built. */
static void fill_superframe(const struct harp_peer *peer, struct harp_tx_superframe *sf,
                            struct harp_tx_choice choice, uint32_t room, harp_ns now) {
  struct harp_sender *s = peer->session.sender;
  struct harp_tx_run run;
  do {
    if (sf->count && sf->last_bytes < sf->segment_bytes) pad_last(sf);
    harp_sender_take(s, &choice, room - sf->count, &run, now);
    HARP_ASSERT(run.count && run.count <= room - sf->count);
    HARP_ASSERT(!sf->count || sf->ect == run.ect);
    sf->ect = run.ect;
    for (uint32_t i = 0; i < run.count; i++) build_packet(peer, sf, &run, i, now);
    choice = harp_sender_choose_more(s, choice.path, now);
  } while (choice.kind != HARP_TX_NOTHING && sf->count < room && may_follow(sf, packet_bytes(peer, &choice)));
}

static void count_sent(struct harp_counters *c, const struct harp_tx_superframe *sf) {
  c->tx_superframes++;
  c->tx_packets += sf->count;
  c->tx_bytes += (uint64_t)(sf->count - 1) * sf->segment_bytes + sf->last_bytes;
}

bool harp_superframe_send(struct harp_peer *peer, const struct harp_tx_choice *choice, harp_ns now) {
  struct harp_engine *e = peer->engine;
  struct harp_tx_superframe sf;
  uint32_t ack_bytes = riding_ack_bytes(peer, choice, now);
  uint32_t segment_bytes = HARP_MAX(packet_bytes(peer, choice), ack_bytes);
  if (!take_frame(peer, choice->path, segment_bytes, &sf, now)) return false;
  if (sf.count_max == 1) ack_bytes = 0;
  sf.gather = e->io->info.gather && choice->bytes >= GATHER_MIN_BYTES && choice->kind != HARP_TX_SIZE_PROBE &&
              !peer->session.has_macs;
  if (sf.gather) sf.stride = sf.head_bytes = HARP_DATA_HEADER_BYTES;
  fill_superframe(peer, &sf, *choice, sf.count_max - (ack_bytes > 0), now);
  if (ack_bytes && may_follow(&sf, ack_bytes)) build_riding_ack(peer, &sf, choice->path, now);
  count_sent(&e->counters, &sf);
  submit_frame(e, &sf);
  return true;
}

bool harp_superframe_send_ack(struct harp_peer *peer, unsigned over, unsigned path, harp_ns now) {
  struct harp_packet ack;
  struct harp_tx_superframe sf;
  uint64_t number;
  if (!take_frame(peer, over, HARP_ACK_MAX_BYTES + harp_session_mac_bytes(&peer->session), &sf, now))
    return false;
  harp_receiver_take_ack(peer->session.receiver, path, &ack, &number, now);
  sf.last_bytes = encode_ack(peer, sf.base, &ack, number);
  sf.count = 1;
  submit_frame(peer->engine, &sf);
  return true;
}
