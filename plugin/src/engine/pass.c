/* One pass of an engine: everything that moves, moves here.
 *
 *   receive     superframes from the driver: decode, find the connection, check, place, complete
 *   mailbox     what NCCL's threads submitted
 *   transmit    for each active link: timers, superframes, acknowledgements
 *   control     now and then: what the control connections say
 *
 * Each stage has a budget, so a pass is bounded and no link starves another. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "base/copy.h"
#include "engine/engine.h"
#include "engine/meet.h"

enum {
  RX_BUDGET = 2, /* superframes of 64 KB (with single packets, batches): then acknowledge */
  RX_AGAIN_BYTES = 16384,
  TX_BUDGET = 4, /* superframes a link and pass */
  GATHER_MIN_BYTES =
      3072, /* from this payload on, the kernel fetches it: one copy less, but two pieces a packet */
  CONTROL_EVENTS = 16,
  KEEPALIVES = 4, /* of idle paths, in the time after which silence means that the peer is lost */
};
/* A driver without a frame for so long has a queue that is stuck. */
#define STUCK_NS         HARP_MS(10)
#define CONTROL_CHECK_NS HARP_MS(1)
#define MEET_CHECK_NS    HARP_US(50)

_Static_assert(HARP_ENGINE_LINKS_MAX <= 65536, "the low 16 bits of a token name the slot");

/* ---- receive ---- */

static void place(const struct harp_placement *where, const uint8_t *payload) {
  for (uint32_t i = 0; i < where->count; i++)
    harp_copy_lines(where->dst + where->runs[i].from, payload + where->runs[i].from, where->runs[i].bytes);
}

static struct harp_link *link_of_token(struct harp_engine *e, uint64_t token, harp_ns now) {
  uint32_t slot = token & 0xffff;
  if (slot >= HARP_ENGINE_LINKS_MAX) return NULL;
  if (e->links[slot] == HARP_SLOT_RESERVED && now >= e->meet_check_ns) {
    /* The peer's first packet has overtaken the end of its handshake, unless it is a stranger's. */
    e->meet_check_ns = now + MEET_CHECK_NS;
    harp_listeners_run(e, now);
  }
  struct harp_link *link = e->links[slot];
  return link && link != HARP_SLOT_RESERVED && link->conn.keys.rx_token == token ? link : NULL;
}

/* Handles one packet; returns its link if it was good for anything. */
static struct harp_link *receive_packet(struct harp_engine *e, const uint8_t *wire, uint32_t bytes,
                                        bool detour, harp_ns now) {
  struct harp_packet p;
  struct harp_placement where;
  enum harp_drop drop = harp_packet_decode(wire, bytes, &p);
  if (harp_unlikely(drop)) {
    e->counters.drops[drop]++;
    return NULL;
  }
  struct harp_link *link = link_of_token(e, p.token, now);
  if (harp_unlikely(!link)) {
    e->counters.drops[HARP_DROP_TOKEN]++;
    return NULL;
  }
  p.detour = detour;
  drop = harp_conn_on_packet(&link->conn, wire, &p, &where, now);
  if (harp_likely(!drop)) {
    if (p.type == HARP_PACKET_DATA) place(&where, p.data.payload);
  } else if (drop == HARP_DROP_CONTRADICTION) {
    harp_link_check(link, now);
  } else if (drop != HARP_DROP_DUPLICATE) {
    return NULL;
  }
  return link;
}

static void settle_link(struct harp_engine *e, struct harp_link *link) {
  harp_link_complete(link);
  link->deadline_ns = 0; /* to be looked at in this pass */
  harp_engine_activate(e, link);
}

static void receive_superframe(struct harp_engine *e, const struct harp_rx_superframe *sf) {
  harp_ns now = e->clock();
  struct harp_link *last = NULL;
  for (uint32_t at = 0; at < sf->bytes; at += sf->segment_bytes) {
    uint32_t bytes = HARP_MIN(sf->segment_bytes, sf->bytes - at);
    struct harp_link *link = receive_packet(e, sf->data + at, bytes, sf->detour, now);
    e->counters.rx_packets++;
    if (link == last || !link) continue;
    if (last) settle_link(e, last);
    last = link;
    link->heard_ns = now;
  }
  if (last) settle_link(e, last);
  e->counters.rx_superframes++;
  e->counters.rx_bytes += sf->bytes;
}

static unsigned receive(struct harp_engine *e) {
  unsigned total = 0;
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
  return total;
}

/* ---- mailbox ---- */

static void take_submissions(struct harp_engine *e, harp_ns now) {
  if (harp_likely(!atomic_load_explicit(&e->doorbell_words, memory_order_relaxed))) return;
  uint64_t words = atomic_exchange_explicit(&e->doorbell_words, 0, memory_order_acquire);
  for (; words; words &= words - 1) {
    unsigned w = (unsigned)__builtin_ctzll(words);
    uint64_t bits = atomic_exchange_explicit(&e->doorbells[w], 0, memory_order_acquire);
    for (; bits; bits &= bits - 1) {
      struct harp_link *link = e->links[w * 64 + (unsigned)__builtin_ctzll(bits)];
      if (!link || link == HARP_SLOT_RESERVED) continue; /* closed since */
      harp_link_take_submissions(link, now);
      settle_link(e, link);
    }
  }
}

/* ---- transmit ---- */

/* Lends a frame for packets on a path; false: not now. Where there are other interfaces, one that is stuck
 * must not hold them up: its packets are built into scrap and lost one by one, until the protocol leaves it.
 */
static bool take_frame(struct harp_engine *e, const struct harp_link *link, unsigned path,
                       uint32_t segment_bytes, struct harp_tx_superframe *sf, harp_ns now) {
  harp_ns *short_since_ns = &e->short_since_ns[link->route_enis[path]];
  if (harp_likely(e->io->ops->tx_take(e->io, link->routes[path], segment_bytes, sf))) {
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

static void give_frame_back(struct harp_engine *e, struct harp_tx_superframe *sf) {
  if (!is_scrap(e, sf)) e->io->ops->tx_give_back(e->io, sf);
}

/* What does not leave is as good as lost, and found as such. */
static void submit_frame(struct harp_engine *e, struct harp_tx_superframe *sf) {
  if (!is_scrap(e, sf))
    e->io->ops->tx_submit(e->io, sf);
  else
    e->counters.tx_busy++;
}

/* Builds packet i of a run as the next segment of the superframe. */
static void build_packet(const struct harp_link *link, struct harp_tx_superframe *sf,
                         const struct harp_tx_run *run, uint32_t i, harp_ns now) {
  bool last = i + 1 == run->count;
  uint32_t step = run->lines_per_packet * HARP_LINE_BYTES;
  struct harp_packet p = {
      .type = run->type,
      .flags = last && run->ack_soon ? HARP_FLAG_ACK_SOON : 0,
      .path = run->path,
      .token = link->conn.keys.tx_token,
      .data = {.time = harp_ticks_from_ns(now),
               .message = run->message,
               .line = run->line + i * run->lines_per_packet,
               .offset = run->offset + i * step,
               .size = run->size,
               .length = last ? run->last_bytes : step},
  };
  uint8_t *wire = sf->base + (size_t)sf->count * sf->stride;
  const uint8_t *payload = run->data + (size_t)i * step;
  uint64_t number = run->number + i;
  uint32_t seed = link->conn.keys.tx_seed;
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
static bool may_follow(const struct harp_tx_superframe *sf, int next_bytes) {
  uint32_t next = HARP_DATA_HEADER_BYTES + (uint32_t)next_bytes;
  uint32_t padding = sf->segment_bytes - sf->last_bytes;
  if (next > sf->segment_bytes || (sf->gather && padding)) return false;
  return padding <= sf->count * sf->segment_bytes / 8;
}

static void pad_last(struct harp_tx_superframe *sf) {
  uint8_t *end = sf->base + (size_t)(sf->count - 1) * sf->stride + sf->last_bytes;
  memset(end, 0, sf->segment_bytes - sf->last_bytes);
}

/* Sends one superframe on a path; returns false when there is nothing to send or no frame for it. */
static bool transmit_superframe(struct harp_engine *e, struct harp_link *link, struct harp_path *path,
                                harp_ns now) {
  struct harp_sender *s = link->conn.sender;
  struct harp_tx_superframe sf;
  struct harp_tx_run run;
  int next = harp_sender_peek_bytes(s, path, now);
  if (next < 0 || !take_frame(e, link, path->index, HARP_DATA_HEADER_BYTES + (uint32_t)next, &sf, now))
    return false;
  sf.gather = e->io->info.gather && next >= GATHER_MIN_BYTES && !path->probe_due && path->size_probe_ns > now;
  if (sf.gather) sf.stride = sf.head_bytes = HARP_DATA_HEADER_BYTES;
  while (sf.count < sf.count_max && harp_sender_poll(s, path, sf.count_max - sf.count, &run, now)) {
    if (sf.count && sf.last_bytes < sf.segment_bytes) pad_last(&sf);
    for (uint32_t i = 0; i < run.count; i++) build_packet(link, &sf, &run, i, now);
    if (run.type == HARP_PACKET_PROBE) break;
    next = harp_sender_peek_bytes(s, path, now);
    if (next < 0 || path->probe_due || path->size_probe_ns <= now || !may_follow(&sf, next)) break;
  }
  if (!sf.count) {
    give_frame_back(e, &sf);
    return false;
  }
  e->counters.tx_superframes++;
  e->counters.tx_packets += sf.count;
  e->counters.tx_bytes += (uint64_t)(sf.count - 1) * sf.segment_bytes + sf.last_bytes;
  submit_frame(e, &sf);
  return true;
}

static unsigned transmit_acks(struct harp_engine *e, struct harp_link *link, harp_ns now) {
  struct harp_packet ack;
  struct harp_tx_superframe sf;
  uint64_t number;
  unsigned sent = 0;
  int path;
  while ((path = harp_receiver_next_ack(link->conn.receiver, now)) >= 0) {
    if (!take_frame(e, link, (unsigned)path, HARP_ACK_MAX_BYTES, &sf, now)) break;
    bool due = harp_receiver_poll_ack(link->conn.receiver, &ack, &number, now);
    HARP_ASSERT(due && ack.path == path);
    ack.token = link->conn.keys.tx_token;
    sf.last_bytes = (uint32_t)harp_packet_encode_ack(sf.base, &ack, number, link->conn.keys.tx_seed);
    sf.count = 1;
    submit_frame(e, &sf);
    sent++;
  }
  return sent;
}

static unsigned transmit_link(struct harp_engine *e, struct harp_link *link, harp_ns now) {
  unsigned sent = 0;
  struct harp_path *path;
  if (link->conn.state != HARP_CONN_OPEN) return 0;
  harp_conn_on_timeout(&link->conn, now);
  if (link->conn.role == HARP_ROLE_RECEIVER) {
    /* NCCL has nothing more to wait for and may not call again for long: the peer must not wait for that. */
    if (!e->outstanding) harp_receiver_hurry(link->conn.receiver, now);
    return transmit_acks(e, link, now);
  }
  while (sent < TX_BUDGET && (path = harp_sender_pick(link->conn.sender, now))) {
    if (!transmit_superframe(e, link, path, now)) break;
    sent++;
  }
  if (link->conn.sender->stalled_since_ns) harp_monitor_on_stall(link, now);
  return sent;
}

/* Visits the active links in turn, each at most once; those with nothing to wait for leave the list. */
static unsigned transmit(struct harp_engine *e, harp_ns now) {
  unsigned sent = 0;
  struct harp_link *link = e->active_first;
  e->active_first = e->active_last = NULL;
  while (link) {
    struct harp_link *next = link->next_active;
    link->active = false;
    if (link->deadline_ns <= now) {
      sent += transmit_link(e, link, now);
      link->deadline_ns = harp_conn_deadline_ns(&link->conn, now);
    }
    if (link->deadline_ns != HARP_NEVER) harp_engine_activate(e, link);
    link = next;
  }
  e->io->ops->tx_flush(e->io);
  return sent;
}

/* ---- control ---- */

/* Looks after links with several interfaces: their idle paths, and whether the peer of one whose control
 * connection is lost still lives. Time in which nobody did a pass (the process was stopped, the machine
 * paused) says nothing of peers: they may have been stopped with us. */
static void tend_multihomed(struct harp_engine *e, harp_ns now) {
  harp_ns quiet_ns = e->instance.peer_timeout_ns / KEEPALIVES, period_ns = quiet_ns / 2;
  harp_ns late_ns = e->tend_ns ? now - e->tend_ns : 0;
  e->tend_ns = now + period_ns;
  for (uint32_t slot = 0; slot < HARP_ENGINE_LINKS_MAX; slot++) {
    struct harp_link *link = e->links[slot];
    if (!link || link == HARP_SLOT_RESERVED || !link->is_multihomed) continue;
    if (link->conn.state != HARP_CONN_OPEN) continue;
    if (late_ns > period_ns) link->heard_ns = HARP_MIN(link->heard_ns + late_ns, now);
    harp_monitor_on_silence(link, now);
    if (link->conn.sender) harp_sender_keepalive(link->conn.sender, quiet_ns, now);
    settle_link(e, link);
  }
}

static void check_control(struct harp_engine *e, harp_ns now) {
  struct epoll_event events[CONTROL_EVENTS];
  e->control_check_ns = now + CONTROL_CHECK_NS;
  int n = epoll_wait(e->control_fd, events, CONTROL_EVENTS, 0);
  for (int i = 0; i < n; i++) {
    if (events[i].data.u32 == HARP_CONTROL_MEETING) continue; /* below */
    struct harp_link *link = e->links[events[i].data.u32];
    if (!link || link == HARP_SLOT_RESERVED) continue;
    harp_monitor_on_readable(link, now);
    settle_link(e, link);
  }
  harp_listeners_run(e, now);
  if (e->tend_ns <= now) tend_multihomed(e, now);
}

/* ---- the pass ---- */

/* For the watchdog: somebody is at it. */
static void count_pass(struct harp_engine *e) {
  atomic_store_explicit(&e->pass_count, (uint32_t)++e->counters.passes, memory_order_relaxed);
}

unsigned harp_engine_pass(struct harp_engine *e) {
  count_pass(e);
  e->io->ops->reap(e->io);
  unsigned moved = receive(e);
  harp_ns now = e->clock();
  take_submissions(e, now);
  moved += transmit(e, now);
  if (harp_unlikely(e->control_check_ns <= now)) check_control(e, now);
  harp_outages_review(e, now);
  return moved;
}

unsigned harp_engine_pass_transmit(struct harp_engine *e) {
  count_pass(e);
  harp_ns now = e->clock();
  take_submissions(e, now);
  return transmit(e, now);
}

harp_ns harp_engine_deadline_ns(const struct harp_engine *e) {
  harp_ns at = HARP_NEVER;
  if (atomic_load_explicit(&e->doorbell_words, memory_order_relaxed)) return 0;
  for (const struct harp_link *link = e->active_first; link; link = link->next_active)
    at = HARP_MIN(at, link->deadline_ns);
  return at;
}
