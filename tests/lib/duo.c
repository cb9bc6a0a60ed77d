/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/duo.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lib/duo_control.h"
#include "lib/duo_send.h"
#include "lib/duo_stream.h"
#include "lib/duo_tcp.h"
#include "lib/duo_window.h"
#include "lib/trace_text.h"

enum {
  CONTENT_SPREAD_BYTES = 64 << 10, /* where messages begin in the pattern; little of it, which stays cached */
  PATTERN_BYTES = DUO_MESSAGE_MAX_BYTES + CONTENT_SPREAD_BYTES,
  BITS_WORDS = DUO_ARENA_BYTES / HARP_LINE_BYTES / 64 * 2 + 4 * DUO_MESSAGES_MAX,
  SAME_INSTANT_MAX = 20000, /* events at one moment of virtual time */
  GUARD = 0xC3,
  CHECKED_STREAMS = 8, /* with more of them, all are checked only now and then */
  CHECK_STEPS = 32,
  LIVE_STEPS = 64, /* until finished streams are sorted out */
};

/* Both directions have their own secrets, as the handshake would have made them. */
static const uint64_t TOKENS[] = {0x1122334455667788,
                                  0x99AABBCCDDEEFF00}; /* the tokens of packets from end 0, and from end 1 */
static const uint32_t SEEDS[] = {0x13579BDF, 0x2468ACE0};
static const struct harp_mac_secret MACS[] = {{.hash = {1, 2}, .tag = {3, 4}},
                                              {.hash = {5, 6}, .tag = {7, 8}}};

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

static void make_memory(struct duo *d) {
  struct rng fixed = {1};
  d->pattern = duo_must(malloc(PATTERN_BYTES));
  for (size_t i = 0; i < PATTERN_BYTES; i += 8) {
    uint64_t word = rng_next(&fixed);
    memcpy(d->pattern + i, &word, 8);
  }
  d->arena = duo_must(malloc(DUO_ARENA_BYTES));
  d->bits = duo_must(malloc(BITS_WORDS * sizeof *d->bits));
  for (unsigned i = 0; i < DUO_ENDS; i++)
    d->ends[i].trace =
        (struct harp_trace){.ring = duo_must(malloc(sizeof *d->ends[i].trace.ring)), .is_full = true};
}

static void start_sender(struct duo *d, struct duo_end *e) {
  const struct duo_config *config = &d->config;
  struct harp_sender_config sc = {
      .first_number = config->first_number,
      .stream_max = config->stream_max,
      .path_count = config->path_count,
      .window_bytes = config->window_bytes,
      .cc = config->cc,
  };
  for (unsigned i = 0; i < config->path_count; i++) {
    const struct harp_path_config *p = &config->paths[i];
    sc.paths[i] = *p;
    if (!p->is_tcp) sc.paths[i].skip_seed = config->skip_seed;
    if (e->index) sc.paths[i].local_eni = p->remote_eni, sc.paths[i].remote_eni = p->local_eni;
  }
  /* Nothing may rely on fresh memory being zero. */
  free(e->sender_memory); /* without what realloc would copy */
  e->sender_memory = duo_must(malloc(harp_sender_bytes(&sc)));
  memset(e->sender_memory, 0x5A, harp_sender_bytes(&sc));
  e->sender = e->sender_memory;
  harp_sender_init(e->sender, &sc, config->trace ? &e->trace : NULL, &e->counters, d->now);
  if (config->hurry) e->sender->experiments.hurry = config->hurry;
}

static void start_receiver(struct duo *d, struct duo_end *e) {
  const struct duo_config *config = &d->config;
  struct harp_receiver_config rc = {
      .first_number = d->config.first_number,
      .stream_max = d->config.stream_max,
      .path_count = d->config.path_count,
      .window_bytes = config->window_bytes,
  };
  /* Each of two senders proves the addresses of the other's paths. */
  for (unsigned i = 0; i < config->path_count && !config->is_one_way; i++)
    if (!config->paths[i].is_tcp) rc.unproved |= 1ull << i;
  free(e->receiver_memory);
  e->receiver_memory = duo_must(malloc(harp_receiver_bytes(&rc)));
  memset(e->receiver_memory, 0x5A, harp_receiver_bytes(&rc));
  e->receiver = e->receiver_memory;
  harp_receiver_init(e->receiver, &rc, d->config.trace ? &e->trace : NULL, &e->counters);
}

static void start_end(struct duo *d, unsigned index) {
  struct duo_end *e = &d->ends[index];
  struct harp_session_keys keys = {TOKENS[index], TOKENS[1 - index], SEEDS[index], SEEDS[1 - index]};
  e->index = index;
  e->name = d->config.is_one_way ? index ? "rx" : "tx" : index ? "b" : "a";
  e->sender = NULL;
  e->receiver = NULL;
  memset(&e->counters, 0, sizeof e->counters);
  memset(e->sends, 0, sizeof e->sends);
  memset(e->receives, 0, sizeof e->receives);
  memset(e->owners, 0, sizeof e->owners);
  harp_trace_init(e->trace.ring);
  memset(e->traced, 0, sizeof e->traced);
  e->asleep_until_ns = e->no_frame_until_ns = 0;
  e->deadline_ns = d->now;
  e->users_known = false;
  e->tcp_ns = HARP_NEVER;
  e->control_head = e->control_tail = 0;
  e->superframes = e->rides = e->acks_alone = e->prompts = 0;
  if (!d->config.is_one_way || !index) start_sender(d, e);
  if (!d->config.is_one_way || index) start_receiver(d, e);
  duo_window_start(d, e);
  harp_session_init(&e->session, &keys, e->sender, e->receiver);
  struct harp_session_macs macs = {.is_on = true, .tx = MACS[index], .rx = MACS[1 - index]};
  if (d->config.macs) harp_session_use_macs(&e->session, &macs);
}

void duo_start(struct duo *d, const struct duo_config *config) {
  if (!d->pattern) make_memory(d);
  if (config->path_count > SIMNET_PATHS_MAX || config->stream_max > DUO_IDS_MAX) abort();
  d->config = *config;
  if (!d->config.stream_max) d->config.stream_max = 1;
  d->rng.state = config->seed ^ 0xD00;
  d->attack_rng.state = config->seed ^ 0xA77;
  simnet_reset(&d->net, config->seed ^ 0x4E7);
  d->now = HARP_MS(1);
  d->arena_used = d->bits_used = 0;
  d->stream_count = d->live_count = 0;
  d->count = 0;
  d->faults = true;
  d->forged = false;
  d->downs = 0;
  d->steps = d->same_instant = d->data_packets = d->probe_packets = d->ack_packets = 0;
  memset(d->path_packets, 0, sizeof d->path_packets);
  for (unsigned i = 0; i < DUO_ENDS; i++) start_end(d, i);
  duo_tcp_start(d);
}

void duo_fini(struct duo *d) {
  simnet_fini(&d->net);
  duo_tcp_fini(d);
  free(d->pattern), free(d->arena), free(d->bits);
  for (unsigned i = 0; i < DUO_STREAMS_MAX; i++) duo_stream_fini(&d->streams[i]);
  for (unsigned i = 0; i < DUO_ENDS; i++)
    free(d->ends[i].sender_memory), free(d->ends[i].receiver_memory), free(d->ends[i].trace.ring);
  memset(d, 0, sizeof *d);
}

struct duo_stream *duo_open(struct duo *d, const struct duo_stream_config *config) {
  if (d->stream_count == DUO_STREAMS_MAX || config->id >= d->config.stream_max) abort();
  struct duo_stream *s = &d->streams[d->stream_count];
  d->live[d->live_count++] = (uint16_t)d->stream_count++;
  *s = (struct duo_stream){.config = *config, .tx = s->tx, .rx = s->rx, .staging = s->staging};
  if (!s->config.in_flight_max) s->config.in_flight_max = HARP_MESSAGES_MAX;
  s->first = d->count;
  s->last_tx_delivered = s->last_rx_delivered = config->first_line;
  duo_stream_start(d, s);
  if (!config->is_on_demand) duo_control_open(d, s);
  return s;
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
  if (d->count == DUO_MESSAGES_MAX || !d->stream_count || bytes > DUO_MESSAGE_MAX_BYTES) abort();
  struct duo_message *m = &d->messages[d->count++];
  uint32_t lines = harp_lines_of(bytes), inside = HARP_MIN(bytes, capacity);
  d->streams[d->stream_count - 1].count++;
  *m = (struct duo_message){.bytes = bytes, .capacity = capacity, .send_at = send_at, .recv_at = recv_at};
  m->content = d->pattern + rng_below(&d->rng, CONTENT_SPREAD_BYTES);
  m->placed = take_bits(d, lines);
  m->staged = take_bits(d, lines);
  if (d->arena_used + capacity + 2 * DUO_GUARD_BYTES + 8 > DUO_ARENA_BYTES) abort();
  m->buffer = d->arena + d->arena_used + DUO_GUARD_BYTES + rng_below(&d->rng, 8);
  memset(m->buffer - DUO_GUARD_BYTES, GUARD, DUO_GUARD_BYTES);
  memset(m->buffer + inside, GUARD, capacity - inside + DUO_GUARD_BYTES);
  d->arena_used = (uint32_t)(m->buffer + capacity + DUO_GUARD_BYTES - d->arena);
}

/* ---- traces ---- */

/* Returns the oldest entry that was not printed yet; NULL: there is none. */
static const struct harp_trace_entry *next_entry(struct duo_end *e) {
  uint8_t rare = (uint8_t)(e->traced[HARP_TRACE_RECOVERY] + e->traced[HARP_TRACE_STATE]);
  for (unsigned part = 0; part < HARP_TRACE_PARTS; part++) {
    if (e->traced[part] == atomic_load(&e->trace.ring->heads[part].count)) continue;
    const struct harp_trace_entry *entry =
        harp_trace_slot(e->trace.ring, (enum harp_trace_part)part, e->traced[part]);
    if (entry->order != (uint8_t)(rare + (part != HARP_TRACE_FLOW))) continue;
    e->traced[part]++;
    return entry;
  }
  return NULL;
}

static void flush_trace(struct duo *d, struct duo_end *e) {
  char text[200];
  for (const struct harp_trace_entry *entry; (entry = next_entry(e));) {
    trace_text(entry, text, sizeof text);
    if (d->trace_out) fprintf(d->trace_out, "%s %s\n", e->name, text);
  }
}

/* ---- passes ---- */

static void pump(struct duo *d, struct duo_end *e) {
  for (unsigned i = 0; i < d->live_count; i++) {
    struct duo_stream *s = &d->streams[d->live[i]];
    if (s->config.way == e->index && s->tx_state == DUO_STREAM_OPEN) duo_stream_complete_sends(d, s);
    if (s->config.way != e->index && s->rx_state == DUO_STREAM_OPEN) duo_stream_complete_receives(d, s);
    duo_control_review(d, e, s);
  }
  bool has_tcp = duo_tcp_count(d);
  if (has_tcp) duo_tcp_note_progress(d, e);
  harp_session_on_timeout(&e->session, d->now);
  harp_ns review_ns = has_tcp ? duo_tcp_review(d, e) : HARP_NEVER;
  e->deadline_ns = HARP_NEVER;
  if (e->sender) e->deadline_ns = duo_send_data(d, e);
  harp_ns acks_ns = e->receiver && e->deadline_ns > d->now ? duo_send_acks(d, e) : HARP_NEVER;
  e->deadline_ns = HARP_MIN(HARP_MIN(e->deadline_ns, acks_ns), review_ns);
}

/* ---- what an end receives ---- */

/* Returns whether a packet that nobody damaged may be dropped for this. */
static bool is_expected(struct duo *d, const struct duo_end *e, const struct harp_packet *p,
                        enum harp_drop drop) {
  if (p->type != HARP_PACKET_DATA) return drop == HARP_DROP_WINDOW || (drop == HARP_DROP_FIELD && d->forged);
  const struct duo_stream *s = p->data.stream < DUO_IDS_MAX ? e->receives[p->data.stream] : NULL;
  return duo_stream_expects_drop(d, s, p, drop);
}

static void on_datagram(struct duo *d, struct duo_end *e) {
  struct simnet_datagram g;
  struct harp_packet p;
  struct harp_placement where;
  simnet_take(&d->net, &g);
  enum harp_drop drop = harp_packet_decode(g.wire, g.bytes, &p);
  p.ce = g.ce;
  if (!drop && p.token != e->session.keys.rx_token) drop = HARP_DROP_TOKEN;
  if (!drop)
    drop = harp_session_on_packet(&e->session, g.wire, g.bytes, &p, &where, d->now);
  else
    e->counters.drops[drop]++;
  bool taken = drop == HARP_DROP_NONE || drop == HARP_DROP_DUPLICATE;
  uint32_t covered = HARP_CRC_FROM_BYTE + (taken ? (uint32_t)harp_packet_crc_bytes(&p) : 0) +
                     harp_session_mac_bytes(&e->session);
  if (taken && g.touched && g.touched_at < covered)
    duo_fail(d, "a packet damaged at byte %u was taken", g.touched_at);
  bool is_replay = drop == HARP_DROP_REPLAY && g.is_unruly;
  if (!g.touched && !taken && !is_replay && !is_expected(d, e, &p, drop))
    duo_fail(d, "%s: a good packet was dropped: %s", e->name, harp_drop_name(drop));
  if (!drop && p.type == HARP_PACKET_ACK) duo_window_on_ack(e, &p);
  if (!drop && p.type == HARP_PACKET_DATA) {
    if (!e->receives[p.data.stream]) duo_fail(d, "a packet of no stream was taken");
    duo_stream_place(d, e->receives[p.data.stream], &p, &where);
  }
  simnet_release(&d->net, &g);
}

/* ---- events ---- */

static void check(struct duo *d, struct duo_end *e) {
  if (d->check_steps && d->steps % d->check_steps) return;
  if (d->stream_count > CHECKED_STREAMS && d->steps % CHECK_STEPS) return;
  if (e->sender) harp_sender_check(e->sender);
  if (e->counters.absurd_marks) duo_fail(d, "%s: an honest sum of marked bytes was refused", e->name);
  if (e->receiver) harp_receiver_check(e->receiver);
  for (unsigned i = 0; i < d->stream_count; i++) duo_stream_check(d, &d->streams[i]);
}

static void maybe_sleep(struct duo *d, struct duo_end *e) {
  if (!d->faults || !rng_chance(&d->rng, d->config.pause_ppm)) return;
  e->asleep_until_ns = d->now + rng_below(&d->rng, d->config.pause_ns + 1);
  duo_window_on_sleep(e);
}

/* The host reports that a link is down, rightly or not. */
static void maybe_down(struct duo *d, struct duo_end *e) {
  if (!d->faults || d->downs == DUO_DOWNS_MAX || !rng_chance(&d->rng, d->config.down_ppm)) return;
  if (!e->sender) e = &d->ends[1 - e->index];
  d->downs++;
  harp_sender_path_down(e->sender, (unsigned)rng_below(&d->rng, d->config.path_count), d->now);
  pump(d, e);
}

static harp_ns post_ns(const struct duo *d, const struct duo_end *e, const struct duo_stream *s) {
  return s->config.way == e->index ? duo_stream_send_ns(d, s) : duo_stream_receive_ns(d, s);
}

/* When one of the end's users does something. */
static harp_ns users_ns(const struct duo *d, const struct duo_end *e) {
  harp_ns at = HARP_NEVER;
  for (unsigned i = 0; i < d->live_count; i++) {
    const struct duo_stream *s = &d->streams[d->live[i]];
    at = HARP_MIN(at, HARP_MIN(post_ns(d, e, s), duo_control_ns(d, e, s)));
  }
  return at;
}

/* When the end is to be looked at: its deadline, or something that its users do. */
static harp_ns next_ns(const struct duo *d, const struct duo_end *e) {
  harp_ns at =
      e->no_frame_until_ns > d->now ? HARP_MAX(e->deadline_ns, e->no_frame_until_ns) : e->deadline_ns;
  harp_ns users = e->users_known ? e->users_ns : users_ns(d, e);
  return HARP_MAX(HARP_MIN(at, users), e->asleep_until_ns);
}

/* What the end's users do: posts what is due, or the first of it. */
static void act(struct duo *d, struct duo_end *e) {
  for (unsigned i = 0; i < d->live_count; i++) {
    struct duo_stream *s = &d->streams[d->live[i]];
    if (duo_control_ns(d, e, s) <= d->now) duo_control_act(d, e, s);
    while (post_ns(d, e, s) <= d->now) {
      if (s->config.way == e->index)
        duo_stream_send(d, s);
      else
        duo_stream_receive(d, s);
      if (!d->config.batch) return;
    }
  }
}

harp_ns duo_next_ns(struct duo *d) {
  harp_ns at = simnet_next_ns(&d->net);
  for (unsigned i = 0; i < DUO_ENDS; i++)
    at = HARP_MIN(at, HARP_MIN(next_ns(d, &d->ends[i]), duo_control_arrival_ns(&d->ends[i])));
  if (!duo_tcp_count(d)) return HARP_MAX(at, d->now);
  for (unsigned i = 0; i < DUO_ENDS; i++) {
    d->ends[i].tcp_ns = duo_tcp_next_ns(d, &d->ends[i]);
    at = HARP_MIN(at, d->ends[i].tcp_ns);
  }
  return HARP_MAX(at, d->now);
}

bool duo_step(struct duo *d, harp_ns until_ns) {
  harp_ns at = duo_next_ns(d);
  if (at >= until_ns) {
    d->now = HARP_MAX(d->now, until_ns);
    return false;
  }
  d->same_instant = at == d->now ? d->same_instant + 1 : 0;
  if (d->same_instant > SAME_INSTANT_MAX) duo_fail(d, "time stands still");
  d->now = at;
  d->steps++;
  struct duo_end *e;
  if (simnet_next_ns(&d->net) <= at) {
    e = &d->ends[1 - simnet_next_way(&d->net)];
    if (e->asleep_until_ns > at) {
      if (duo_window_holds(d, e))
        simnet_postpone(&d->net, e->asleep_until_ns);
      else
        simnet_drop(&d->net);
      return true;
    }
    on_datagram(d, e);
  } else if (duo_control_arrival_ns(&d->ends[0]) <= at || duo_control_arrival_ns(&d->ends[1]) <= at) {
    e = &d->ends[duo_control_arrival_ns(&d->ends[0]) > at];
    duo_control_on_message(d, e);
  } else if (d->ends[0].tcp_ns <= at || d->ends[1].tcp_ns <= at) {
    e = &d->ends[d->ends[0].tcp_ns > at];
    duo_tcp_act(d, e);
  } else {
    e = &d->ends[next_ns(d, &d->ends[0]) > at];
    act(d, e);
  }
  pump(d, e);
  maybe_down(d, e);
  duo_window_maybe_change(d, e);
  check(d, e);
  maybe_sleep(d, e);
  e->users_ns = users_ns(d, e);
  e->users_known = !d->net.filter; /* the filter may change the users' minds */
  if (d->config.trace) {
    for (unsigned i = 0; i < DUO_ENDS; i++) flush_trace(d, &d->ends[i]);
  }
  return true;
}

bool duo_is_finished(const struct duo_stream *s) {
  if (s->tx_state == DUO_STREAM_CLOSED && s->rx_state == DUO_STREAM_CLOSED) return true;
  return !s->config.is_on_demand && !s->config.forge_ppm && s->sent_count == s->count &&
         s->received_count == s->count;
}

bool duo_complete(struct duo *d) {
  unsigned kept = 0;
  if (!d->live_count) return true;
  if (d->steps % LIVE_STEPS && !duo_is_finished(&d->streams[d->live[0]])) return false;
  for (unsigned i = 0; i < d->live_count; i++)
    if (!duo_is_finished(&d->streams[d->live[i]])) d->live[kept++] = d->live[i];
  d->live_count = kept;
  return !kept;
}

bool duo_run(struct duo *d, harp_ns until_ns) {
  while (!duo_complete(d)) {
    if (!duo_step(d, until_ns)) return false;
  }
  return true;
}

void duo_heal(struct duo *d) {
  simnet_heal(&d->net);
  duo_tcp_heal(d);
  d->faults = false;
}

static bool is_guard(const uint8_t *at, uint32_t bytes) {
  return at[0] == GUARD && !memcmp(at, at + 1, bytes - 1);
}

void duo_check_buffers(struct duo *d) {
  for (unsigned i = 0; i < d->stream_count; i++) {
    const struct duo_stream *s = &d->streams[i];
    for (uint32_t k = 0; k < s->count; k++) {
      const struct duo_message *m = duo_message(d, s, k);
      uint32_t end = s->forged || m->poisoned == m->capacity ? m->capacity : HARP_MIN(m->bytes, m->capacity);
      duo_stream_check_poison(d, s, k);
      if (!is_guard(m->buffer + end, m->capacity - end + DUO_GUARD_BYTES))
        duo_fail(d, "a write behind message %u of stream %u", k, i);
      if (!is_guard(m->buffer - DUO_GUARD_BYTES, DUO_GUARD_BYTES))
        duo_fail(d, "a write before message %u of stream %u", k, i);
    }
  }
}
