#include "proto/send.h"

#include <errno.h>
#include <string.h>

#include "base/seq.h"
#include "proto/life.h"
#include "proto/tail.h"

#define SIZE_PROBE_INTERVAL_NS HARP_SEC(10)
#define SIZE_PROBE_NEXT_NS     HARP_MS(10)
#define SIZE_PROBE_AGAIN_NS    HARP_MS(100)
#define CREDIT_PROBE_FIRST_NS  HARP_MS(2)
#define CREDIT_PROBE_MAX_NS    HARP_MS(256)
#define CORK_NS                HARP_US(10)
/* An RTT that was not measured for so long says little of what an idle path would take now. */
#define RTT_STALE_NS HARP_MS(50)
enum {
  CORK_BYTES = 61440, /* about a superframe: no reason to wait */
  CORK_FLIGHT_BYTES = 4096,
  CORK_BURSTS = 3,
};
static const struct harp_send_message *message_at(const struct harp_sender *s, uint32_t m) {
  return &s->messages[m % HARP_MESSAGES_MAX];
}

size_t harp_sender_bytes(unsigned path_count) {
  return sizeof(struct harp_sender) +
         path_count *
             (sizeof(struct harp_path) + harp_flight_records(path_count) * sizeof(struct harp_burst));
}

/* Standby paths come last: to begin among them would be to begin with the first path. */
static unsigned primary_count(const struct harp_sender_config *config) {
  unsigned n = 0;
  while (n < config->path_count && !config->paths[n].standby) n++;
  return n;
}

void harp_sender_init(struct harp_sender *s, const struct harp_sender_config *config,
                      struct harp_trace *trace, struct harp_counters *counters, harp_ns now) {
  HARP_ASSERT(config->path_count >= 1 && config->path_count <= HARP_PATHS_MAX);
  s->trace = trace;
  s->counters = counters;
  s->done = s->oldest = s->next = s->tail = s->posted = config->first_message;
  s->delivered = s->sent_line = s->tail_line = config->first_line;
  s->credit_probe_ns = HARP_NEVER;
  s->credit_probes = 0;
  s->cork_ns = HARP_NEVER;
  s->stalled_since_ns = 0;
  harp_resend_init(&s->resend, config->first_line);
  s->path_count = config->path_count;
  s->share = config->share;
  uint32_t records = harp_flight_records(config->path_count);
  struct harp_burst *rings = (struct harp_burst *)&s->paths[config->path_count];
  for (unsigned i = 0; i < config->path_count; i++) {
    harp_path_init(&s->paths[i], i, config->first_number, &config->paths[i], config->cc,
                   config->window_max_bytes, rings + i * records, records, now);
  }
  s->start = config->first_number % HARP_MAX(primary_count(config), 1u);
  s->waits = false;
  s->copy_line = s->copy_lines = 0;
  s->copy_budget_bytes = HARP_TAIL_BUDGET_BYTES;
  harp_life_init(s, now);
}

int harp_sender_post(struct harp_sender *s, const void *data, uint32_t bytes, void *cookie, harp_ns now) {
  HARP_ASSERT(bytes <= HARP_MESSAGE_MAX_BYTES);
  if (s->tail - s->done == HARP_MESSAGES_MAX) return -EAGAIN;
  uint32_t lines = harp_lines_of(bytes);
  s->messages[s->tail % HARP_MESSAGES_MAX] =
      (struct harp_send_message){data, cookie, bytes, s->tail_line, lines};
  harp_trace(s->trace, now, HARP_EVENT_SEND_POST, s->tail, bytes, 0, 0);
  if (s->oldest == s->tail && (s->path_count > 1 || !s->eligible)) s->timers_ns = now; /* from idle to busy */
  s->tail_line += lines;
  s->tail++;
  return 0;
}

/* ---- acknowledgements ---- */

static void on_delivered(struct harp_sender *s, uint32_t delivered, harp_ns now) {
  if (!harp_seq_after(delivered, s->delivered)) return;
  harp_resend_on_delivered(&s->resend, s->delivered, delivered);
  s->delivered = delivered;
  while (s->oldest != s->tail) {
    const struct harp_send_message *m = message_at(s, s->oldest);
    if (harp_seq_before(delivered, m->line + m->lines)) break;
    harp_trace(s->trace, now, HARP_EVENT_SENT, s->oldest, 0, 0, 0);
    s->oldest++;
    s->counters->messages_sent++;
  }
}

static void on_size_probe_acked(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  harp_trace(s->trace, now, HARP_EVENT_PATH_SIZE, p->index, p->lines, p->size_probe_lines, 0);
  p->lines = HARP_MAX(p->lines, p->size_probe_lines);
  p->size_probe_lines = 0;
  p->size_probe_ns = p->lines < p->lines_max ? now + SIZE_PROBE_NEXT_NS : HARP_NEVER;
  harp_life_note_size(s, p);
}

/* The RTT that an acknowledgement shows, 0 if it shows none: now - echoed time - time it waited at the
 * receiver. */
static harp_ns ack_rtt_ns(const struct harp_packet *p, harp_ns now) {
  int32_t ticks = (int32_t)(harp_ticks_from_ns(now) - p->ack.echo_time - p->ack.echo_delay);
  return ticks < 0 ? 0 : HARP_MAX((harp_ns)ticks, 1u) * HARP_TICK_NS;
}

uint64_t harp_sender_ack_number(const struct harp_sender *s, const struct harp_packet *p) {
  return harp_seq_widen(p->number, s->paths[p->path].ack_next);
}

enum harp_drop harp_sender_on_ack(struct harp_sender *s, const struct harp_packet *p, uint64_t number,
                                  harp_ns now) {
  HARP_ASSERT(p->path < s->path_count);
  struct harp_path *path = &s->paths[p->path];
  if (harp_seq_after(p->ack.delivered, s->sent_line)) return HARP_DROP_STALE_ACK;
  uint64_t newest = 0; /* one above the highest number that is acknowledged */
  for (uint32_t i = 0; i < p->ack.range_count; i++) {
    if (!harp_seq_before(p->ack.ranges[i].begin, p->ack.ranges[i].end)) return HARP_DROP_FIELD;
    uint64_t end = harp_seq_widen(p->ack.ranges[i].end, path->next_number);
    if (end > path->next_number || p->ack.ranges[i].end - p->ack.ranges[i].begin > end)
      return HARP_DROP_STALE_ACK;
    newest = HARP_MAX(newest, end);
  }
  s->counters->rx_acks++;
  path->ack_next = HARP_MAX(path->ack_next, number + 1);
  if (harp_seq_after(p->ack.posted, s->posted)) {
    s->posted = p->ack.posted;
    s->credit_probe_ns = HARP_NEVER;
    s->credit_probes = 0;
  }
  on_delivered(s, p->ack.delivered, now);

  struct harp_loss_result r = {0};
  uint32_t inflight = path->inflight_bytes;
  for (uint32_t i = p->ack.range_count; i-- > 0;) {
    uint64_t end = harp_seq_widen(p->ack.ranges[i].end, path->next_number);
    uint64_t begin = end - (p->ack.ranges[i].end - p->ack.ranges[i].begin);
    harp_loss_on_acked(path, begin, end, &s->resend, &r, s->trace, now);
  }
  harp_trace(s->trace, now, HARP_EVENT_RX_ACK, p->path, path->largest_acked, s->delivered, s->posted);
  harp_life_note_detour(s, path, p->flags & HARP_FLAG_DETOUR);
  bool proven = path->state != HARP_PATH_UP && newest > path->proof_number;
  if (!r.advanced && !proven) return HARP_DROP_NONE;

  harp_ns rtt_ns = ack_rtt_ns(p, now);
  if (rtt_ns && s->path_count > 1 && now - path->last_ack_ns > RTT_STALE_NS) harp_rtt_forget(&path->rtt);
  if (rtt_ns) harp_rtt_on_sample(&path->rtt, rtt_ns, now);
  if (path->state == HARP_PATH_UP || proven) harp_life_on_answer(s, path, now);
  if (r.size_probe_acked) on_size_probe_acked(s, path, now);
  harp_loss_detect(path, &s->resend, s->delivered, &r, s->trace, now);
  harp_life_account(s, path, &r, inflight, rtt_ns, now);
  if (s->path_count > 1) harp_path_note_speed(path);
  s->timers_ns = HARP_MIN(s->timers_ns, path->loss_deadline_ns); /* the others only moved away */
  return HARP_DROP_NONE;
}

void harp_sender_on_final(struct harp_sender *s, uint32_t delivered, harp_ns now) {
  if (!harp_seq_after(delivered, s->sent_line)) on_delivered(s, delivered, now);
}

bool harp_sender_poll_done(struct harp_sender *s, void **cookie) {
  if (s->done == s->oldest) return false;
  *cookie = message_at(s, s->done++)->cookie;
  return true;
}

/* ---- timers ---- */

void harp_sender_path_down(struct harp_sender *s, unsigned path, harp_ns now) {
  HARP_ASSERT(path < s->path_count);
  harp_life_down(s, &s->paths[path], now);
}

/* The receiver's word about credit may have been lost: ask while everything waits for it. */
static bool waits_for_credit(const struct harp_sender *s) {
  if (s->sent_line == s->tail_line || s->resend.count || !s->eligible) return false;
  for (uint64_t bits = s->eligible; bits; bits &= bits - 1) {
    if (s->paths[__builtin_ctzll(bits)].inflight_bytes) return false;
  }
  return true;
}

static void on_credit_probe(struct harp_sender *s) {
  s->credit_probe_ns = HARP_NEVER;
  if (!waits_for_credit(s)) return;
  s->credit_probes++;
  struct harp_path *p = &s->paths[__builtin_ctzll(s->eligible)];
  if (!harp_flight_full(&p->flight)) harp_life_want_probe(s, p, true);
}

void harp_sender_on_timeout(struct harp_sender *s, harp_ns now) {
  harp_life_on_timeout(s, now);
  if (s->credit_probe_ns <= now) on_credit_probe(s);
}

/* ---- sending ---- */

/* Returns whether message m may go: its receive is posted, or it is small and an early slot is free for it.
 */
static bool has_credit(const struct harp_sender *s, uint32_t m) {
  if (harp_seq_before(m, s->posted)) return true;
  return message_at(s, m)->bytes <= HARP_EARLY_MAX_BYTES &&
         harp_seq_before(m, s->posted + HARP_EARLY_MESSAGES);
}

/* How many new lines of message `next` may go now. */
static uint32_t new_lines(const struct harp_sender *s) {
  if (s->next == s->tail || !has_credit(s, s->next)) return 0;
  const struct harp_send_message *m = message_at(s, s->next);
  uint32_t left = m->line + m->lines - s->sent_line;
  uint32_t window = HARP_WINDOW_LINES - (s->sent_line - s->delivered);
  return HARP_MIN(left, window);
}

static bool size_probe_due(const struct harp_path *p, harp_ns now) {
  return p->size_probe_ns <= now && !p->pto_count && p->state == HARP_PATH_UP;
}

/* Small messages that follow one another travel together, since a superframe costs a system call however
 * little it holds: while more is in flight than waits to be sent, acknowledgements will soon ask for the
 * rest. Bounded in time, and never for the first few packets, so that single messages go at once. (Nagle's
 * rule, RFC 896, by bytes.) */
static bool corked(struct harp_sender *s, harp_ns now) {
  uint64_t waiting = (uint64_t)(s->tail_line - s->sent_line) * HARP_LINE_BYTES, flying = 0;
  uint32_t bursts = 0;
  for (uint64_t bits = waiting < CORK_BYTES ? s->eligible : 0; bits; bits &= bits - 1) {
    const struct harp_path *p = &s->paths[__builtin_ctzll(bits)];
    flying += p->inflight_bytes;
    bursts += harp_flight_count(&p->flight);
  }
  if (waiting >= CORK_BYTES || waiting >= flying || (bursts < CORK_BURSTS && flying < CORK_FLIGHT_BYTES)) {
    s->cork_ns = HARP_NEVER;
    return false;
  }
  if (s->cork_ns == HARP_NEVER) s->cork_ns = now + CORK_NS;
  if (now < s->cork_ns) return true;
  s->cork_ns = HARP_NEVER;
  return false;
}

static struct harp_stripe stripe_of(const struct harp_sender *s) {
  uint64_t lines = (uint64_t)(s->tail_line - s->sent_line) + s->resend.count;
  return (struct harp_stripe){s->eligible, s->start, lines * HARP_LINE_BYTES, s->waits};
}

static struct harp_path *pick_best(struct harp_sender *s, harp_ns now) {
  if (s->path_count == 1)
    return !harp_path_silent(s->paths) && harp_path_open(s->paths, now) ? s->paths : NULL;
  struct harp_stripe stripe = stripe_of(s);
  struct harp_path *p = harp_stripe_pick(s->paths, &stripe, now);
  s->waits = stripe.waits;
  return p;
}

struct harp_path *harp_sender_pick(struct harp_sender *s, harp_ns now) {
  for (uint64_t bits = s->probes_due | s->sizing; bits; bits &= bits - 1) {
    struct harp_path *p = &s->paths[__builtin_ctzll(bits)];
    if ((p->probe_due || size_probe_due(p, now)) && !harp_flight_full(&p->flight)) return p;
  }
  s->copy_lines = 0;
  if (!s->eligible) return NULL;
  if (s->resend.count) return pick_best(s, now);
  if (new_lines(s)) return corked(s, now) ? NULL : pick_best(s, now);
  if (s->path_count > 1) {
    struct harp_path *p = harp_tail_pick(s, now);
    if (p) return p;
  }
  if (s->credit_probe_ns == HARP_NEVER && waits_for_credit(s)) {
    harp_ns wait_ns = CREDIT_PROBE_FIRST_NS << HARP_MIN(s->credit_probes, 7u);
    s->credit_probe_ns = now + HARP_MIN(wait_ns, CREDIT_PROBE_MAX_NS);
  }
  return NULL;
}

/* The message under way that holds a line; resent lines are never before the oldest. */
static uint32_t message_of_line(struct harp_sender *s, uint32_t line) {
  for (uint32_t m = s->oldest; m != s->tail; m++) {
    const struct harp_send_message *msg = message_at(s, m);
    if (line - msg->line < msg->lines) return m;
  }
  HARP_ASSERT(!"line of no message");
  return 0;
}

/* Makes the run for `lines` lines of message m from `line` on and books it on the path. */
static void emit(struct harp_sender *s, struct harp_path *p, uint32_t m, uint32_t line, uint32_t lines,
                 struct harp_tx_run *run, harp_ns now) {
  const struct harp_send_message *msg = message_at(s, m);
  uint32_t first = line - msg->line, count = (lines + p->lines - 1) / p->lines;
  uint32_t last_lines = lines - (count - 1) * p->lines;
  uint32_t last_line = first + (count - 1) * p->lines;
  uint32_t end_bytes = HARP_MIN(msg->bytes, (last_line + last_lines) * HARP_LINE_BYTES);
  HARP_ASSERT(first + lines <= msg->lines);
  struct harp_burst burst = {
      .line = line,
      .lines_per_packet = (uint16_t)p->lines,
      .last_lines = (uint16_t)last_lines,
      .packet_bytes = (uint16_t)(HARP_DATA_HEADER_BYTES + HARP_MIN(p->lines, lines) * HARP_LINE_BYTES),
      .count = (uint8_t)count,
  };
  *run = (struct harp_tx_run){
      .type = HARP_PACKET_DATA,
      .path = p->index,
      .count = count,
      .number = harp_path_on_sent(p, &burst, now),
      .message = m,
      .line = line,
      .lines_per_packet = p->lines,
      .last_bytes = end_bytes - last_line * HARP_LINE_BYTES,
      .offset = first * HARP_LINE_BYTES,
      .size = msg->bytes,
      .data = msg->data + (size_t)first * HARP_LINE_BYTES,
  };
}

static void emit_probe(struct harp_sender *s, struct harp_path *p, uint32_t lines, struct harp_tx_run *run,
                       harp_ns now) {
  struct harp_burst burst = {.packet_bytes = (uint16_t)(HARP_DATA_HEADER_BYTES + lines * HARP_LINE_BYTES),
                             .count = 1};
  *run = (struct harp_tx_run){.type = HARP_PACKET_PROBE,
                              .path = p->index,
                              .count = 1,
                              .number = harp_path_on_sent(p, &burst, now),
                              .ack_soon = true,
                              .last_bytes = lines * HARP_LINE_BYTES};
  s->counters->probes++;
  harp_trace(s->trace, now, HARP_EVENT_TX_PROBE, p->index, run->number, run->last_bytes, 0);
}

/* The oldest line in flight on the path that the receiver may lack; false when there is none. */
static bool oldest_pending(struct harp_sender *s, struct harp_path *p, uint32_t *line, uint32_t *lines) {
  for (uint32_t i = p->flight.head; i != p->flight.tail; i++) {
    struct harp_burst *b = harp_flight_at(&p->flight, i);
    for (uint64_t bits = harp_burst_pending(b); bits; bits &= bits - 1) {
      uint32_t k = (uint32_t)__builtin_ctzll(bits);
      *line = harp_burst_line(b, k);
      *lines = harp_burst_lines(b, k);
      if (*lines && !harp_seq_before(*line, s->delivered)) return true;
    }
  }
  return false;
}

/* Whether a line is well placed on the path: it may carry data, and was not drained of what it had. */
static bool carries_data(const struct harp_sender *s, const struct harp_path *p) {
  return (s->eligible >> p->index & 1) && !p->drained;
}

/* One packet in spite of the window: what has waited longest, else an empty probe. What is to be sent again
 * is left to other paths where there are any. */
static void poll_probe(struct harp_sender *s, struct harp_path *p, struct harp_tx_run *run, harp_ns now) {
  uint32_t line, lines;
  bool carries = carries_data(s, p), alone = s->eligible == 1ull << p->index;
  harp_life_want_probe(s, p, false);
  if (carries && alone && s->resend.count) {
    lines = harp_resend_first(&s->resend, p->lines, &line);
  } else if (!carries || !oldest_pending(s, p, &line, &lines)) {
    emit_probe(s, p, 0, run, now);
    return;
  }
  uint32_t m = message_of_line(s, line);
  const struct harp_send_message *msg = message_at(s, m);
  lines = HARP_MIN(HARP_MIN(lines, p->lines), msg->line + msg->lines - line);
  harp_resend_remove(&s->resend, line, lines);
  emit(s, p, m, line, lines, run, now);
  run->ack_soon = true;
  harp_trace(s->trace, now, HARP_EVENT_TX_AGAIN, p->index, run->number, run->count, run->line);
}

static void poll_resend(struct harp_sender *s, struct harp_path *p, uint32_t max_packets,
                        struct harp_tx_run *run, harp_ns now) {
  uint32_t line;
  uint32_t lines = harp_resend_first(&s->resend, max_packets * p->lines, &line);
  uint32_t m = message_of_line(s, line);
  const struct harp_send_message *msg = message_at(s, m);
  lines = HARP_MIN(lines, msg->line + msg->lines - line);
  harp_resend_remove(&s->resend, line, lines);
  emit(s, p, m, line, lines, run, now);
  harp_trace(s->trace, now, HARP_EVENT_TX_AGAIN, p->index, run->number, run->count, run->line);
}

static void poll_copy(struct harp_sender *s, struct harp_path *p, uint32_t max_packets,
                      struct harp_tx_run *run, harp_ns now) {
  uint32_t lines = HARP_MIN(s->copy_lines, max_packets * p->lines), m = message_of_line(s, s->copy_line);
  emit(s, p, m, s->copy_line, lines, run, now);
  run->ack_soon = true;
  s->copy_lines = 0;
  s->copy_budget_bytes -= HARP_MIN(s->copy_budget_bytes, lines * HARP_LINE_BYTES);
  s->counters->tail_duplicates += run->count;
  harp_trace(s->trace, now, HARP_EVENT_TX_AGAIN, p->index, run->number, run->count, run->line);
}

static void poll_new(struct harp_sender *s, struct harp_path *p, uint32_t lines, struct harp_tx_run *run,
                     harp_ns now) {
  emit(s, p, s->next, s->sent_line, lines, run, now);
  s->sent_line += lines;
  s->copy_budget_bytes = HARP_MIN(s->copy_budget_bytes + lines * (HARP_LINE_BYTES / HARP_TAIL_SHARE),
                                  HARP_TAIL_BUDGET_BYTES + 0u);
  const struct harp_send_message *m = message_at(s, s->next);
  if (s->sent_line == m->line + m->lines) s->next++;
  harp_trace(s->trace, now, HARP_EVENT_TX_DATA, p->index, run->number, run->count, run->line);
}

int harp_sender_peek_bytes(const struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  int full = (int)(p->lines * HARP_LINE_BYTES);
  if (p->probe_due) return full;
  if (size_probe_due(p, now)) return (int)(harp_path_next_size(p) * HARP_LINE_BYTES);
  if (s->resend.count || s->copy_lines) return full;
  if (!new_lines(s)) return -1;
  const struct harp_send_message *m = message_at(s, s->next);
  return HARP_MIN(full, (int)(m->bytes - (s->sent_line - m->line) * HARP_LINE_BYTES));
}

bool harp_sender_poll(struct harp_sender *s, struct harp_path *path, uint32_t max_packets,
                      struct harp_tx_run *run, harp_ns now) {
  struct harp_path *p = path;
  if (!max_packets || harp_flight_full(&p->flight)) return false;
  if (harp_unlikely(p->probe_due)) {
    poll_probe(s, p, run, now);
    harp_life_touch(s, p);
    return true;
  }
  if (harp_unlikely(size_probe_due(p, now))) {
    p->size_probe_lines = harp_path_next_size(p);
    p->size_probe_ns = now + (p->size_try_max ? SIZE_PROBE_AGAIN_NS : SIZE_PROBE_INTERVAL_NS);
    p->size_try_max = false;
    p->size_probe_number = p->next_number;
    emit_probe(s, p, p->size_probe_lines, run, now);
    harp_life_touch(s, p);
    return true;
  }
  /* A superframe takes at most half the window, so that acknowledgements keep it moving. The last packet may
   * be short, so the window is checked against full ones. */
  uint32_t allowed = HARP_MIN(harp_path_allowance_bytes(p, now), p->cc.window_bytes / 2) / p->cc.packet_bytes;
  max_packets = HARP_MIN(HARP_MIN(max_packets, allowed), (uint32_t)HARP_BURST_MAX_PACKETS);
  if (!max_packets) return false;
  bool first = !p->inflight_bytes;
  if (harp_unlikely(s->copy_lines)) {
    poll_copy(s, p, max_packets, run, now);
    if (first) harp_life_touch(s, p);
    return true;
  }
  if (s->resend.count) {
    poll_resend(s, p, max_packets, run, now);
  } else {
    uint32_t lines = HARP_MIN(new_lines(s), max_packets * p->lines);
    if (!lines) return false;
    poll_new(s, p, lines, run, now);
  }
  if (first) harp_life_touch(s, p);
  /* What is left is held back by credit, by the window, or by the cork: an acknowledgement sets it free. */
  uint64_t left = (uint64_t)(s->tail_line - s->sent_line) * HARP_LINE_BYTES;
  run->ack_soon = (!s->resend.count && (left < CORK_BYTES || !new_lines(s))) ||
                  harp_path_allowance_bytes(p, now) < p->cc.packet_bytes;
  return true;
}

void harp_sender_keepalive(struct harp_sender *s, harp_ns quiet_ns, harp_ns now) {
  harp_life_ask_quiet(s, quiet_ns, now);
}

/* Returns when data may go by time alone. */
static harp_ns data_ns(const struct harp_sender *s, harp_ns now) {
  if (!s->eligible) return HARP_NEVER;
  if (s->cork_ns != HARP_NEVER && !s->resend.count) return s->cork_ns;
  struct harp_stripe stripe = stripe_of(s);
  stripe.among = harp_stripe_answering(s->paths, stripe.among);
  harp_ns at = harp_stripe_deadline_ns(s->paths, &stripe, now);
  for (uint64_t bits = s->sizing & s->eligible; bits; bits &= bits - 1) {
    const struct harp_path *p = &s->paths[__builtin_ctzll(bits)];
    if (!p->pto_count && !harp_flight_full(&p->flight)) at = HARP_MIN(at, p->size_probe_ns);
  }
  return at;
}

harp_ns harp_sender_deadline_ns(const struct harp_sender *s, harp_ns now) {
  harp_ns at = HARP_MIN(s->credit_probe_ns, s->timers_ns);
  if (s->probes_due) return now;
  if (s->resend.count || new_lines(s)) return HARP_MIN(at, data_ns(s, now));
  if (s->path_count > 1) at = HARP_MIN(at, harp_tail_deadline_ns(s, now));
  return at;
}

void harp_sender_check(const struct harp_sender *s) {
  HARP_ASSERT(s->tail - s->done <= HARP_MESSAGES_MAX);
  HARP_ASSERT(s->oldest - s->done <= s->tail - s->done && s->next - s->oldest <= s->tail - s->oldest);
  HARP_ASSERT(s->sent_line - s->delivered <= HARP_WINDOW_LINES);
  HARP_ASSERT(!harp_seq_after(s->sent_line, s->tail_line));
  HARP_ASSERT(s->resend.count <= s->sent_line - s->delivered);
  HARP_ASSERT(!(s->probes_due >> (s->path_count - 1) >> 1));
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    HARP_ASSERT(p->probe_due == (s->probes_due >> i & 1));
    HARP_ASSERT((p->size_probe_ns != HARP_NEVER) == (s->sizing >> i & 1));
    HARP_ASSERT(p->state == HARP_PATH_UP || !(s->eligible >> i & 1));
    uint64_t bytes = 0, number = 0;
    for (uint32_t k = p->flight.head; k != p->flight.tail; k++) {
      const struct harp_burst *b = harp_flight_at(&p->flight, k);
      bytes += (uint64_t)harp_popcount(harp_burst_pending(b)) * b->packet_bytes;
      HARP_ASSERT(k == p->flight.head || b->number >= number);
      number = b->number + b->count;
    }
    HARP_ASSERT(bytes == p->inflight_bytes && number <= p->next_number);
  }
}
