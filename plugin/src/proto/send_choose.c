/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_choose.h"

#include "base/seq.h"
#include "proto/send.h"
#include "wire/record.h"

/* A shorter record costs more of a processor than it gains. */
enum { RECORD_MIN_LINES = (16 << 10) / HARP_LINE_BYTES };

/* ---- the path ---- */

static struct harp_stripe stripe_of(const struct harp_sender *s, uint64_t among) {
  uint64_t lines = (uint64_t)s->load.waiting_lines + s->load.resend_lines;
  return (struct harp_stripe){among, s->search.preferred, s->search.start, lines * HARP_LINE_BYTES,
                              s->search.waits};
}

static const struct harp_path *pick_best_path(struct harp_sender *s, uint64_t among, harp_ns now) {
  if (!(among & (among - 1))) {
    const struct harp_path *only = &s->paths[__builtin_ctzll(among)];
    s->search.waits = false;
    return !harp_path_is_silent(only) && harp_path_is_open(only, now) ? only : NULL;
  }
  struct harp_stripe stripe = stripe_of(s, among);
  const struct harp_path *p = harp_stripe_pick(s->paths, &stripe, now);
  s->search.waits = stripe.waits;
  return p;
}

/* The oldest line in flight on the path that the receiver may lack; false when there is none. */
static bool choose_oldest_pending(const struct harp_path *p, struct harp_tx_choice *c) {
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

/* Returns whether a probe of the path may carry data: it is eligible and its flight has not moved to others.
 */
static bool carries_data(const struct harp_sender *s, const struct harp_path *p) {
  return (s->set.eligible >> p->index & 1) && !p->probe.has_moved_flight;
}

/* Returns how many full packets may go on the path now. A superframe takes at most half the window, so
 * that acknowledgements keep it moving. The last packet may be short, so the window is checked against
 * full ones. */
static uint32_t packets_allowed(const struct harp_path *p, harp_ns now) {
  if (p->is_tcp) return HARP_MIN(harp_path_allowance(p, now), 1u);
  uint32_t packets = HARP_MIN(harp_path_allowance(p, now), harp_cc_burst_bytes(&p->cc) / p->cc.packet_bytes);
  packets = HARP_MIN(packets, p->to->bytes / 2 / harp_receive_window_cost_bytes(1, p->cc.packet_bytes));
  return HARP_MIN(packets, (uint32_t)HARP_BURST_MAX_PACKETS);
}

/* Returns the lines that a record takes at most: where large messages have a choice of tcp paths, half of the
 * path's part of all that waits, so that the paths finish together (guided self-scheduling, Polychronopoulos
 * and Kuck, 1987). */
static uint32_t record_lines(const struct harp_sender *s, const struct harp_path *p) {
  uint64_t tcp = harp_path_set_tcp(s->paths, s->carriers.by_class[HARP_TX_LARGE]);
  if (!(tcp & (tcp - 1))) return HARP_RECORD_MAX_LINES;
  uint32_t half_part = (s->load.waiting_lines + s->load.resend_lines) / (2 * harp_popcount(tcp));
  return HARP_MIN(harp_path_speed_record_lines(&p->speed), HARP_MAX(half_part, RECORD_MIN_LINES));
}

/* Cuts the choice's lines to its packets and to the end of their message. */
static void fit_lines_to_packets(const struct harp_sender *s, struct harp_tx_choice *c) {
  const struct harp_path *p = &s->paths[c->path];
  if (c->kind != HARP_TX_NEW) c->message = harp_tx_stream_message_of(c->stream, c->line);
  const struct harp_send_message *m = harp_tx_stream_message(c->stream, c->message);
  c->lines = HARP_MIN(HARP_MIN(c->lines, c->packets * p->size.lines), m->line + m->lines - c->line);
  if (p->is_tcp) c->lines = HARP_MIN(c->lines, record_lines(s, p));
  c->bytes = HARP_MIN(HARP_MIN(c->lines, p->size.lines) * HARP_LINE_BYTES,
                      m->bytes - (c->line - m->line) * HARP_LINE_BYTES);
}

/* The first stream that has lost something; there is one. */
static struct harp_tx_stream *first_stream_with_losses(const struct harp_sender *s) {
  for (unsigned class = 0; class < HARP_TX_CLASSES; class ++) {
    for (struct harp_tx_stream *st = s->load.ready[class].first; st; st = st->next_ready)
      if (st->resend.count) return st;
  }
  HARP_ASSERT(!"a stream with lost lines is not ready");
  return NULL;
}

/* Returns whether the path's next probe is to be empty: it has been silent for long, also with the smallest
 * packets. Perhaps the path works, and all that is in flight is of a stream whose packets the receiver
 * refuses. Every other probe continues to carry data, which saves a round trip where the path was at fault.
 */
static bool wants_empty_probe(const struct harp_path *p) {
  return p->probe.pto_count > HARP_PATH_SILENT_PTOS && p->size.lines <= HARP_PACKET_MIN_LINES &&
         p->probe.pto_count % 2 == 0;
}

/* Chooses one packet regardless of the window: the line that has waited longest, else an empty probe. Lost
 * lines are left to other paths where there are any. */
static struct harp_tx_choice choose_probe(struct harp_sender *s, const struct harp_path *p) {
  uint32_t padding = p->is_tcp ? 0 : HARP_PROBE_PADDING_BYTES;
  struct harp_tx_choice c = {.kind = HARP_TX_PROBE, .path = p->index, .packets = 1, .bytes = padding};
  bool carries = carries_data(s, p), alone = s->set.eligible == 1ull << p->index;
  if (harp_send_credit_is_wanted_on(&s->credit, p->index) || p->is_tcp || wants_empty_probe(p)) return c;
  if (carries && alone && s->load.resend_lines) {
    c.stream = first_stream_with_losses(s);
    c.lines = harp_tx_stream_lost_lines(c.stream, p->size.lines, &c.line);
  } else if (!carries || !choose_oldest_pending(p, &c)) {
    c.lines = 0;
  }
  if (c.lines)
    fit_lines_to_packets(s, &c);
  else
    c.stream = NULL;
  return c;
}

static struct harp_tx_choice choose_size_probe(const struct harp_path *p) {
  return (struct harp_tx_choice){.kind = HARP_TX_SIZE_PROBE,
                                 .path = p->index,
                                 .packets = 1,
                                 .bytes = harp_path_size_next(&p->size) * HARP_LINE_BYTES};
}

/* Chooses what the stream whose turn it is sends on the path: what it lost before what is new. Returns
 * false when it may not now. */
static bool choose_data(struct harp_sender *s, struct harp_tx_stream *st, const struct harp_path *p,
                        struct harp_tx_choice *c, harp_ns now) {
  c->path = p->index;
  c->stream = st;
  c->packets = packets_allowed(p, now);
  if (!c->packets || harp_flight_is_full(&p->flight)) return false;
  if (st->resend.count) {
    c->kind = HARP_TX_RESEND;
    c->lines = harp_tx_stream_lost_lines(st, c->packets * p->size.lines, &c->line);
  } else {
    c->kind = HARP_TX_NEW;
    c->line = st->sent_line;
    c->lines = harp_tx_stream_new_lines(st);
    c->message = st->next;
  }
  fit_lines_to_packets(s, c);
  return true;
}

/* Returns whether the path is to try a larger packet size now. */
static bool is_size_probe_due(const struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  return s->set.sizing & harp_path_bit(p) && p->size.probe_ns <= now && !p->probe.pto_count &&
         p->state == HARP_PATH_UP;
}

static bool is_probe_due(const struct harp_sender *s, const struct harp_path *p) {
  return (s->set.probes_due & harp_path_bit(p)) && !p->blocked;
}

/* Returns the path that owes a probe, or is to try a larger size, and can send it; NULL: there is none. */
static const struct harp_path *probing_path(const struct harp_sender *s, harp_ns now) {
  HARP_EACH_BIT (i, s->set.probes_due | s->set.sizing) {
    const struct harp_path *p = &s->paths[i];
    if ((is_probe_due(s, p) || is_size_probe_due(s, p, now)) && !harp_flight_is_full(&p->flight)) return p;
  }
  return NULL;
}

/* Returns whether what waits for these paths may wait for more: it does not fill a superframe, nothing lost
 * waits, and the kernel of a tcp path among them does not pack it by itself. */
static bool may_cork(const struct harp_sender *s, uint64_t among) {
  return !harp_send_cork_is_out(&s->cork, &s->load) && !s->load.resend_lines &&
         !harp_path_set_tcp(s->paths, among);
}

/* Chooses what goes out next. The rules, of which the first that applies decides:
 *
 *   1. A path owes a probe, and can send it: the probe, whatever the window. It carries the line that has
 *      waited longest, or nothing.
 *   2. A path is to try a larger packet size: the probe of that size.
 *   3. No path is eligible: nothing.
 *   4. A stream has its turn (send_turns.h). The class of its next message gives the paths (send_carrier.h).
 *      a. The cork holds it back (send_cork.h): nothing. Lines that were lost are never held back.
 *      b. The best of the paths (stripe.h) sends what the stream lost, else what is new. Nothing, while no
 *         path is open, or a better one is worth the wait.
 *   5. Something is overdue on one of several paths: it is repeated on another (tail_duplication.h). */
static bool choose_next(struct harp_sender *s, struct harp_tx_choice *c, harp_ns now) {
  const struct harp_path *p = probing_path(s, now);
  if (harp_unlikely(p)) {
    *c = s->set.probes_due & harp_path_bit(p) ? choose_probe(s, p) : choose_size_probe(p);
    return true;
  }
  struct harp_tx_stream *st = harp_send_turns_next(s);
  if (!s->set.eligible) return false;
  if (st) {
    uint64_t among = s->carriers.by_class[st->class];
    if (may_cork(s, among) && harp_send_cork_holds(s, among, now)) return false;
    p = pick_best_path(s, among, now);
    return p && choose_data(s, st, p, c, now);
  }
  if (s->path_count > 1 && harp_tail_duplication_choose(s, c, now)) {
    c->packets = packets_allowed(&s->paths[c->path], now);
    fit_lines_to_packets(s, c);
    return true;
  }
  return false;
}

/* Returns when data may go by time alone. */
static harp_ns data_deadline_ns(struct harp_sender *s, harp_ns now) {
  const struct harp_tx_stream *st = harp_send_turns_next(s);
  if (!s->set.eligible || !st) return HARP_NEVER;
  struct harp_stripe stripe = stripe_of(s, s->carriers.by_class[st->class]);
  if (s->cork.until_ns != HARP_NEVER && may_cork(s, stripe.among)) return s->cork.until_ns;
  stripe.among = harp_stripe_answering(s->paths, stripe.among);
  harp_ns at = harp_stripe_deadline_ns(s->paths, &stripe, now);
  HARP_EACH_BIT (i, s->set.sizing & s->set.eligible) {
    const struct harp_path *p = &s->paths[i];
    if (!p->probe.pto_count && !harp_flight_is_full(&p->flight)) at = HARP_MIN(at, p->size.probe_ns);
  }
  return at;
}

/* Returns when there may be something to send by time alone, or a timer falls due. */
static harp_ns deadline_ns(struct harp_sender *s, harp_ns now) {
  harp_ns at = HARP_MIN(s->credit.probe_ns, s->timers.next_ns);
  HARP_EACH_BIT (i, s->set.probes_due) {
    if (is_probe_due(s, &s->paths[i])) return now;
  }
  if (harp_send_turns_is_any_ready(&s->load)) return HARP_MIN(at, data_deadline_ns(s, now));
  if (s->path_count > 1) at = HARP_MIN(at, harp_tail_duplication_deadline_ns(s, now));
  return at;
}

struct harp_tx_choice harp_sender_choose(struct harp_sender *s, harp_ns now) {
  struct harp_tx_choice c = {.kind = HARP_TX_NOTHING};
  if (harp_likely(choose_next(s, &c, now))) return c;
  return (struct harp_tx_choice){.kind = HARP_TX_NOTHING, .deadline_ns = deadline_ns(s, now)};
}

struct harp_tx_choice harp_sender_choose_more(struct harp_sender *s, unsigned path, harp_ns now) {
  const struct harp_path *p = &s->paths[path];
  struct harp_tx_stream *st = harp_send_turns_next(s);
  struct harp_tx_choice c = {.kind = HARP_TX_NOTHING};
  if (!st || p->ecn.was_test || !(s->carriers.by_class[st->class] >> path & 1) ||
      s->set.probes_due & harp_path_bit(p) || is_size_probe_due(s, p, now) || !choose_data(s, st, p, &c, now))
    c = (struct harp_tx_choice){.kind = HARP_TX_NOTHING};
  return c;
}
