/* SPDX-License-Identifier: Apache-2.0 */
#include "base/seq.h"
#include "proto/send_parts.h"
#include "proto/tail_duplication.h"
#include "wire/record.h"

#define CORK_NS   HARP_US(10)
#define RECORD_NS HARP_US(500)
enum { RECORD_MIN_BYTES = 64 * 1024 };
enum { CORK_FLIGHT_BYTES = 4096, CORK_BURSTS = 3, CORK_LOOK_BURSTS = 16 };

/* What was sent within CORK_NS and has not been acknowledged. */
struct recent {
  uint64_t bytes;
  uint32_t bursts;
};

static void add_recent(struct recent *r, const struct harp_flight *f, harp_ns now) {
  for (uint32_t i = f->tail; i != f->head && r->bursts < CORK_LOOK_BURSTS; i--) {
    const struct harp_burst *b = harp_flight_at(f, i - 1);
    if (b->sent_ns + CORK_NS <= now) return;
    r->bytes += (uint64_t)harp_popcount(harp_burst_pending(b)) * b->packet_bytes;
    r->bursts++;
  }
}

/* Small messages that follow one another travel together, since a superframe costs a system call however
 * little it holds: while more was sent in the last moments than waits to be sent, the rest waits for more.
 * Bounded in time, and never for the first few packets, so that single messages go at once. (Nagle's rule,
 * RFC 896, by bytes and time: what was sent earlier may stay unacknowledged for long, where nobody waits for
 * it.) `among`: the paths of small messages. */
static bool corked(struct harp_sender *s, uint64_t among, harp_ns now) {
  uint64_t waiting = (uint64_t)s->load.waiting_lines * HARP_LINE_BYTES;
  struct recent sent = {0};
  HARP_EACH_BIT (i, waiting < HARP_SENDER_CORK_BYTES ? among : 0) add_recent(&sent, &s->paths[i].flight, now);
  if (waiting >= HARP_SENDER_CORK_BYTES || waiting >= sent.bytes ||
      (sent.bursts < CORK_BURSTS && sent.bytes < CORK_FLIGHT_BYTES)) {
    s->cork_ns = HARP_NEVER;
    return false;
  }
  if (s->cork_ns == HARP_NEVER) s->cork_ns = now + CORK_NS;
  if (now < s->cork_ns) return true;
  s->cork_ns = HARP_NEVER;
  return false;
}

static struct harp_stripe stripe_of(const struct harp_sender *s, uint64_t among) {
  uint64_t lines = (uint64_t)s->load.waiting_lines + s->load.resend_lines;
  return (struct harp_stripe){among, s->start, lines * HARP_LINE_BYTES, s->waits};
}

static const struct harp_path *pick_best(struct harp_sender *s, uint64_t among, harp_ns now) {
  if (!(among & (among - 1))) {
    const struct harp_path *only = &s->paths[__builtin_ctzll(among)];
    s->waits = false;
    return !harp_path_silent(only) && harp_path_open(only, now) ? only : NULL;
  }
  struct harp_stripe stripe = stripe_of(s, among);
  const struct harp_path *p = harp_stripe_pick(s->paths, &stripe, now);
  s->waits = stripe.waits;
  return p;
}

/* The oldest line in flight on the path that the receiver may lack; false when there is none. */
static bool oldest_pending(const struct harp_path *p, struct harp_tx_choice *c) {
  for (uint32_t i = p->flight.head; i != p->flight.tail; i++) {
    const struct harp_burst *b = harp_flight_at(&p->flight, i);
    for (uint64_t bits = b->stream ? harp_burst_pending(b) : 0; bits; bits &= bits - 1) {
      uint32_t k = (uint32_t)__builtin_ctzll(bits);
      c->stream = b->stream;
      c->line = harp_burst_line(b, k);
      c->lines = harp_burst_lines(b, k);
      if (!harp_seq_before(c->line, b->stream->delivered)) return true;
    }
  }
  return false;
}

/* Whether a probe of the path may carry data: it is eligible and not drained. */
static bool carries_data(const struct harp_sender *s, const struct harp_path *p) {
  return (s->eligible >> p->index & 1) && !p->drained;
}

/* How many full packets may go on the path now. A superframe takes at most half the window, so that
 * acknowledgements keep it moving. The last packet may be short, so the window is checked against full
 * ones. */
static uint32_t packets_allowed(const struct harp_path *p, harp_ns now) {
  if (p->is_tcp) return HARP_MIN(harp_path_allowance(p, now), 1u);
  uint32_t packets = HARP_MIN(harp_path_allowance(p, now), p->cc.window_bytes / 2 / p->cc.packet_bytes);
  packets = HARP_MIN(packets, p->to->bytes / 2 / harp_window_cost_bytes(1, p->cc.packet_bytes));
  return HARP_MIN(packets, (uint32_t)HARP_BURST_MAX_PACKETS);
}

static bool has_several(uint64_t paths) {
  return paths & (paths - 1);
}

/* What a record on one of several tcp paths takes at most: of a message that takes one path longer, the
 * others take a part. */
static uint32_t record_lines(const struct harp_path *p) {
  uint64_t bytes = (RECORD_NS << 16) / p->drain_q16;
  return (uint32_t)HARP_MIN(HARP_MAX(bytes, (uint64_t)RECORD_MIN_BYTES), (uint64_t)HARP_RECORD_MAX_BYTES) /
         HARP_LINE_BYTES;
}

/* Cuts the choice's lines to its packets and to the end of their message. */
static void fit(const struct harp_sender *s, struct harp_tx_choice *c) {
  const struct harp_path *p = &s->paths[c->path];
  if (c->kind != HARP_TX_NEW) c->message = harp_tx_stream_message_of(c->stream, c->line);
  const struct harp_send_message *m = harp_tx_stream_message(c->stream, c->message);
  c->lines = HARP_MIN(HARP_MIN(c->lines, c->packets * p->lines), m->line + m->lines - c->line);
  if (p->is_tcp && has_several(s->by_class[HARP_TX_LARGE] & s->tcp))
    c->lines = HARP_MIN(c->lines, record_lines(p));
  c->bytes = HARP_MIN(HARP_MIN(c->lines, p->lines) * HARP_LINE_BYTES,
                      m->bytes - (c->line - m->line) * HARP_LINE_BYTES);
}

/* The first stream that has lost something; there is one. */
static struct harp_tx_stream *first_lost(const struct harp_sender *s) {
  for (unsigned class = 0; class < HARP_TX_CLASSES; class ++) {
    for (struct harp_tx_stream *st = s->load.ready[class].first; st; st = st->next_ready)
      if (st->resend.count) return st;
  }
  HARP_ASSERT(!"a stream with lost lines is not ready");
  return NULL;
}

/* Whether the path's next probe is to be empty: it has been silent for long, also with the smallest packets.
 * Perhaps the path works, and all that is in flight is of a stream whose packets the receiver refuses. Every
 * other probe continues to carry data, which saves a round trip where the path was at fault. */
static bool wants_empty_probe(const struct harp_path *p) {
  return p->pto_count > HARP_PATH_SILENT_PTOS && p->lines <= HARP_PACKET_MIN_LINES && p->pto_count % 2 == 0;
}

/* Chooses one packet regardless of the window: the line that has waited longest, else an empty probe. Lost
 * lines are left to other paths where there are any. */
static struct harp_tx_choice choose_probe(struct harp_sender *s, const struct harp_path *p) {
  struct harp_tx_choice c = {.kind = HARP_TX_PROBE, .path = p->index, .packets = 1};
  bool carries = carries_data(s, p), alone = s->eligible == 1ull << p->index;
  if (s->credit_wanted || p->is_tcp || wants_empty_probe(p)) return c;
  if (carries && alone && s->load.resend_lines) {
    c.stream = first_lost(s);
    c.lines = harp_tx_stream_lost_lines(c.stream, p->lines, &c.line);
  } else if (!carries || !oldest_pending(p, &c)) {
    c.lines = 0;
  }
  if (c.lines)
    fit(s, &c);
  else
    c.stream = NULL;
  return c;
}

static struct harp_tx_choice choose_size_probe(const struct harp_path *p) {
  return (struct harp_tx_choice){.kind = HARP_TX_SIZE_PROBE,
                                 .path = p->index,
                                 .packets = 1,
                                 .bytes = harp_path_next_size(p) * HARP_LINE_BYTES};
}

/* What the stream whose turn it is sends on the path: what it lost before what is new. False when it may not
 * now. */
static bool choose_data(struct harp_sender *s, struct harp_tx_stream *st, const struct harp_path *p,
                        struct harp_tx_choice *c, harp_ns now) {
  c->path = p->index;
  c->stream = st;
  c->packets = packets_allowed(p, now);
  if (!c->packets || harp_flight_full(&p->flight)) return false;
  if (st->resend.count) {
    c->kind = HARP_TX_RESEND;
    c->lines = harp_tx_stream_lost_lines(st, c->packets * p->lines, &c->line);
  } else {
    c->kind = HARP_TX_NEW;
    c->line = st->sent_line;
    c->lines = harp_tx_stream_new_lines(st);
    c->message = st->next;
  }
  fit(s, c);
  return true;
}

/* Returns the path that owes a probe, NULL when none does or can send it. */
static const struct harp_path *probing_path(const struct harp_sender *s, harp_ns now) {
  HARP_EACH_BIT (i, (s->probes_due & ~s->blocked) | s->sizing) {
    const struct harp_path *p = &s->paths[i];
    if ((p->probe_due || harp_sender_size_probe_due(p, now)) && !harp_flight_full(&p->flight)) return p;
  }
  return NULL;
}

static bool choose(struct harp_sender *s, struct harp_tx_choice *c, harp_ns now) {
  const struct harp_path *p = probing_path(s, now);
  if (harp_unlikely(p)) {
    *c = p->probe_due ? choose_probe(s, p) : choose_size_probe(p);
    return true;
  }
  struct harp_tx_stream *st = harp_sender_next_stream(s);
  if (!s->eligible) return false;
  if (st) {
    uint64_t among = s->by_class[st->class];
    if (!s->load.resend_lines && !(among & s->tcp) && corked(s, among, now)) return false;
    p = pick_best(s, among, now);
    return p && choose_data(s, st, p, c, now);
  }
  if (s->path_count > 1 && harp_tail_duplication_choose(s, c, now)) {
    c->packets = packets_allowed(&s->paths[c->path], now);
    fit(s, c);
    return true;
  }
  return false;
}

/* Returns when data may go by time alone. */
static harp_ns data_ns(struct harp_sender *s, harp_ns now) {
  const struct harp_tx_stream *st = harp_sender_next_stream(s);
  if (!s->eligible || !st) return HARP_NEVER;
  struct harp_stripe stripe = stripe_of(s, s->by_class[st->class]);
  if (s->cork_ns != HARP_NEVER && !s->load.resend_lines && !(stripe.among & s->tcp)) return s->cork_ns;
  stripe.among = harp_stripe_answering(s->paths, stripe.among);
  harp_ns at = harp_stripe_deadline_ns(s->paths, &stripe, now);
  HARP_EACH_BIT (i, s->sizing & s->eligible) {
    const struct harp_path *p = &s->paths[i];
    if (!p->pto_count && !harp_flight_full(&p->flight)) at = HARP_MIN(at, p->size_probe_ns);
  }
  return at;
}

/* Returns when there may be something to send by time alone, or a timer falls due. */
static harp_ns deadline_ns(struct harp_sender *s, harp_ns now) {
  harp_ns at = HARP_MIN(s->credit_probe_ns, s->timers_ns);
  if (s->probes_due & ~s->blocked) return now;
  if (harp_sender_is_any_ready(s)) return HARP_MIN(at, data_ns(s, now));
  if (s->path_count > 1) at = HARP_MIN(at, harp_tail_duplication_deadline_ns(s, now));
  return at;
}

struct harp_tx_choice harp_sender_choose(struct harp_sender *s, harp_ns now) {
  struct harp_tx_choice c = {.kind = HARP_TX_NOTHING};
  if (harp_likely(choose(s, &c, now))) return c;
  return (struct harp_tx_choice){.kind = HARP_TX_NOTHING, .deadline_ns = deadline_ns(s, now)};
}

struct harp_tx_choice harp_sender_choose_more(struct harp_sender *s, unsigned path, harp_ns now) {
  const struct harp_path *p = &s->paths[path];
  struct harp_tx_stream *st = harp_sender_next_stream(s);
  struct harp_tx_choice c = {.kind = HARP_TX_NOTHING};
  if (!st || !(s->by_class[st->class] >> path & 1) || p->probe_due || harp_sender_size_probe_due(p, now) ||
      !choose_data(s, st, p, &c, now))
    c = (struct harp_tx_choice){.kind = HARP_TX_NOTHING};
  return c;
}
