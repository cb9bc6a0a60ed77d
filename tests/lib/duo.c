#include "lib/duo.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/seq.h"

enum {
  PATTERN_BYTES = 4 << 20,
  BITS_WORDS = DUO_ARENA_BYTES / HARP_LINE_BYTES / 64 * 2 + 4 * DUO_MESSAGES_MAX,
  SAME_INSTANT_MAX = 20000, /* events at one moment of virtual time */
  POLLS_MAX = 100000,       /* superframes out of one pass */
  DATAGRAM_MAX = 65507,
  GUARD = 0xC3,
};

/* Both directions have their own secrets, as the handshake would have made them. */
static const uint64_t TO_RECEIVER = 0x1122334455667788, TO_SENDER = 0x99AABBCCDDEEFF00;
static const uint32_t SEED_DATA = 0x13579BDF, SEED_ACKS = 0x2468ACE0;

static void *must(void *p) {
  if (!p) abort();
  return p;
}

_Noreturn void duo_fail(const struct duo *d, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fflush(stdout);
  fprintf(stderr, "FAILED at %" PRIu64 ".%03" PRIu64 " us, %s: ", d->now / 1000, d->now % 1000, d->label);
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n");
  va_end(args);
  exit(1);
}

/* ---- set-up ---- */

void duo_start(struct duo *d, const struct duo_config *config) {
  if (!d->pattern) {
    struct rng fixed = {1};
    d->pattern = must(malloc(PATTERN_BYTES));
    for (size_t i = 0; i < PATTERN_BYTES; i += 8) {
      uint64_t word = rng_next(&fixed);
      memcpy(d->pattern + i, &word, 8);
    }
    d->arena = must(malloc(DUO_ARENA_BYTES));
    d->bits = must(malloc(BITS_WORDS * sizeof *d->bits));
    d->staging = must(malloc(HARP_STAGING_BYTES));
    d->sender = must(malloc(harp_sender_bytes(SIMNET_PATHS_MAX)));
    d->receiver = must(malloc(sizeof *d->receiver));
    d->tx.trace = must(malloc(sizeof *d->tx.trace));
    d->rx.trace = must(malloc(sizeof *d->rx.trace));
  }
  if (config->path_count > SIMNET_PATHS_MAX) abort();
  d->config = *config;
  d->rng.state = config->seed ^ 0xD00;
  simnet_reset(&d->net, config->seed ^ 0x4E7);
  d->now = HARP_MS(1);
  d->arena_used = d->bits_used = 0;
  d->count = d->send_next = d->sent_count = d->recv_next = d->received_count = 0;
  d->last_sender_delivered = d->last_receiver_delivered = config->first_line;
  d->faults = true;
  d->downs = 0;
  d->steps = d->same_instant = d->data_packets = d->probe_packets = d->ack_packets = 0;
  memset(d->path_packets, 0, sizeof d->path_packets);
  memset(&d->tx.counters, 0, sizeof d->tx.counters);
  memset(&d->rx.counters, 0, sizeof d->rx.counters);
  d->tx.trace->count = d->rx.trace->count = d->tx.traced = d->rx.traced = 0;
  d->tx.asleep_until_ns = d->rx.asleep_until_ns = 0;

  struct harp_sender_config sc = {
      .first_line = config->first_line,
      .first_message = config->first_message,
      .first_number = config->first_number,
      .path_count = config->path_count,
      .window_max_bytes = config->window_max_bytes,
      .cc = config->cc,
  };
  memcpy(sc.paths, config->paths, sizeof sc.paths);
  struct harp_receiver_config rc = {
      .first_line = config->first_line,
      .first_message = config->first_message,
      .first_number = config->first_number,
      .path_count = config->path_count,
      .staging = d->staging,
  };
  /* Nothing may rely on fresh memory being zero. */
  memset(d->sender, 0x5A, harp_sender_bytes(config->path_count));
  memset(d->receiver, 0x5A, sizeof *d->receiver);
  harp_sender_init(d->sender, &sc, config->trace ? d->tx.trace : NULL, &d->tx.counters, d->now);
  harp_receiver_init(d->receiver, &rc, config->trace ? d->rx.trace : NULL, &d->rx.counters);
  struct harp_conn_keys tx = {TO_RECEIVER, TO_SENDER, SEED_DATA, SEED_ACKS};
  struct harp_conn_keys rx = {TO_SENDER, TO_RECEIVER, SEED_ACKS, SEED_DATA};
  harp_conn_init(&d->tx.conn, &tx, d->sender, NULL);
  harp_conn_init(&d->rx.conn, &rx, NULL, d->receiver);
}

void duo_fini(struct duo *d) {
  simnet_fini(&d->net);
  free(d->pattern), free(d->arena), free(d->bits), free(d->staging);
  free(d->sender), free(d->receiver), free(d->tx.trace), free(d->rx.trace);
  memset(d, 0, sizeof *d);
}

static uint64_t *take_bits(struct duo *d, uint32_t lines) {
  uint32_t words = (lines + 63) / 64;
  uint64_t *at = d->bits + d->bits_used;
  d->bits_used += words;
  if (d->bits_used > BITS_WORDS) abort();
  memset(at, 0, words * sizeof *at);
  return at;
}

void duo_add(struct duo *d, uint32_t bytes, uint32_t capacity, harp_ns send_at, harp_ns recv_at) {
  if (d->count == DUO_MESSAGES_MAX || bytes > DUO_MESSAGE_MAX_BYTES || capacity < bytes) abort();
  struct duo_message *m = &d->messages[d->count++];
  uint32_t lines = harp_lines_of(bytes);
  *m = (struct duo_message){.bytes = bytes, .capacity = capacity, .send_at = send_at, .recv_at = recv_at};
  m->content = d->pattern + rng_below(&d->rng, PATTERN_BYTES - DUO_MESSAGE_MAX_BYTES);
  m->placed = take_bits(d, lines);
  m->staged = take_bits(d, lines);
  if (d->arena_used + capacity + 2 * DUO_GUARD_BYTES + 8 > DUO_ARENA_BYTES) abort();
  m->buffer = d->arena + d->arena_used + DUO_GUARD_BYTES + rng_below(&d->rng, 8);
  memset(m->buffer - DUO_GUARD_BYTES, GUARD, DUO_GUARD_BYTES);
  memset(m->buffer + bytes, GUARD, DUO_GUARD_BYTES);
  d->arena_used = (uint32_t)(m->buffer + capacity + DUO_GUARD_BYTES - d->arena);
}

/* ---- traces ---- */

static void flush_trace(struct duo *d, struct duo_end *end, const char *who) {
  char text[200];
  if (end->trace->count - end->traced > HARP_TRACE_SLOTS) end->traced = end->trace->count - HARP_TRACE_SLOTS;
  for (; end->traced < end->trace->count; end->traced++) {
    harp_trace_format(&end->trace->slots[end->traced % HARP_TRACE_SLOTS], text, sizeof text);
    if (d->trace_out) fprintf(d->trace_out, "%s %s\n", who, text);
  }
}

/* ---- what the engine and NCCL do at the receiving end ---- */

/* Tests and sets the bits of the lines that [from, from + bytes) of a message covers; false if one was set.
 */
static bool mark(uint64_t *bits, uint32_t from, uint32_t bytes) {
  uint32_t end = (from + bytes + HARP_LINE_BYTES - 1) / HARP_LINE_BYTES;
  for (uint32_t line = from / HARP_LINE_BYTES; line < end; line++) {
    if (bits[line / 64] >> (line % 64) & 1) return false;
    bits[line / 64] |= 1ull << (line % 64);
  }
  return true;
}

static bool marked(const uint64_t *bits, uint32_t from, uint32_t bytes) {
  uint32_t end = (from + bytes + HARP_LINE_BYTES - 1) / HARP_LINE_BYTES;
  for (uint32_t line = from / HARP_LINE_BYTES; line < end; line++) {
    if (!(bits[line / 64] >> (line % 64) & 1)) return false;
  }
  return true;
}

/* Checks one run of a placement into the posted buffer (or staging), does the copy, and books its lines. */
static void place(struct duo *d, uint32_t k, uint8_t *dst, const uint8_t *src, uint32_t offset,
                  uint32_t bytes, bool from_staging) {
  struct duo_message *m = &d->messages[k];
  bool posted = k < d->recv_next;
  uint32_t lines = (bytes + HARP_LINE_BYTES - 1) / HARP_LINE_BYTES;
  if (!bytes || offset % HARP_LINE_BYTES || offset + bytes > m->bytes)
    duo_fail(d, "message %u: run %u+%u of %u bytes", k, offset, bytes, m->bytes);
  if (bytes % HARP_LINE_BYTES && offset + bytes != m->bytes)
    duo_fail(d, "message %u: run %u+%u ends within a line", k, offset, bytes);
  if (m->received) duo_fail(d, "message %u: placed after it was done", k);
  if (memcmp(src, m->content + offset, bytes))
    duo_fail(d, "message %u: wrong bytes at %u+%u", k, offset, bytes);
  if (posted || from_staging) {
    if (dst != m->buffer + offset)
      duo_fail(d, "message %u: run %u+%u at the wrong address", k, offset, bytes);
    if (from_staging && !marked(m->staged, offset, bytes))
      duo_fail(d, "message %u: run %u+%u was not in staging", k, offset, bytes);
    if (!mark(m->placed, offset, bytes)) duo_fail(d, "message %u: run %u+%u placed twice", k, offset, bytes);
    m->placed_lines += lines;
  } else {
    uint32_t slot = (d->config.first_message + k) % HARP_EARLY_MESSAGES;
    if (dst != d->staging + slot * HARP_EARLY_MAX_BYTES + offset || offset + bytes > HARP_EARLY_MAX_BYTES)
      duo_fail(d, "message %u: run %u+%u at the wrong place of staging", k, offset, bytes);
    if (!mark(m->staged, offset, bytes)) duo_fail(d, "message %u: run %u+%u staged twice", k, offset, bytes);
  }
  memcpy(dst, src, bytes);
}

static void check_ascending(struct duo *d, const struct harp_placement *p) {
  uint32_t end = 0;
  if (p->count > HARP_RUNS_MAX) duo_fail(d, "placement of %u runs", p->count);
  for (uint32_t i = 0; i < p->count; i++) {
    if (i && p->runs[i].from <= end) duo_fail(d, "runs of a placement don't ascend");
    end = p->runs[i].from + p->runs[i].bytes;
  }
}

static void post_receive(struct duo *d) {
  struct duo_message *m = &d->messages[d->recv_next];
  struct harp_placement p;
  const uint8_t *early;
  if (harp_receiver_post(d->receiver, m->buffer, m->capacity, m, &p, &early, d->now))
    duo_fail(d, "receive %u refused", d->recv_next);
  check_ascending(d, &p);
  if (p.count && (!early || p.dst != m->buffer)) duo_fail(d, "early data without its source");
  for (uint32_t i = 0; i < p.count; i++) {
    place(d, d->recv_next, p.dst + p.runs[i].from, early + p.runs[i].from, p.runs[i].from, p.runs[i].bytes,
          true);
  }
  /* Everything staged must have been handed over. */
  for (uint32_t w = 0; w < (harp_lines_of(m->bytes) + 63) / 64; w++) {
    if (m->staged[w] != m->placed[w]) duo_fail(d, "message %u: staged lines were left behind", d->recv_next);
  }
  d->recv_next++;
}

static void pump_receiver(struct duo *d) {
  struct harp_packet ack;
  uint8_t wire[HARP_ACK_MAX_BYTES];
  void *cookie;
  uint64_t number;
  uint32_t bytes;
  while (harp_receiver_poll_done(d->receiver, &cookie, &bytes)) {
    struct duo_message *m = cookie;
    if (m != &d->messages[d->received_count]) duo_fail(d, "receives complete out of order");
    if (bytes != m->bytes) duo_fail(d, "receive %u: %u bytes reported", d->received_count, bytes);
    if (m->bytes && m->placed_lines != harp_lines_of(m->bytes))
      duo_fail(d, "receive %u done with %u lines", d->received_count, m->placed_lines);
    if (memcmp(m->buffer, m->content, m->bytes)) duo_fail(d, "receive %u: wrong bytes", d->received_count);
    m->received = true;
    m->received_at = d->now;
    d->received_count++;
  }
  harp_conn_on_timeout(&d->rx.conn, d->now);
  for (unsigned polls = 0; harp_receiver_poll_ack(d->receiver, &ack, &number, d->now); polls++) {
    if (polls > d->config.path_count) duo_fail(d, "endless acknowledgements");
    ack.token = d->rx.conn.keys.tx_token;
    size_t n = harp_packet_encode_ack(wire, &ack, number, d->rx.conn.keys.tx_seed);
    d->ack_packets++;
    d->path_packets[ack.path]++;
    simnet_send(&d->net, SIMNET_ACKS, ack.path, wire, (uint32_t)n, d->now);
  }
  if (harp_conn_deadline_ns(&d->rx.conn, d->now) <= d->now) duo_fail(d, "the receiver's deadline stays due");
}

/* ---- the sending end ---- */

static bool one_is_receivable(const struct duo *d, const struct harp_tx_run *run) {
  uint32_t k = run->message - d->config.first_message;
  if (k >= d->count || k >= d->send_next) return false;
  const struct duo_message *m = &d->messages[k];
  return run->size == m->bytes && run->data == m->content + run->offset;
}

static void check_run(struct duo *d, const struct harp_tx_run *run, const struct harp_path *p, bool probing) {
  if (!run->count || run->count > HARP_BURST_MAX_PACKETS) duo_fail(d, "run of %u packets", run->count);
  if (run->path != p->index) duo_fail(d, "run for another path");
  if (run->type == HARP_PACKET_PROBE) return;
  if (!one_is_receivable(d, run)) duo_fail(d, "run of message %u at offset %u", run->message, run->offset);
  uint32_t k = run->message - d->config.first_message;
  if (k >= d->recv_next && (run->size > HARP_EARLY_MAX_BYTES || k >= d->recv_next + HARP_EARLY_MESSAGES))
    duo_fail(d, "message %u sent without credit", k);
  if (!probing && p->inflight_bytes > p->cc.window_bytes)
    duo_fail(d, "path %u: %u bytes in flight, window %u", run->path, p->inflight_bytes, p->cc.window_bytes);
}

/* Encodes the run's packets at `at`, each `stride` bytes after the one before. Returns the last one's length.
 */
static uint32_t encode(struct duo *d, const struct harp_tx_run *run, uint8_t *at, uint32_t stride) {
  const struct harp_conn_keys *keys = &d->tx.conn.keys;
  uint32_t full = run->lines_per_packet * HARP_LINE_BYTES, length = 0;
  for (uint32_t i = 0; i < run->count; i++, at += stride) {
    bool last = i + 1 == run->count;
    length = last ? run->last_bytes : full;
    struct harp_packet f = {
        .type = run->type,
        .flags = last && run->ack_soon ? HARP_FLAG_ACK_SOON : 0,
        .path = run->path,
        .token = keys->tx_token,
        .data = {.time = harp_ticks_from_ns(d->now),
                 .message = run->message,
                 .line = run->line + i * run->lines_per_packet,
                 .offset = run->offset + i * full,
                 .size = run->size,
                 .length = length},
    };
    if (run->type == HARP_PACKET_PROBE)
      harp_packet_encode_probe(at, &f, run->number + i, keys->tx_seed);
    else
      harp_packet_encode_data(at, &f, run->number + i, keys->tx_seed, run->data + (size_t)i * full);
  }
  return HARP_DATA_HEADER_BYTES + length;
}

/* Builds one superframe for the path and hands it to the network; false when nothing came. */
static bool send_superframe(struct duo *d, struct harp_path *p) {
  static uint8_t frame[DATAGRAM_MAX + HARP_PACKET_MAX_BYTES];
  uint32_t stride = HARP_DATA_HEADER_BYTES + p->lines * HARP_LINE_BYTES;
  uint32_t room = HARP_MIN(d->config.superframe_packets, DATAGRAM_MAX / stride), packets = 0, tail = 0;
  struct harp_tx_run run;
  while (room) {
    bool probing = p->probe_due;
    uint32_t lines = p->lines;
    if (!harp_sender_poll(d->sender, p, room, &run, d->now)) break;
    harp_sender_check(d->sender);
    check_run(d, &run, p, probing);
    if (p->lines != lines) duo_fail(d, "the packet size changed within a superframe");
    if (run.type == HARP_PACKET_PROBE) {
      if (packets) duo_fail(d, "a probe in mid-superframe");
      stride = HARP_MAX(stride, HARP_DATA_HEADER_BYTES + run.last_bytes);
    }
    if (tail && tail < stride)
      memset(frame + (packets - 1) * stride + tail, 0xA5, stride - tail); /* padding */
    tail = encode(d, &run, frame + packets * stride, stride);
    packets += run.count;
    if (run.type == HARP_PACKET_PROBE)
      d->probe_packets++;
    else
      d->data_packets += run.count;
    if (run.count > room) duo_fail(d, "%u packets where %u were asked for", run.count, room);
    room -= run.count;
    if (run.type == HARP_PACKET_PROBE || (tail < stride && !d->config.pad)) break;
  }
  if (!packets) return false;
  if (d->faults && rng_chance(&d->rng, d->config.refuse_ppm)) return true; /* the driver was busy */
  d->path_packets[p->index] += packets;
  for (uint32_t i = 0; i < packets; i++) {
    simnet_send(&d->net, SIMNET_DATA, p->index, frame + i * stride, i + 1 == packets ? tail : stride, d->now);
  }
  return true;
}

static void pump_sender(struct duo *d) {
  void *cookie;
  struct harp_path *p;
  while (harp_sender_poll_done(d->sender, &cookie)) {
    struct duo_message *m = cookie;
    if (m != &d->messages[d->sent_count]) duo_fail(d, "sends complete out of order");
    uint32_t lines = harp_lines_of(m->bytes);
    if (m->bytes && !marked(m->placed, 0, m->bytes) && !marked(m->staged, 0, m->bytes))
      duo_fail(d, "send %u of %u lines done before it arrived", d->sent_count, lines);
    m->sent = true;
    d->sent_count++;
    while (d->send_next < d->count && d->messages[d->send_next].send_at <= d->now &&
           d->send_next - d->sent_count < d->config.in_flight_max) {
      struct duo_message *next = &d->messages[d->send_next++];
      next->posted_at = d->now;
      if (harp_sender_post(d->sender, next->content, next->bytes, next, d->now)) duo_fail(d, "send refused");
    }
  }
  harp_conn_on_timeout(&d->tx.conn, d->now);
  for (unsigned polls = 0; (p = harp_sender_pick(d->sender, d->now)); polls++) {
    if (polls > POLLS_MAX) duo_fail(d, "endless sending");
    if (!send_superframe(d, p)) duo_fail(d, "path %u was picked and had nothing to send", p->index);
  }
  harp_ns deadline = harp_conn_deadline_ns(&d->tx.conn, d->now);
  if (deadline <= d->now) duo_fail(d, "the sender's deadline stays due");
}

/* ---- events ---- */

static void on_datagram(struct duo *d) {
  struct simnet_datagram g;
  struct harp_packet p;
  struct harp_placement where;
  simnet_take(&d->net, &g);
  struct duo_end *end = g.way == SIMNET_DATA ? &d->rx : &d->tx;
  enum harp_drop drop = harp_packet_decode(g.wire, g.bytes, &p);
  if (!drop && p.token != end->conn.keys.rx_token) drop = HARP_DROP_TOKEN;
  if (!drop)
    drop = harp_conn_on_packet(&end->conn, g.wire, &p, &where, d->now);
  else
    end->counters.drops[drop]++;
  bool taken = drop == HARP_DROP_NONE || drop == HARP_DROP_DUPLICATE;
  if (taken && g.touched && g.touched_at < HARP_CRC_FROM_BYTE + harp_packet_crc_bytes(&p))
    duo_fail(d, "a packet damaged at byte %u was taken", g.touched_at);
  if (!g.touched && !taken && drop != HARP_DROP_WINDOW)
    duo_fail(d, "a good packet was dropped: %s", harp_drop_name(drop));
  if (!drop && p.type == HARP_PACKET_DATA) {
    check_ascending(d, &where);
    uint32_t k = p.data.message - d->config.first_message;
    for (uint32_t i = 0; i < where.count; i++) {
      uint32_t from = where.runs[i].from;
      if (from + where.runs[i].bytes > p.data.length) duo_fail(d, "a run beyond the payload");
      place(d, k, where.dst + from, p.data.payload + from, p.data.offset + from, where.runs[i].bytes, false);
    }
  }
  simnet_release(&d->net, &g);
}

static void check(struct duo *d) {
  harp_sender_check(d->sender);
  harp_receiver_check(d->receiver);
  if (harp_seq_before(d->sender->delivered, d->last_sender_delivered) ||
      harp_seq_before(d->receiver->delivered, d->last_receiver_delivered))
    duo_fail(d, "`delivered` went back");
  if (harp_seq_after(d->sender->delivered, d->receiver->delivered))
    duo_fail(d, "the sender believes more than the receiver has");
  d->last_sender_delivered = d->sender->delivered;
  d->last_receiver_delivered = d->receiver->delivered;
}

static harp_ns post_send_ns(const struct duo *d) {
  if (d->send_next == d->count || d->send_next - d->sent_count >= d->config.in_flight_max) return HARP_NEVER;
  return d->messages[d->send_next].send_at;
}

static harp_ns post_recv_ns(const struct duo *d) {
  if (d->recv_next == d->count || d->recv_next - d->received_count >= d->config.in_flight_max)
    return HARP_NEVER;
  return d->messages[d->recv_next].recv_at;
}

static void maybe_sleep(struct duo *d, struct duo_end *end) {
  if (d->faults && rng_chance(&d->rng, d->config.pause_ppm))
    end->asleep_until_ns = d->now + rng_below(&d->rng, d->config.pause_ns + 1);
}

/* The host says that a link is down, rightly or not. */
static void maybe_down(struct duo *d) {
  if (!d->faults || d->downs == DUO_DOWNS_MAX || !rng_chance(&d->rng, d->config.down_ppm)) return;
  d->downs++;
  harp_sender_path_down(d->sender, (unsigned)rng_below(&d->rng, d->config.path_count), d->now);
  pump_sender(d);
}

static harp_ns next_tx_ns(const struct duo *d) {
  return HARP_MAX(HARP_MIN(harp_conn_deadline_ns(&d->tx.conn, d->now), post_send_ns(d)),
                  d->tx.asleep_until_ns);
}

static harp_ns next_rx_ns(const struct duo *d) {
  return HARP_MAX(HARP_MIN(harp_conn_deadline_ns(&d->rx.conn, d->now), post_recv_ns(d)),
                  d->rx.asleep_until_ns);
}

harp_ns duo_next_ns(const struct duo *d) {
  return HARP_MAX(HARP_MIN(simnet_next_ns(&d->net), HARP_MIN(next_tx_ns(d), next_rx_ns(d))), d->now);
}

bool duo_step(struct duo *d, harp_ns until_ns) {
  harp_ns tx = next_tx_ns(d), net = simnet_next_ns(&d->net), at = duo_next_ns(d);
  if (at >= until_ns) {
    d->now = HARP_MAX(d->now, until_ns);
    return false;
  }
  d->same_instant = at == d->now ? d->same_instant + 1 : 0;
  if (d->same_instant > SAME_INSTANT_MAX) duo_fail(d, "time stands still");
  d->now = at;
  d->steps++;
  bool sender = tx <= at;
  if (net <= at) {
    sender = simnet_next_way(&d->net) == SIMNET_ACKS;
    harp_ns asleep = sender ? d->tx.asleep_until_ns : d->rx.asleep_until_ns;
    if (asleep > at) {
      simnet_postpone(&d->net, asleep);
      return true;
    }
    on_datagram(d);
  } else if (sender && post_send_ns(d) <= at) {
    struct duo_message *m = &d->messages[d->send_next++];
    m->posted_at = d->now;
    if (harp_sender_post(d->sender, m->content, m->bytes, m, d->now)) duo_fail(d, "send refused");
  } else if (!sender && post_recv_ns(d) <= at) {
    post_receive(d);
  }
  if (sender)
    pump_sender(d);
  else
    pump_receiver(d);
  maybe_down(d);
  check(d);
  maybe_sleep(d, sender ? &d->tx : &d->rx);
  if (d->config.trace) {
    flush_trace(d, &d->tx, "tx");
    flush_trace(d, &d->rx, "rx");
  }
  return true;
}

bool duo_run(struct duo *d, harp_ns until_ns) {
  while (!duo_complete(d)) {
    if (!duo_step(d, until_ns)) return false;
  }
  return true;
}

void duo_check_buffers(struct duo *d) {
  for (uint32_t k = 0; k < d->count; k++) {
    const struct duo_message *m = &d->messages[k];
    if (m->received && memcmp(m->buffer, m->content, m->bytes))
      duo_fail(d, "message %u changed after it was done", k);
    for (uint32_t i = 0; i < DUO_GUARD_BYTES; i++) {
      if (m->buffer[-1 - (int)i] != GUARD || m->buffer[m->bytes + i] != GUARD)
        duo_fail(d, "a write outside message %u", k);
    }
  }
}
