/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/pairing.h"

#define FAULTS_MAX_NS HARP_SEC(3)
enum { PPM_ALWAYS = 1000000 };
enum {
  TCP_ONE_IN = 4,
  PROMPT_ONE_IN = 4,
  MACS_ONE_IN = 4,
  ECN_ONE_IN = 2,
  TOTAL_MAX_BYTES = 3 << 20,
  LONG_MESSAGES = 11,
  EDGE_MESSAGES = 8
};

static struct duo *duo; /* the duo of the scenario that is drawn */

/* ---- sizes and times ---- */

static uint32_t draw_size(struct rng *r) {
  static const uint32_t around_early[] = {HARP_EARLY_MAX_BYTES - 1, HARP_EARLY_MAX_BYTES,
                                          HARP_EARLY_MAX_BYTES + 1};
  switch (rng_below(r, 12)) {
  case 0:
    return 0;
  case 1:
    return (uint32_t)rng_between(r, 1, 8);
  case 2:
    return around_early[rng_below(r, 3)];
  case 3:
    return (uint32_t)rng_between(r, 1, 32) * HARP_LINE_BYTES; /* as NCCL's LL128 does */
  case 4:
    return (uint32_t)rng_between(r, 1, 64) * 16; /* as its LL does */
  case 5:
  case 6:
    return (uint32_t)rng_between(r, 20000, 140000);
  case 7:
    return rng_below(r, 8) ? (uint32_t)rng_between(r, 1, 300000) : (uint32_t)rng_between(r, 1, 2 << 20);
  default:
    return (uint32_t)rng_below(r, 1u << rng_between(r, 1, 15));
  }
}

static uint32_t draw_ppm(struct rng *r, uint32_t max_ppm, unsigned one_in) {
  if (rng_below(r, one_in)) return 0;
  return (uint32_t)rng_below(r, rng_below(r, 2) ? max_ppm : max_ppm / 20) + 1;
}

static harp_ns draw_delay(struct rng *r) {
  static const harp_ns top[] = {HARP_US(20), HARP_US(200), HARP_MS(2), HARP_MS(20)};
  return HARP_US(1) + rng_below(r, top[rng_below(r, HARP_ARRAY_COUNT(top))]);
}

static void draw_link(struct rng *r, struct simnet_link *l, harp_ns start, harp_ns heal) {
  l->loss_ppm = draw_ppm(r, 300000, 3);
  l->duplicate_ppm = draw_ppm(r, 500000, 4);
  if (duo->config.has_buffer) l->duplicate_ppm = 0; /* no window is for them */
  l->corrupt_ppm = draw_ppm(r, 100000, 5);
  l->truncate_ppm = draw_ppm(r, 50000, 8);
  l->burst_ppm = draw_ppm(r, 10000, 6);
  l->burst_packets = (uint32_t)rng_between(r, 2, 200);
  l->late_ppm = draw_ppm(r, 100000, 5);
  l->late_ns = rng_below(r, HARP_MS(10));
  if (!rng_below(r, 3)) l->jitter_ns = 1 + rng_below(r, 2 * l->delay_ns);
  if (!rng_below(r, 4)) {
    l->own.rate_bytes_s = rng_between(r, 4, 1000) * 1000000;
    if (rng_below(r, 2)) l->own.queue_bytes = (uint32_t)rng_between(r, 20000, 400000);
  }
  if (!rng_below(r, 8)) { /* nothing passes for a while, once or repeatedly */
    harp_ns from = start + rng_below(r, HARP_MS(200));
    for (uint64_t n = rng_between(r, 1, 4); n--;) {
      harp_ns to = from + rng_below(r, HARP_MS(400));
      simnet_blackhole(l, from, HARP_MIN(to, heal));
      from = to + rng_below(r, HARP_MS(100));
    }
  }
}

static void blackhole_both(struct simnet *n, unsigned path, harp_ns from, harp_ns to) {
  simnet_blackhole(&n->links[SIMNET_THERE][path], from, to);
  simnet_blackhole(&n->links[SIMNET_BACK][path], from, to);
}

/* Two hosts with ENIs, joined as a connection would join them. Returns the number of paths. */
static unsigned draw_hosts(struct rng *r, struct duo_config *c, uint32_t lines) {
  struct harp_pairing pairings[HARP_PATHS_MAX];
  struct harp_endpoint e[2];
  for (unsigned k = 0; k < 2; k++) {
    e[k] = (struct harp_endpoint){.eni_count = (uint16_t)rng_between(r, 1, rng_below(r, 4) ? 4 : 8),
                                  .path_count = (uint16_t)rng_between(r, 1, rng_below(r, 2) ? 2 : 16)};
    for (unsigned i = 0; i < e[k].eni_count; i++)
      e[k].enis[i] = (struct harp_endpoint_eni){
          .family = 4, .port_count = 16, .speed_mbps = (uint32_t)rng_below(r, 3) * 1000};
  }
  unsigned count = harp_pairing_make(&e[0], &e[1], pairings);
  for (unsigned i = 0; i < count; i++) {
    c->paths[i] = (struct harp_path_config){.lines_max = lines,
                                            .local_eni = pairings[i].client_eni,
                                            .remote_eni = pairings[i].server_eni,
                                            .standby = pairings[i].standby};
  }
  return count;
}

static unsigned draw_paths(struct rng *r, struct duo_config *c) {
  static const uint32_t sizes[] = {8, 11, 26, 69};
  uint32_t lines = sizes[rng_below(r, 4)];
  if (!rng_below(r, 5)) return draw_hosts(r, c, lines);
  unsigned count = rng_below(r, 2) ? 1 : (unsigned)rng_between(r, 1, 4);
  unsigned flows = rng_below(r, 3) ? 1 : (unsigned)rng_between(r, 2, 4); /* between the same two ENIs */
  for (unsigned i = 0; i < count; i++) {
    c->paths[i].lines_max = rng_below(r, 4) ? lines : sizes[rng_below(r, 4)];
    c->paths[i].local_eni = c->paths[i].remote_eni = (uint8_t)(i / flows);
    c->paths[i].speed_mbps = (uint32_t)rng_below(r, 3) * 500;
  }
  return count;
}

/* Whole ENIs fail, of either side: for a while, flapping, or for good; a pair of them lives. */
static void draw_eni_faults(struct rng *r, struct scenario *s) {
  const struct harp_path_config *live = &duo->config.paths[rng_below(r, duo->config.path_count)];
  for (unsigned k = 0; k < 16; k++) {
    bool local = k < 8, for_good = rng_below(r, 2);
    if ((k & 7) == (local ? live->local_eni : live->remote_eni) || rng_below(r, 2)) continue;
    unsigned ways = (unsigned)rng_between(r, 1, 3); /* both, or one direction */
    harp_ns from = duo->now + rng_below(r, HARP_MS(50));
    for (uint64_t n = for_good ? 1 : rng_between(r, 1, 4); n--;) {
      harp_ns to = for_good ? HARP_NEVER : HARP_MIN(from + rng_below(r, HARP_MS(200)), s->heal);
      for (unsigned i = 0; i < duo->config.path_count; i++) {
        const struct harp_path_config *p = &duo->config.paths[i];
        if ((local ? p->local_eni : p->remote_eni) != (k & 7)) continue;
        for (unsigned way = 0; way < SIMNET_WAYS; way++) {
          if (ways >> way & 1) simnet_blackhole(&duo->net.links[way][i], from, to);
        }
        if (for_good) s->dead |= 1ull << i;
      }
      from = to + rng_below(r, HARP_MS(100));
    }
  }
}

/* ---- tcp paths ---- */

/* One to three connections between the ENIs of a path. */
static unsigned add_tcp(struct rng *r, struct duo_config *c, const struct harp_path_config *like,
                        unsigned left) {
  unsigned most = rng_below(r, 2) ? 1 : 3, count = (unsigned)rng_between(r, 1, HARP_MIN(most, left));
  for (unsigned i = 0; i < count; i++) {
    struct harp_path_config *p = &c->paths[c->path_count++];
    *p = *like;
    p->is_tcp = true;
    p->lines_max = HARP_RECORD_MAX_LINES;
  }
  return count;
}

/* tcp paths in place of all others, or beside those of some pairs of ENIs. */
static void draw_tcp_paths(struct rng *r, struct duo_config *c) {
  struct harp_path_config others[HARP_PATHS_MAX];
  unsigned count = c->path_count, left = DUO_TCP_MAX;
  bool alone = !rng_below(r, 3);
  memcpy(others, c->paths, sizeof others);
  if (alone) c->path_count = 0;
  for (unsigned i = 0; i < count && left && c->path_count + left <= HARP_PATHS_MAX; i++) {
    bool is_new_pair = !i || others[i].local_eni != others[i - 1].local_eni ||
                       others[i].remote_eni != others[i - 1].remote_eni;
    bool skips = !alone && rng_below(r, 4) == 0 && c->path_count > count;
    if (is_new_pair && !skips && (alone || !others[i].standby)) left -= add_tcp(r, c, &others[i], left);
  }
}

static void draw_tcp_faults(struct rng *r, struct duo_config *c) {
  static const uint32_t rooms[] = {16 << 10, 64 << 10, TCPNET_ROOM_BYTES};
  static const uint32_t reads[] = {2000, 20000, 1 << 20};
  c->tcp.room_bytes = rooms[rng_below(r, 3)];
  c->tcp.read_bytes = reads[rng_below(r, 3)];
  c->tcp.partial_ppm = draw_ppm(r, 500000, 3);
  c->tcp.reset_ppm = draw_ppm(r, 1000000, 3);
  c->tcp.silent_ppm = draw_ppm(r, 600000, 2);
  c->tcp.refuse_ppm = draw_ppm(r, 500000, 3);
  c->tcp.timeout_ns = HARP_MS(100) + rng_below(r, HARP_SEC(2));
  c->hurry = rng_below(r, 2) ? 1u << rng_below(r, 16) : 0;
}

/* Makes the seed one with tcp paths, or not. Its own numbers are drawn for that: seeds without are what they
 * would be if there were no such paths. */
static void draw_tcp(struct rng *r, struct duo_config *c, bool clean) {
  if (rng_below(r, TCP_ONE_IN)) return;
  draw_tcp_paths(r, c);
  c->is_one_way = false; /* the engine has both halves */
  c->watched_ppm = draw_ppm(r, 1000000, 2);
  c->tcp = (struct tcpnet_config){
      .room_bytes = TCPNET_ROOM_BYTES, .read_bytes = 1 << 20, .timeout_ns = HARP_SEC(1)};
  if (clean) return;
  c->trouble_ppm = draw_ppm(r, 10000, 2);
  c->tcp.spoil_ppm = draw_ppm(r, 20000, 3);
  draw_tcp_faults(r, c);
}

/* Whether the ends answer requests for acknowledgement at once: never, in some passes or in all. Its own
 * numbers are drawn for that, as above. */
static void draw_prompt(uint64_t seed, struct duo_config *c) {
  struct rng r = {seed * 0xD1B54A32D192ED03ull + 5};
  if (rng_below(&r, PROMPT_ONE_IN)) return;
  c->prompt_ppm = rng_below(&r, 2) ? PPM_ALWAYS : (uint32_t)rng_below(&r, PPM_ALWAYS);
}

/* Whether packets are ECN-capable, and what the network makes of it: it marks some, or drops them all on some
 * links. Its own numbers are drawn for that, as above. */
static void draw_ecn(struct rng *r, struct duo_config *c) {
  bool ecn = rng_below(r, ECN_ONE_IN) == 0;
  for (unsigned i = 0; i < c->path_count; i++) c->paths[i].ecn = ecn;
}

static void draw_marks(struct rng *r, bool clean) {
  bool drops = !clean && rng_below(r, 3) == 0;
  uint32_t ce_ppm = draw_ppm(r, PPM_ALWAYS, 3);
  for (unsigned way = 0; way < SIMNET_WAYS; way++) {
    for (unsigned i = 0; i < duo->config.path_count; i++) {
      struct simnet_link *l = &duo->net.links[way][i];
      l->ce_ppm = ce_ppm;
      l->drops_ect = drops && rng_below(r, 2);
    }
  }
}

/* Whether packets and records have MACs, and somebody on the way forges some of both. Its own numbers are
 * drawn for that, as above. */
static void draw_macs(uint64_t seed, struct duo_config *c, bool clean) {
  struct rng r = {seed * 0x8CB92BA72F3D8DD7ull + 11};
  if (rng_below(&r, MACS_ONE_IN)) return;
  c->macs = true;
  if (!clean) c->attack_ppm = draw_ppm(&r, 200000, 3);
}

static uint32_t near_wrap(struct rng *r, bool wrap, uint32_t span) {
  return wrap ? 0u - (uint32_t)rng_below(r, span) : (uint32_t)rng_next(r);
}

static void draw_config(struct rng *r, struct duo_config *c, bool clean) {
  static const uint32_t frames[] = {1, 4, 16, 64};
  static const uint32_t windows[] = {64 << 10, 512 << 10, 4 << 20};
  bool wrap = !rng_below(r, 4);
  c->path_count = draw_paths(r, c);
  c->first_number = near_wrap(r, wrap, 500);
  c->skip_seed = c->first_number % 2 ? c->first_number : 0;
  c->window_bytes = windows[rng_below(r, 3)];
  c->window_ppm = draw_ppm(r, 50000, 3);
  c->cc = rng_below(r, 3) ? &harp_cc_target : &harp_cc_reno;
  c->superframe_packets = frames[rng_below(r, 4)];
  c->pad = rng_below(r, 2);
  c->ride = rng_below(r, 2);
  c->batch = rng_below(r, 2);
  c->is_one_way = !rng_below(r, 4);
  for (unsigned i = 0; i < DUO_ENDS; i++) c->control_ns[i] = draw_delay(r);
  if (clean) return;
  c->stray_ppm = draw_ppm(r, 100000, 8);
  c->has_buffer = !rng_below(r, 3);
  if (!c->has_buffer) c->absurd_ppm = draw_ppm(r, 200000, 6);
  c->refuse_ppm = draw_ppm(r, 50000, 6);
  c->pause_ppm = draw_ppm(r, 5000, 5);
  c->pause_ns = HARP_US(10) + rng_below(r, HARP_MS(5));
  if (c->has_buffer && !c->pause_ppm) c->pause_ppm = 2000;
  c->down_ppm = draw_ppm(r, 10000, 12);
  c->no_frame_ppm = draw_ppm(r, 200000, 3);
  c->no_frame_ns = rng_below(r, 2) ? HARP_US(20) : HARP_MS(3);
}

static void draw_network(struct rng *r, struct scenario *s) {
  unsigned paths = duo->config.path_count;
  for (unsigned i = 0; i < paths; i++) {
    harp_ns delay = draw_delay(r);
    if (s->clean) delay = HARP_MIN(delay, HARP_MS(1));
    for (unsigned way = 0; way < SIMNET_WAYS; way++) {
      struct simnet_link *l = &duo->net.links[way][i];
      l->delay_ns = rng_below(r, 2) ? delay : delay / 2 + 1;
      if (!s->clean) draw_link(r, l, duo->now, s->heal);
    }
  }
  if (s->clean) return;
  if (!rng_below(r, 10)) { /* a route with a smaller MTU */
    struct simnet_link *l = &duo->net.links[rng_below(r, 2)][rng_below(r, paths)];
    l->mtu_bytes = rng_below(r, 2) ? 1500 : HARP_DATA_HEADER_BYTES + HARP_PACKET_MIN_LINES * HARP_LINE_BYTES;
    if (duo->config.macs) l->mtu_bytes += HARP_MAC_BYTES;
    l->mtu_from_ns = duo->now + rng_below(r, HARP_MS(5));
  }
  if (paths > 1 && !rng_below(r, 3)) {
    draw_eni_faults(r, s);
  } else if (paths > 1 && !rng_below(r, 4)) {
    unsigned live = (unsigned)rng_below(r, paths);
    for (unsigned i = 0; i < paths; i++) {
      if (i == live || rng_below(r, 2)) continue;
      harp_ns from = duo->now + rng_below(r, HARP_MS(20));
      if (rng_below(r, 2))
        simnet_blackhole(&duo->net.links[rng_below(r, 2)][i], from, HARP_NEVER);
      else
        blackhole_both(&duo->net, i, from, HARP_NEVER);
      s->dead |= 1ull << i;
    }
  }
  if (!rng_below(r, 64)) { /* silence that no timer may grow tired of */
    harp_ns from = duo->now + rng_below(r, HARP_MS(2));
    s->heal += HARP_SEC(300);
    for (unsigned i = 0; i < paths; i++) blackhole_both(&duo->net, i, from, from + HARP_SEC(300));
  }
}

/* ---- streams and messages ---- */

/* A scenario that runs into the edge of the window: one line is lost again and again until all of the window
 * behind it was sent. */
static struct {
  uint32_t line;
  uint32_t late;    /* messages at the end whose receives wait for the edge */
  harp_ns after_ns; /* and are posted so long after the sender has come there */
} edge;

static bool stubborn_loss(void *context, enum simnet_way way, unsigned path, uint64_t nth,
                          const uint8_t *wire, uint32_t bytes, harp_ns now) {
  const struct harp_tx_stream *tx = duo->streams[0].tx;
  struct harp_packet p;
  (void)context, (void)path, (void)nth;
  bool reached = tx->sent_line - tx->delivered == HARP_WINDOW_LINES;
  for (; (reached || !duo->faults) && edge.late; edge.late--)
    duo->messages[duo->count - edge.late].recv_at = now + edge.after_ns;
  if (!duo->faults || way != SIMNET_THERE || reached) return true;
  if (harp_packet_decode(wire, bytes, &p) || p.type != HARP_PACKET_DATA) return true;
  return edge.line - p.data.line >= harp_lines_of(p.data.length);
}

/* More than the window holds, all posted at once. Large messages alone; or large ones that end just before
 * the edge, and small ones across it that arrive before their receives. */
static void draw_long(struct rng *r, harp_ns heal) {
  bool early = rng_below(r, 2);
  struct duo_stream_config c = {
      .first_line = (uint32_t)rng_next(r), .first_message = (uint32_t)rng_next(r), .in_flight_max = 32};
  uint32_t large = early ? EDGE_MESSAGES : LONG_MESSAGES, left = HARP_WINDOW_LINES;
  if (early) left -= (uint32_t)rng_between(r, 1, 100);
  edge.line = c.first_line + (uint32_t)rng_below(r, early ? 400 : HARP_WINDOW_LINES / 8);
  edge.late = early ? HARP_EARLY_MESSAGES / 2 : 0;
  edge.after_ns = rng_below(r, 2 * duo->net.links[SIMNET_THERE][0].delay_ns + HARP_US(100));
  duo_open(duo, &c);
  duo->net.filter = stubborn_loss;
  for (uint32_t k = 0; k < large; k++) {
    uint32_t bytes = (uint32_t)rng_between(r, DUO_MESSAGE_MAX_BYTES - 1000, DUO_MESSAGE_MAX_BYTES);
    if (early) bytes = (k + 1 < large ? left / (large - k) : left) * HARP_LINE_BYTES;
    left -= early ? bytes / HARP_LINE_BYTES : 0;
    duo_add(duo, bytes, bytes, duo->now, duo->now);
  }
  for (uint32_t k = 0; k < edge.late; k++)
    duo_add(duo, HARP_EARLY_MAX_BYTES, HARP_EARLY_MAX_BYTES, duo->now, heal);
}

/* The messages of one stream. Small ones alone, or large ones alone, or a mixture; one may be larger than its
 * receive. */
static void draw_messages(struct rng *r, uint32_t count, harp_ns start, bool too_large, uint32_t *total) {
  uint64_t kind = rng_below(r, 6), refused = too_large ? rng_below(r, count) : count;
  harp_ns send = start, recv = start;
  harp_ns send_gap = rng_below(r, 3) ? 0 : draw_delay(r), recv_gap = rng_below(r, 3) ? 0 : draw_delay(r);
  recv += rng_below(r, 3) ? 0 : draw_delay(r);
  for (uint32_t k = 0; k < count; k++) {
    uint32_t bytes = draw_size(r);
    if (kind == 0) bytes = (uint32_t)rng_below(r, 2000);
    if (kind == 1) bytes = (uint32_t)rng_between(r, 20000, 300000);
    if (*total + bytes > TOTAL_MAX_BYTES) bytes %= 1000;
    *total += bytes;
    uint32_t capacity = bytes + (rng_below(r, 2) ? 0 : (uint32_t)rng_below(r, 5000));
    if (k == refused && bytes) capacity = (uint32_t)rng_below(r, bytes);
    duo_add(duo, bytes, capacity, send, recv);
    if (send_gap) send += rng_below(r, 2 * send_gap);
    if (recv_gap) recv += rng_below(r, 2 * recv_gap);
  }
}

static unsigned draw_stream_count(struct rng *r) {
  switch (rng_below(r, 16)) {
  case 0:
    return (unsigned)rng_between(r, 9, rng_below(r, 4) ? 16 : 80);
  case 1:
  case 2:
  case 3:
  case 4:
  case 5:
    return (unsigned)rng_between(r, 2, 8);
  default:
    return 1;
  }
}

/* So many streams of a way, that are open from the start; and where the scenario churns, others that come and
 * go, on a few ids. */
static void draw_streams(struct rng *r, struct scenario *s, enum simnet_way way, unsigned count,
                         unsigned lasting, uint32_t *messages, uint32_t *total) {
  bool wrap = !rng_below(r, 4);
  unsigned ids = duo->config.stream_max - lasting;
  for (unsigned i = 0; i < count; i++) {
    struct duo_stream_config c = {.way = way, .is_on_demand = i >= lasting};
    harp_ns start = duo->now;
    c.in_flight_max = rng_below(r, 4) ? 32 : (uint32_t)rng_between(r, 1, 32);
    if (c.is_on_demand) {
      /* What is left of the last stream of the same id must not look like this one's. */
      c.id = (uint16_t)(lasting + rng_below(r, HARP_MIN(ids, 1 + ids / 3)));
      c.first_line = (uint32_t)rng_next(r);
      c.first_message = (uint32_t)rng_next(r);
      c.open_at = start += rng_below(r, HARP_MS(20) >> rng_below(r, 10));
      if (!s->clean && !rng_below(r, 6)) c.abort_at = start + draw_delay(r);
      c.is_aborted_by_receiver = rng_below(r, 2);
    } else {
      c.id = (uint16_t)(lasting - 1 - i);
      c.first_line = near_wrap(r, wrap, 2000);
      c.first_message = near_wrap(r, wrap, 40);
    }
    bool misused = s->misused && !rng_below(r, 3);
    if (misused && rng_below(r, 2)) {
      c.forge_ppm = (uint32_t)rng_between(r, 1000, 500000);
      c.abort_at = start + 1 + rng_below(r, rng_below(r, 2) ? HARP_MS(2) : HARP_MS(200));
    }
    uint32_t n = HARP_MAX(*messages / (count - i), 1u);
    *messages -= HARP_MIN(*messages, n);
    duo_open(duo, &c);
    draw_messages(r, n, start, misused && !c.forge_ppm, total);
  }
}

struct counts {
  unsigned all[DUO_ENDS], lasting[DUO_ENDS];
};

/* How many streams each way has; returns what bounds their ids. */
static unsigned draw_counts(struct rng *r, const struct scenario *s, bool is_one_way, struct counts *n) {
  unsigned most = 0;
  for (unsigned way = 0; way < DUO_ENDS; way++) {
    n->all[way] = n->lasting[way] = way && is_one_way ? 0 : draw_stream_count(r);
    if (s->churns && n->all[way]) {
      if (!rng_below(r, 3)) n->all[way] = n->lasting[way] = 0;
      n->all[way] += (unsigned)rng_between(r, 1, 8);
    }
    most = HARP_MAX(most, n->lasting[way]);
  }
  return most + (unsigned)rng_between(r, s->churns, 12);
}

static void draw_traffic(struct rng *r, struct scenario *s, const struct counts *n) {
  unsigned sum = n->all[0] + n->all[1];
  uint32_t messages = HARP_MAX((uint32_t)rng_between(r, 12, 40), sum), total = 0;
  for (unsigned way = 0; way < DUO_ENDS; way++) {
    uint32_t share = messages * n->all[way] / sum;
    draw_streams(r, s, (enum simnet_way)way, n->all[way], n->lasting[way], &share, &total);
  }
}

/* In one seed of four, and in none of those that failed before there were replays, somebody sends again what
 * has passed. */
static void draw_replays(uint64_t seed, bool clean) {
  struct rng r = {seed * 0xD6E8FEB86659FD93ull + 5};
  if (clean || duo->config.has_buffer || seed % 8 / 2 != 1) return;
  for (unsigned way = 0; way < SIMNET_WAYS; way++)
    for (unsigned i = 0; i < duo->config.path_count; i++)
      duo->net.links[way][i].replay_ppm = draw_ppm(&r, 200000, 2);
}

struct scenario scenario_start(struct duo *d, uint64_t seed, bool trace, int ride) {
  struct rng r = {seed * 0x2545F4914F6CDD1Dull + 99};
  struct scenario s = {.clean = !rng_below(&r, 10)};
  struct duo_config c = {.seed = seed, .trace = trace};
  struct counts n;
  struct rng tcp = {seed * 0x9FB21C651E98DF25ull + 7}, ecn = {seed * 0xA24BAED4963EE407ull + 3};
  duo = d;
  draw_config(&r, &c, s.clean);
  draw_tcp(&tcp, &c, s.clean);
  draw_prompt(seed, &c);
  draw_macs(seed, &c, s.clean);
  draw_ecn(&ecn, &c);
  if (ride >= 0) c.ride = ride;
  s.churns = !rng_below(&r, 3);
  s.misused = !s.clean && !rng_below(&r, 10);
  s.longer = !s.clean && !rng_below(&r, 100);
  s.heal = HARP_MS(1) + rng_below(&r, FAULTS_MAX_NS);
  c.stream_max = draw_counts(&r, &s, c.is_one_way, &n);
  duo_start(d, &c);
  draw_network(&r, &s);
  draw_marks(&ecn, s.clean);
  draw_replays(seed, s.clean);
  if (s.longer)
    draw_long(&r, s.heal);
  else
    draw_traffic(&r, &s, &n);
  return s;
}
