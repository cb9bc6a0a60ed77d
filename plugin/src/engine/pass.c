/* SPDX-License-Identifier: Apache-2.0 */
/* One pass of an engine: everything that moves, moves here.
 *
 *   receive     superframes from the driver: decode, find the peer, check, place, complete
 *   mailbox     what NCCL's threads submitted
 *   transmit    for the active peers in turn: timers, superframes, acknowledgements
 *   control     now and then: what the control connections say
 *
 * Each stage has a budget, so a pass is bounded and no peer starves another. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "base/copy.h"
#include "engine/drain.h"
#include "engine/engine.h"
#include "engine/inbound.h"
#include "engine/listener.h"

enum {
  RX_BUDGET = 2, /* superframes of 64 KB (with single packets, batches): then acknowledge */
  RX_AGAIN_BYTES = 16384,
  TX_BUDGET = 8,      /* superframes a pass */
  TX_PEER_BUDGET = 4, /* of them for one peer, and its acknowledgements */
  TX_RECORD_COST = 4, /* what a record of a tcp path counts as */
  GATHER_MIN_BYTES =
      3072, /* from this payload on, the kernel fetches it: one copy less, but two pieces a packet */
  CONTROL_EVENTS = 16,
  KEEPALIVES = 4, /* of idle paths, in the time after which silence means that the peer is lost */
};
/* A driver without a frame for so long has a queue that is stuck. */
#define STUCK_NS          HARP_MS(10)
#define CONTROL_CHECK_NS  HARP_MS(1)
#define PENDING_CHECK_NS  HARP_US(50)
#define DATAGRAMS_IDLE_NS HARP_MS(1)
#define DATAGRAMS_POLL_NS HARP_US(5)

_Static_assert(HARP_ENGINE_LINKS_MAX % (64 * 64) == 0, "each summary bit stands for as many words");
_Static_assert(HARP_ENGINE_PEERS_MAX <= 65536, "the low 16 bits of a token name the slot");

/* ---- receive ---- */

static void place(const struct harp_placement *where, const uint8_t *payload) {
  for (uint32_t i = 0; i < where->count; i++)
    harp_copy_lines(where->dst + where->runs[i].from, payload + where->runs[i].from, where->runs[i].bytes);
}

/* Drives handshakes for which something has come. Peers' events stay where they are until check_control. */
static void check_meetings(struct harp_engine *e, harp_ns now) {
  struct epoll_event events[CONTROL_EVENTS];
  int n = epoll_wait(e->control_fd, events, CONTROL_EVENTS, 0);
  for (int i = 0; i < n; i++)
    if (events[i].data.u64 >= HARP_ENGINE_PEERS_MAX) harp_listeners_on_ready(events[i].data.u64, now);
}

static struct harp_peer *peer_of_token(struct harp_engine *e, uint64_t token, harp_ns now) {
  uint32_t slot = token & 0xffff;
  if (slot >= HARP_ENGINE_PEERS_MAX) return NULL;
  if (e->peers[slot] == HARP_SLOT_RESERVED && now >= e->pending_check_ns) {
    /* The peer's first packet has overtaken the end of its handshake, unless it is a stranger's. */
    e->pending_check_ns = now + PENDING_CHECK_NS;
    check_meetings(e, now);
  }
  struct harp_peer *peer = e->peers[slot];
  return peer && peer != HARP_SLOT_RESERVED && peer->session.keys.rx_token == token ? peer : NULL;
}

/* What a superframe has brought so far: whose it is, and the link that the last packet was for. */
struct arrival {
  struct harp_peer *peer;
  struct harp_link *link;
};

/* Marks what is done before the next packet may be another's. */
static void settle(struct arrival *a) {
  if (a->link) harp_link_complete(a->link);
  if (a->peer) harp_peer_settle(a->peer);
  *a = (struct arrival){0};
}

/* Handles one packet. */
static void receive_packet(struct harp_engine *e, const uint8_t *wire, uint32_t bytes, bool detour,
                           struct arrival *a, harp_ns now) {
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
  p.detour = detour;
  drop = harp_session_on_packet(&peer->session, wire, &p, &where, now);
  if (drop && drop != HARP_DROP_CONTRADICTION && drop != HARP_DROP_DUPLICATE && drop != HARP_DROP_STREAM)
    return;
  if (peer != a->peer) {
    settle(a);
    a->peer = peer;
    peer->heard_ns = now;
    peer->is_confirmed = true;
    if (p.type == HARP_PACKET_DATA) harp_inbound_on_data(peer, now);
  }
  if (p.type != HARP_PACKET_DATA || drop == HARP_DROP_STREAM) return;
  if (harp_likely(!drop) && !where.is_copied) place(&where, p.data.payload);
  struct harp_link *link = harp_receiver_stream(peer->session.receiver, p.data.stream)->owner;
  if (link != a->link && a->link) harp_link_complete(a->link);
  a->link = link;
  if (harp_unlikely(drop == HARP_DROP_CONTRADICTION)) harp_link_check(link, now);
}

static void receive_superframe(struct harp_engine *e, const struct harp_rx_superframe *sf) {
  harp_ns now = e->clock();
  struct arrival a = {0};
  for (uint32_t at = 0; at < sf->bytes; at += sf->segment_bytes) {
    receive_packet(e, sf->data + at, HARP_MIN(sf->segment_bytes, sf->bytes - at), sf->detour, &a, now);
    e->counters.rx_packets++;
  }
  settle(&a);
  e->counters.rx_superframes++;
  e->counters.rx_bytes += sf->bytes;
}

/* While messages come over TCP and no datagram has come for DATAGRAMS_IDLE_NS, the driver is asked once in
 * DATAGRAMS_POLL_NS: a receive that finds nothing takes about 1 us. */
static bool skips_datagrams(const struct harp_engine *e) {
  return e->tcp && harp_tcp_is_live(e->tcp, e->looked_ns) && e->looked_ns < e->datagrams_poll_ns;
}

static void note_datagrams(struct harp_engine *e, bool any) {
  if (any) e->datagrams_ns = e->looked_ns;
  e->datagrams_poll_ns =
      e->looked_ns - e->datagrams_ns > DATAGRAMS_IDLE_NS ? e->looked_ns + DATAGRAMS_POLL_NS : 0;
}

static unsigned receive(struct harp_engine *e) {
  unsigned total = 0;
  if (skips_datagrams(e)) return 0;
  while (total < RX_BUDGET) {
    struct harp_rx_superframe batch[HARP_RX_BATCH_MAX];
    unsigned n = e->io->ops->rx(e->io, batch, e->io->info.rx_batch);
    for (unsigned i = 0; i < n; i++) receive_superframe(e, &batch[i]);
    if (!n) break;
    e->io->ops->rx_release(e->io, batch, n);
    total += n;
    /* A small superframe emptied the queue, most likely: hand on what it brought instead of asking again. */
    if (batch[n - 1].bytes < RX_AGAIN_BYTES) break;
  }
  note_datagrams(e, total);
  return total;
}

/* ---- mailbox ---- */

static void take_word(struct harp_engine *e, unsigned w, harp_ns now) {
  uint64_t bits = atomic_exchange_explicit(&e->doorbells[w], 0, memory_order_acquire);
  for (; bits; bits &= bits - 1) {
    struct harp_link *link = e->links[w * 64 + (unsigned)__builtin_ctzll(bits)];
    if (!link) continue; /* closed since */
    harp_link_take_submissions(link, now);
    harp_link_complete(link);
    harp_peer_touch(link->peer);
  }
}

static void take_submissions(struct harp_engine *e, harp_ns now) {
  if (harp_likely(!atomic_load_explicit(&e->doorbell_words, memory_order_relaxed))) return;
  uint64_t words = atomic_exchange_explicit(&e->doorbell_words, 0, memory_order_acquire);
  for (; words; words &= words - 1) {
    unsigned first = (unsigned)__builtin_ctzll(words) * HARP_DOORBELL_WORDS;
    for (unsigned w = first; w < first + HARP_DOORBELL_WORDS; w++) take_word(e, w, now);
  }
}

/* ---- transmit ---- */

/* Lends a frame for packets on a path; false: not now. Where there are other interfaces, one that is stuck
 * must not hold them up: its packets are built into scrap and lost one by one, until the protocol leaves it.
 */
static bool take_frame(struct harp_engine *e, const struct harp_peer *peer, unsigned path,
                       uint32_t segment_bytes, struct harp_tx_superframe *sf, harp_ns now) {
  harp_ns *short_since_ns = &e->short_since_ns[peer->route_enis[path]];
  if (harp_likely(e->io->ops->tx_take(e->io, peer->routes[path], segment_bytes, sf))) {
    *short_since_ns = 0;
    return true;
  }
  if (!*short_since_ns) *short_since_ns = now;
  if (e->eni_count == 1 || now - *short_since_ns < STUCK_NS) return false;
  *sf = (struct harp_tx_superframe){
      .base = e->scrap, .stride = segment_bytes, .segment_bytes = segment_bytes, .count_max = 1};
  return true;
}

static bool is_scrap(const struct harp_engine *e, const struct harp_tx_superframe *sf) {
  return sf->base == e->scrap;
}

/* What the kernel refuses for good is as good as lost, and found as such; what it refuses for now, the driver
 * keeps. */
static void submit_frame(struct harp_engine *e, struct harp_tx_superframe *sf) {
  if (!is_scrap(e, sf))
    e->io->ops->tx_submit(e->io, sf);
  else
    e->counters.tx_busy++;
}

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
  sf->last_bytes = HARP_DATA_HEADER_BYTES + p.data.length;
  sf->count++;
}

/* Whether a short packet at the end of the superframe may be padded so that more can follow: when that costs
 * little. */
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

/* Has the end of a packet that stands behind the other headers fetched like payload. */
static void split_at_head(struct harp_tx_superframe *sf, uint8_t *wire) {
  uint32_t bytes = HARP_MAX(sf->last_bytes, sf->head_bytes);
  memset(wire + sf->last_bytes, 0, bytes - sf->last_bytes);
  sf->payload[sf->count] = wire + sf->head_bytes;
  sf->payload_bytes[sf->count] = bytes - sf->head_bytes;
  sf->last_bytes = bytes;
}

/* Builds an acknowledgement as the last, short segment. */
static void build_riding_ack(struct harp_peer *peer, struct harp_tx_superframe *sf, unsigned path,
                             harp_ns now) {
  struct harp_packet ack;
  uint64_t number;
  uint8_t *wire = sf->base + (size_t)sf->count * sf->stride;
  if (!harp_receiver_ride_ack(peer->session.receiver, path, sf->segment_bytes, &ack, &number, now)) return;
  if (sf->last_bytes < sf->segment_bytes) pad_last(sf);
  ack.token = peer->session.keys.tx_token;
  sf->last_bytes = (uint32_t)harp_packet_encode_ack(wire, &ack, number, peer->session.keys.tx_seed);
  if (sf->gather) split_at_head(sf, wire);
  sf->count++;
  peer->engine->counters.acks_riding++;
}

/* Sends one superframe of what was chosen; returns false when there is no frame for it. */
static bool transmit_superframe(struct harp_engine *e, struct harp_peer *peer, struct harp_tx_choice choice,
                                harp_ns now) {
  struct harp_sender *s = peer->session.sender;
  struct harp_tx_superframe sf;
  struct harp_tx_run run;
  uint32_t ack_bytes = riding_ack_bytes(peer, &choice, now);
  uint32_t segment_bytes = HARP_MAX(HARP_DATA_HEADER_BYTES + choice.bytes, ack_bytes);
  if (!take_frame(e, peer, choice.path, segment_bytes, &sf, now)) return false;
  if (sf.count_max == 1) ack_bytes = 0;
  uint32_t room = sf.count_max - (ack_bytes > 0);
  sf.gather = e->io->info.gather && choice.bytes >= GATHER_MIN_BYTES && choice.kind != HARP_TX_SIZE_PROBE;
  if (sf.gather) sf.stride = sf.head_bytes = HARP_DATA_HEADER_BYTES;
  do {
    if (sf.count && sf.last_bytes < sf.segment_bytes) pad_last(&sf);
    harp_sender_take(s, &choice, room - sf.count, &run, now);
    for (uint32_t i = 0; i < run.count; i++) build_packet(peer, &sf, &run, i, now);
    choice = harp_sender_choose_more(s, choice.path, now);
  } while (choice.kind != HARP_TX_NOTHING && sf.count < room &&
           may_follow(&sf, HARP_DATA_HEADER_BYTES + choice.bytes));
  if (ack_bytes && may_follow(&sf, ack_bytes)) build_riding_ack(peer, &sf, run.path, now);
  e->counters.tx_superframes++;
  e->counters.tx_packets += sf.count;
  e->counters.tx_bytes += (uint64_t)(sf.count - 1) * sf.segment_bytes + sf.last_bytes;
  submit_frame(e, &sf);
  return true;
}

/* Returns the path over which an acknowledgement of a path goes: its own, or, where that is a tcp path that
 * takes nothing now, the one beside it or any that works. -1: none takes it before a tcp path is ready. */
static int path_of_ack(struct harp_peer *peer, unsigned path) {
  const struct harp_sender *s = peer->session.sender;
  if (harp_likely(path < peer->route_count) || harp_tcp_ready(peer, path)) return (int)path;
  unsigned beside = harp_tcp_beside(peer, path);
  if (beside != path && harp_sender_is_up(s, beside)) return (int)beside;
  for (unsigned i = 0; i < peer->path_count; i++)
    if (harp_sender_is_up(s, i) && (i < peer->route_count || harp_tcp_ready(peer, i))) return (int)i;
  return -1;
}

static unsigned transmit_acks(struct harp_engine *e, struct harp_peer *peer, harp_ns now) {
  struct harp_packet ack;
  struct harp_tx_superframe sf;
  uint64_t number;
  uint64_t held = 0; /* paths whose acknowledgements nothing takes now */
  unsigned sent = 0;
  int path;
  /* NCCL has nothing more to wait for and may not call again for long: the peer must not wait for that. It
   * does not wait where what came was small, and an answer, if there is one, carries the acknowledgement. */
  if (!e->outstanding && peer->is_awaited) harp_receiver_hurry(peer->session.receiver, now);
  peer->is_awaited = peer->is_awaited && e->outstanding;
  while ((path = harp_receiver_next_ack(peer->session.receiver, held, now)) >= 0) {
    int over = path_of_ack(peer, (unsigned)path);
    if (over < 0) {
      held |= 1ull << path;
      continue;
    }
    bool is_tcp = (unsigned)over >= peer->route_count;
    if (!is_tcp && !take_frame(e, peer, (unsigned)over, HARP_ACK_MAX_BYTES, &sf, now)) break;
    harp_receiver_take_ack(peer->session.receiver, (unsigned)path, &ack, &number, now);
    ack.token = peer->session.keys.tx_token;
    sent++;
    if (is_tcp) {
      harp_tcp_send_ack(harp_tcp_ready(peer, (unsigned)over), &ack, number, now);
      continue;
    }
    sf.last_bytes = (uint32_t)harp_packet_encode_ack(sf.base, &ack, number, peer->session.keys.tx_seed);
    sf.count = 1;
    submit_frame(e, &sf);
  }
  peer->deadline_ns = HARP_MIN(peer->deadline_ns, harp_receiver_deadline_ns(peer->session.receiver, held));
  return sent;
}

/* Sends at most `budget` superframes of data. */
static unsigned transmit_data(struct harp_engine *e, struct harp_peer *peer, unsigned budget, harp_ns now) {
  unsigned sent = 0;
  peer->deadline_ns = now; /* there is more than fits this pass, or no frame for it */
  while (sent < budget) {
    struct harp_tx_choice choice = harp_sender_choose(peer->session.sender, now);
    if (choice.kind == HARP_TX_NOTHING) {
      peer->deadline_ns = choice.deadline_ns;
      break;
    }
    if (choice.path >= peer->route_count) {
      harp_tcp_send(peer, &choice, now);
      sent += TX_RECORD_COST;
    } else {
      if (!transmit_superframe(e, peer, choice, now)) break;
      sent++;
    }
  }
  if (harp_sender_stalled_since_ns(peer->session.sender)) harp_monitor_on_stall(peer, now);
  return sent;
}

/* Runs timers and sends what is due; notes when the peer is to be visited again. */
static unsigned transmit_peer(struct harp_engine *e, struct harp_peer *peer, unsigned budget, harp_ns now) {
  peer->deadline_ns = HARP_NEVER;
  if (peer->session.state != HARP_SESSION_OPEN) return 0;
  if (peer->tcp_count) harp_tcp_note_progress(peer, now);
  harp_session_on_timeout(&peer->session, now);
  harp_ns review_ns = peer->tcp_count ? harp_tcp_review(peer, now) : HARP_NEVER;
  unsigned sent = transmit_data(e, peer, budget, now);
  sent += transmit_acks(e, peer, now);
  peer->deadline_ns = HARP_MIN(peer->deadline_ns, review_ns);
  return sent;
}

/* Visits the active peers in turn, each at most once, while the pass's budget lasts: those that it does not
 * reach come first in the next pass. Those with nothing to wait for leave the list. */
static unsigned transmit(struct harp_engine *e, harp_ns now) {
  unsigned sent = 0;
  struct harp_peer *peer = e->active_first, *last = e->active_last;
  e->active_first = e->active_last = NULL;
  while (peer && sent < TX_BUDGET) {
    struct harp_peer *next = peer->next_active;
    peer->active = false;
    if (peer->deadline_ns <= now)
      sent += transmit_peer(e, peer, HARP_MIN(TX_BUDGET - sent, TX_PEER_BUDGET + 0u), now);
    if (peer->deadline_ns != HARP_NEVER) harp_engine_activate(e, peer);
    peer = next;
  }
  if (peer) { /* not reached */
    last->next_active = e->active_first;
    if (!e->active_last) e->active_last = last;
    e->active_first = peer;
  }
  e->io->ops->tx_flush(e->io);
  return sent;
}

/* ---- control ---- */

/* Looks after peers with several interfaces: their idle paths, and whether one whose control connection is
 * lost still lives. Time in which nobody did a pass (the process was stopped, the machine paused) says
 * nothing of peers: they may have been stopped with us. */
static void tend_multihomed(struct harp_engine *e, harp_ns now) {
  harp_ns quiet_ns = e->instance.peer_timeout_ns / KEEPALIVES, period_ns = quiet_ns / 2;
  harp_ns late_ns = e->tend_ns ? now - e->tend_ns : 0;
  e->tend_ns = now + period_ns;
  for (uint32_t slot = 0, seen = 0; slot < HARP_ENGINE_PEERS_MAX && seen < e->peer_count; slot++) {
    struct harp_peer *peer = e->peers[slot];
    seen += peer != NULL;
    if (!peer || peer == HARP_SLOT_RESERVED || !peer->is_multihomed) continue;
    if (peer->session.state != HARP_SESSION_OPEN) continue;
    if (late_ns > period_ns) peer->heard_ns = HARP_MIN(peer->heard_ns + late_ns, now);
    harp_monitor_on_silence(peer, now);
    harp_sender_keepalive(peer->session.sender, quiet_ns, now);
    harp_peer_settle(peer);
  }
}

static void check_control(struct harp_engine *e, harp_ns now) {
  struct epoll_event events[CONTROL_EVENTS];
  e->control_check_ns = now + CONTROL_CHECK_NS;
  int n = epoll_wait(e->control_fd, events, CONTROL_EVENTS, 0);
  for (int i = 0; i < n; i++) {
    if (events[i].data.u64 >= HARP_ENGINE_PEERS_MAX) {
      harp_listeners_on_ready(events[i].data.u64, now);
      continue;
    }
    struct harp_peer *peer = e->peers[events[i].data.u64];
    if (!peer || peer == HARP_SLOT_RESERVED) continue;
    if (events[i].events & EPOLLOUT) harp_monitor_on_writable(peer, now);
    if (events[i].events & ~(uint32_t)EPOLLOUT) harp_monitor_on_readable(peer, now);
    harp_peer_settle(peer);
  }
  harp_listeners_tend(e, now);
  harp_tcp_tend(e, now);
  if (e->linger_ns <= now) {
    harp_peers_tend(e, now);
    harp_inbound_review(e, now);
  }
  if (e->tend_ns <= now) tend_multihomed(e, now);
  harp_stalls_review(e, now);
  harp_stats_update(e, now);
}

/* ---- the pass ---- */

unsigned harp_engine_pass(struct harp_engine *e) {
  e->counters.passes++;
  e->io->ops->reap(e->io);
  unsigned moved = receive(e);
  harp_ns now = e->looked_ns = e->clock();
  if (e->tcp) moved += harp_tcp_receive(e, now);
  take_submissions(e, now);
  moved += transmit(e, now);
  if (harp_unlikely(e->control_check_ns <= now)) check_control(e, now);
  if (harp_unlikely(e->draining && e->drain_check_ns <= now)) harp_drain_review(e, now);
  harp_outages_review(e, now);
  harp_recorder_note_refused(e, now);
  return moved;
}

unsigned harp_engine_pass_transmit(struct harp_engine *e) {
  e->counters.passes++;
  harp_ns now = e->clock();
  take_submissions(e, now);
  return transmit(e, now);
}

harp_ns harp_engine_deadline_ns(const struct harp_engine *e) {
  harp_ns at = HARP_NEVER;
  if (atomic_load_explicit(&e->doorbell_words, memory_order_relaxed)) return 0;
  for (const struct harp_peer *peer = e->active_first; peer; peer = peer->next_active)
    at = HARP_MIN(at, peer->deadline_ns);
  return at;
}
