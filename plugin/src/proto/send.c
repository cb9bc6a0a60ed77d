/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send.h"

#include <errno.h>
#include <string.h>

#include "base/seq.h"
#include "proto/path_health.h"
#include "proto/tail_duplication.h"

#define SIZE_PROBE_INTERVAL_NS HARP_SEC(10)
#define SIZE_PROBE_NEXT_NS     HARP_MS(10)
#define SIZE_PROBE_AGAIN_NS    HARP_MS(100)
#define CREDIT_PROBE_FIRST_NS  HARP_MS(2)
#define CREDIT_PROBE_MAX_NS    HARP_MS(256)
#define CREDIT_REVIEW_NS       HARP_MS(1) /* between two looks at the streams that wait for it */
#define CORK_NS                HARP_US(10)
/* Progress of a tcp path may be that of acknowledgements for the other direction, and the one that is waited
 * for may have been lost with another connection: after so long it is asked for again. */
#define PROGRESS_PROBE_NS HARP_MS(100)
/* An RTT that was not measured for so long says little of what an idle path would take now. */
#define RTT_STALE_NS HARP_MS(50)
enum {
  CORK_BYTES = 61440, /* about a superframe: no reason to wait */
  CORK_FLIGHT_BYTES = 4096,
  CORK_BURSTS = 3,
  ACK_REQUEST_PARTS =
      4, /* acknowledgements asked for in each window: the receiver does not know how large it is */
};
/* A window that was announced so long ago may have been given to others: a sender that was idle begins with
 * less, until an acknowledgement comes. The receiver counts it among its senders for longer. */
#define WINDOW_STALE_NS HARP_MS(50)

/* Standby paths come last: to begin among them would be to begin with the first path. */
static unsigned primary_count(const struct harp_sender_config *config) {
  unsigned n = 0;
  while (n < config->path_count && !config->paths[n].standby && !config->paths[n].is_tcp) n++;
  return n;
}

/* Whether two paths run between the same ENIs, over the same carrier. */
static bool is_same_pair(const struct harp_path_config *a, const struct harp_path_config *b) {
  return a->local_eni == b->local_eni && a->remote_eni == b->remote_eni && a->is_tcp == b->is_tcp;
}

/* The first path of the same pair. */
static unsigned first_of_pair(const struct harp_sender_config *config, unsigned path) {
  unsigned i = 0;
  while (!is_same_pair(&config->paths[i], &config->paths[path])) i++;
  return i;
}

static unsigned pair_count(const struct harp_sender_config *config, bool primary) {
  unsigned n = 0;
  for (unsigned i = 0; i < config->path_count; i++) {
    const struct harp_path_config *p = &config->paths[i];
    n += first_of_pair(config, i) == i && !(primary && (p->standby || p->is_tcp));
  }
  return n;
}

/* How many records the flight of a path has: most for those that carry data first. */
static uint32_t records_of(const struct harp_sender_config *config, unsigned path) {
  if (config->paths[path].is_tcp) return HARP_FLIGHT_RECORDS_TCP;
  unsigned first = pair_count(config, true), others = primary_count(config) - first;
  bool is_first = first_of_pair(config, path) == path;
  uint32_t records = harp_flight_records(HARP_MAX(is_first ? first : others, 1u), others);
  return config->paths[path].standby ? HARP_MIN(records, (uint32_t)HARP_FLIGHT_RECORDS_STANDBY) : records;
}

size_t harp_sender_bytes(const struct harp_sender_config *config) {
  size_t bytes = sizeof(struct harp_sender) + config->path_count * sizeof(struct harp_path) +
                 config->stream_max * sizeof(struct harp_tx_stream *) +
                 pair_count(config, false) * sizeof(struct harp_flows);
  for (unsigned i = 0; i < config->path_count; i++)
    bytes += records_of(config, i) * sizeof(struct harp_burst);
  return bytes;
}

/* Numbers the pairs of ENIs, and gives each its paths. */
static void init_pairs(struct harp_sender *s, const struct harp_sender_config *config, harp_ns now) {
  s->pair_count = 0;
  for (unsigned i = 0; i < s->path_count; i++) {
    unsigned first = first_of_pair(config, i);
    if (first < i) continue;
    uint64_t paths = 0, speed_bytes_s = (uint64_t)config->paths[i].speed_mbps * 125000;
    for (unsigned k = i; k < s->path_count; k++) {
      if (first_of_pair(config, k) != i) continue;
      paths |= 1ull << k;
      s->paths[k].pair = (uint8_t)s->pair_count;
    }
    harp_flows_init(&s->flows[s->pair_count++], paths, speed_bytes_s, now);
  }
}

/* ---- the peer's windows ---- */

static struct harp_window *window_to(struct harp_sender *s, unsigned remote_eni) {
  return &s->windows[remote_eni % HARP_WINDOWS_MAX];
}

static void set_windows(struct harp_sender *s, uint32_t bytes) {
  for (unsigned i = 0; i < HARP_WINDOWS_MAX; i++) s->windows[i].bytes = bytes;
}

/* Takes what the peer announces; counts what makes no sense. */
static uint32_t bounded_window(struct harp_sender *s, uint32_t bytes) {
  uint32_t bounded = harp_window_bounded(bytes);
  s->counters->absurd_windows += bounded != bytes;
  return bounded;
}

static void init_windows(struct harp_sender *s, uint32_t bytes, harp_ns now) {
  memset(s->windows, 0, sizeof s->windows);
  s->tcp_window = (struct harp_window){.bytes = UINT32_MAX / 2};
  s->window_told_ns = now;
  s->window_bytes = bounded_window(s, bytes);
  set_windows(s, s->window_bytes);
}

/* A window that grew has the paths grow with it; one that shrank cuts them when they change next. */
static void on_window(struct harp_sender *s, uint32_t bytes, harp_ns now) {
  s->window_told_ns = now;
  bytes = bounded_window(s, bytes);
  if (harp_likely(bytes == s->windows[0].bytes)) return;
  s->window_bytes = bytes;
  set_windows(s, bytes);
  for (unsigned i = 0; i < s->path_count; i++)
    if (!s->paths[i].is_tcp) s->paths[i].cc.window_max_bytes = bytes;
}

/* The sender begins to send after a while without anything to send. */
static void on_busy(struct harp_sender *s, harp_ns now) {
  if (now - s->window_told_ns < WINDOW_STALE_NS) return;
  set_windows(s, HARP_MIN(s->window_bytes, (uint32_t)HARP_WINDOW_MIN_BYTES));
}

/* ---- set-up ---- */

void harp_sender_init(struct harp_sender *s, const struct harp_sender_config *config,
                      const struct harp_trace *trace, struct harp_counters *counters, harp_ns now) {
  HARP_ASSERT(config->path_count >= 1 && config->path_count <= HARP_PATHS_MAX);
  HARP_ASSERT(config->stream_max >= 1 && config->stream_max <= HARP_STREAMS_MAX);
  s->trace = trace;
  s->counters = counters;
  s->load = (struct harp_tx_load){0};
  s->waiting_first = NULL;
  s->credit_probe_ns = HARP_NEVER;
  s->credit_wanted = false;
  s->small_lines = 0;
  s->cork_ns = HARP_NEVER;
  s->stalled_since_ns = 0;
  s->path_count = config->path_count;
  init_windows(s, config->window_bytes, now);
  struct harp_burst *ring = (struct harp_burst *)&s->paths[config->path_count];
  for (unsigned i = 0; i < config->path_count; i++) {
    struct harp_window *to =
        config->paths[i].is_tcp ? &s->tcp_window : window_to(s, config->paths[i].remote_eni);
    harp_path_init(&s->paths[i], i, config->first_number, &config->paths[i], config->cc, to, ring,
                   records_of(config, i), now);
    ring += records_of(config, i);
  }
  s->stream_max = config->stream_max;
  s->flows = (struct harp_flows *)ring;
  init_pairs(s, config, now);
  s->streams = (struct harp_tx_stream **)&s->flows[s->pair_count];
  memset(s->streams, 0, s->stream_max * sizeof s->streams[0]);
  s->start = config->first_number % HARP_MAX(pair_count(config, true), 1u);
  s->waits = false;
  s->copy_budget_bytes = HARP_TAIL_DUPLICATION_BUDGET_BYTES;
  harp_path_health_init(s, now);
}

/* ---- streams that wait for credit ---- */

/* The path over which to ask for credit; NULL: none can send. */
static struct harp_path *credit_probe_path(struct harp_sender *s) {
  for (uint64_t bits = harp_stripe_answering(s->paths, s->eligible & ~s->blocked); bits; bits &= bits - 1) {
    struct harp_path *p = &s->paths[__builtin_ctzll(bits)];
    if (!harp_flight_full(&p->flight)) return p;
  }
  return NULL;
}

/* Takes the streams out of the list that lack no credit any more; returns whether one is to ask for it. */
static bool review_waiting(struct harp_sender *s, harp_ns now) {
  bool due = false;
  for (struct harp_tx_stream **at = &s->waiting_first, *st; (st = *at);) {
    if (harp_tx_stream_lacks_credit(st)) {
      due |= st->credit_probe_ns <= now;
      at = &st->next_waiting;
    } else {
      st->is_waiting = false;
      *at = st->next_waiting;
    }
  }
  return due;
}

/* Asks for credit, for all streams at once. Each asks more and more rarely; those whose time has nearly come
 * ask with the others. */
static void on_credit_time(struct harp_sender *s, harp_ns now) {
  struct harp_path *p = review_waiting(s, now) ? credit_probe_path(s) : NULL;
  s->credit_probe_ns = HARP_NEVER;
  if (p) {
    s->credit_wanted = true;
    harp_path_health_want_probe(s, p, true);
  }
  for (struct harp_tx_stream *st = s->waiting_first; st; st = st->next_waiting) {
    harp_ns wait_ns = HARP_MIN(CREDIT_PROBE_FIRST_NS << HARP_MIN(st->credit_probes, 7u), CREDIT_PROBE_MAX_NS);
    if (p && st->credit_probe_ns <= now + wait_ns / 2) {
      st->credit_probes++;
      st->credit_probe_ns = now + HARP_MIN(2 * wait_ns, CREDIT_PROBE_MAX_NS);
    }
    s->credit_probe_ns = HARP_MIN(s->credit_probe_ns, HARP_MAX(st->credit_probe_ns, now + CREDIT_REVIEW_NS));
  }
}

/* Notes that a stream may send nothing for lack of credit. The receiver's word may have been lost, in all the
 * acknowledgements that told it, while other streams went on. */
static void note_waiting(struct harp_sender *s, struct harp_tx_stream *st, harp_ns now) {
  if (harp_likely(!harp_tx_stream_lacks_credit(st)) || (st->is_waiting && st->wanted == st->next)) return;
  st->wanted = st->next;
  st->credit_probes = 0;
  st->credit_probe_ns = now + CREDIT_PROBE_FIRST_NS;
  s->credit_probe_ns = HARP_MIN(s->credit_probe_ns, st->credit_probe_ns);
  if (st->is_waiting) return;
  st->is_waiting = true;
  st->next_waiting = s->waiting_first;
  s->waiting_first = st;
}

/* ---- streams ---- */

void harp_sender_open(struct harp_sender *s, struct harp_tx_stream *st,
                      const struct harp_tx_stream_config *config) {
  HARP_ASSERT(config->id < s->stream_max && !s->streams[config->id]);
  harp_tx_stream_init(st, config, &s->load, s->trace, s->counters);
  s->streams[config->id] = st;
}

void harp_sender_close(struct harp_sender *s, struct harp_tx_stream *st) {
  HARP_ASSERT(s->streams[st->id] == st);
  s->streams[st->id] = NULL;
  harp_tx_stream_close(st);
  struct harp_tx_stream **at = &s->waiting_first;
  while (st->is_waiting && *at != st) at = &(*at)->next_waiting;
  if (st->is_waiting) *at = st->next_waiting;
  for (unsigned i = 0; i < s->path_count; i++) harp_flight_forget(&s->paths[i].flight, st);
}

int harp_sender_post(struct harp_sender *s, struct harp_tx_stream *st, const void *data, uint32_t bytes,
                     void *cookie, harp_ns now) {
  bool was_idle = !s->load.messages;
  int err = harp_tx_stream_post(st, data, bytes, cookie, now);
  if (!err && was_idle) on_busy(s, now);
  if (!err && was_idle && (s->path_count > 1 || !s->eligible)) s->timers_ns = now; /* from idle to busy */
  note_waiting(s, st, now);
  return err;
}

/* ---- acknowledgements ---- */

static void on_size_probe_acked(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  harp_trace(s->trace, now,
             (struct harp_trace_entry){
                 .event = HARP_EVENT_PATH_SIZE, .path = p->index, .a = p->lines, .b = p->size_probe_lines});
  p->lines = HARP_MAX(p->lines, p->size_probe_lines);
  p->size_probe_lines = 0;
  p->size_probe_ns = p->lines < p->lines_max ? now + SIZE_PROBE_NEXT_NS : HARP_NEVER;
  harp_path_health_note_size(s, p);
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

/* A stream that was closed meanwhile needs no credit. */
static void on_credit(struct harp_sender *s, const struct harp_credit *credit) {
  struct harp_tx_stream *st = credit->stream < s->stream_max ? s->streams[credit->stream] : NULL;
  if (st) harp_tx_stream_on_credit(st, credit->posted);
}

enum harp_drop harp_sender_on_ack(struct harp_sender *s, const struct harp_packet *p, uint64_t number,
                                  harp_ns now) {
  HARP_ASSERT(p->path < s->path_count);
  struct harp_path *path = &s->paths[p->path];
  uint64_t newest = 0; /* one above the highest number that is acknowledged */
  for (uint32_t i = 0; i < p->ack.range_count; i++) {
    if (!harp_seq_before(p->ack.ranges[i].begin, p->ack.ranges[i].end)) return HARP_DROP_FIELD;
    uint64_t end = harp_seq_widen(p->ack.ranges[i].end, path->next_number);
    if (end > path->next_number || p->ack.ranges[i].end - p->ack.ranges[i].begin > end)
      return HARP_DROP_STALE_ACK;
    newest = HARP_MAX(newest, end);
  }
  s->counters->rx_acks++;
  if (number >= path->ack_next) { /* no other of this path has overtaken it */
    path->ack_next = number + 1;
    on_window(s, p->ack.window_bytes, now);
  }
  for (uint32_t i = 0; i < p->ack.credit_count; i++) on_credit(s, &p->ack.credits[i]);

  struct harp_loss_result r = {0};
  uint32_t inflight = path->inflight_bytes;
  for (uint32_t i = p->ack.range_count; i-- > 0;) {
    uint64_t end = harp_seq_widen(p->ack.ranges[i].end, path->next_number);
    uint64_t begin = end - (p->ack.ranges[i].end - p->ack.ranges[i].begin);
    harp_loss_on_acked(path, begin, end, &r, s->trace, now);
  }
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_RX_ACK,
                                       .path = p->path,
                                       .number = path->largest_acked,
                                       .a = (uint32_t)number,
                                       .b = path->cc.window_bytes});
  harp_path_health_note_detour(s, path, p->flags & HARP_FLAG_DETOUR, now);
  bool proven =
      (path->state == HARP_PATH_NEW || path->state == HARP_PATH_DOWN) && newest > path->proof_number;
  if (!r.advanced && !proven) return HARP_DROP_NONE;

  harp_ns rtt_ns = ack_rtt_ns(p, now);
  if (rtt_ns && s->path_count > 1 && now - path->last_ack_ns > RTT_STALE_NS) harp_rtt_forget(&path->rtt);
  if (rtt_ns) harp_rtt_on_sample(&path->rtt, rtt_ns, now);
  if (path->state == HARP_PATH_UP || proven) harp_path_health_on_answer(s, path, now);
  if (r.size_probe_acked) on_size_probe_acked(s, path, now);
  harp_loss_detect(path, &r, s->trace, now);
  harp_path_health_account(s, path, &r, inflight, rtt_ns, now);
  if (s->path_count > 1) harp_path_note_speed(path);
  harp_path_health_touch(
      s, path); /* a smaller RTT, or the first answer after doublings, brings the timeout closer */
  return HARP_DROP_NONE;
}

/* ---- timers ---- */

void harp_sender_path_down(struct harp_sender *s, unsigned path, harp_ns now) {
  HARP_ASSERT(path < s->path_count);
  harp_path_health_down(s, &s->paths[path], now);
}

void harp_sender_block(struct harp_sender *s, unsigned path, harp_ns now) {
  struct harp_path *p = &s->paths[path];
  HARP_ASSERT(s->tcp >> path & 1);
  if (!p->blocked && !p->inflight_bytes) p->pto_from_ns = now;
  p->blocked = true;
  p->cc.round_limited = true; /* the kernel holds as much as it takes */
  s->blocked |= 1ull << path;
  harp_path_health_touch(s, p);
}

void harp_sender_unblock(struct harp_sender *s, unsigned path, harp_ns now) {
  struct harp_path *p = &s->paths[path];
  harp_sender_on_progress(s, path, now);
  p->blocked = false;
  s->blocked &= ~(1ull << path);
  if (p->state == HARP_PATH_UP || p->state == HARP_PATH_DORMANT || p->probe_due) return;
  p->probed_ns = now;
  harp_path_health_want_probe(s, p, true);
}

void harp_sender_avoid(struct harp_sender *s, unsigned path, bool avoided) {
  HARP_ASSERT(s->tcp >> path & 1);
  s->avoided = avoided ? s->avoided | 1ull << path : s->avoided & ~(1ull << path);
  harp_path_health_divide(s);
}

void harp_sender_on_progress(struct harp_sender *s, unsigned path, harp_ns now) {
  struct harp_path *p = &s->paths[path];
  if (p->state != HARP_PATH_UP || !harp_path_owes(p)) return;
  p->pto_from_ns = now;
  p->pto_count = 0;
  if (!p->inflight_bytes) { /* blocked */
    harp_path_health_touch(s, p);
    return;
  }
  harp_ns sent_ns = harp_flight_at(&p->flight, p->flight.head)->sent_ns;
  harp_ns since_ns = HARP_MAX(HARP_MAX(p->last_ack_ns, p->probed_ns), sent_ns);
  if (now - since_ns >= PROGRESS_PROBE_NS && !harp_flight_full(&p->flight))
    harp_path_health_want_probe(s, p, true);
  harp_path_health_touch(s, p);
}

void harp_sender_on_timeout(struct harp_sender *s, harp_ns now) {
  harp_path_health_on_timeout(s, now);
  if (s->credit_probe_ns <= now) on_credit_time(s, now);
}

/* ---- sending ---- */

/* Returns the first stream of a class that has something to send. One that has nothing leaves the list until
 * it has. */
static struct harp_tx_stream *first_of(struct harp_sender *s, unsigned class) {
  struct harp_tx_list *list = &s->load.ready[class];
  struct harp_tx_stream *st;
  while ((st = list->first) && !st->resend.count && !harp_tx_stream_new_lines(st))
    harp_tx_list_pop(list)->is_ready = false;
  return st;
}

/* Returns the stream whose turn it is, NULL when none has anything to send. */
static struct harp_tx_stream *next_stream(struct harp_sender *s) {
  if (harp_likely(!s->load.ready[HARP_TX_SMALL].first)) return first_of(s, HARP_TX_LARGE);
  struct harp_tx_stream *small = first_of(s, HARP_TX_SMALL), *large = first_of(s, HARP_TX_LARGE);
  return small && (!large || s->small_lines < HARP_TURN_LINES) ? small : large;
}

static bool is_any_ready(const struct harp_sender *s) {
  return s->load.ready[HARP_TX_SMALL].first || s->load.ready[HARP_TX_LARGE].first;
}

/* Gives the turn to the next stream of the list that may send. One that sent more than its share in a turn is
 * passed over until it has made up for it. */
static void rotate(struct harp_tx_list *list) {
  do {
    struct harp_tx_stream *st = harp_tx_list_pop(list);
    st->deficit_lines += HARP_TURN_LINES;
    harp_tx_list_push(list, st);
  } while (list->first->deficit_lines <= 0);
}

/* The stream has come to another message: moves it where that belongs; returns whether that is elsewhere. One
 * that has no more to send leaves when its turn comes. */
static bool reclass(struct harp_sender *s, struct harp_tx_stream *st) {
  if (!st->resend.count && !harp_tx_stream_new_lines(st)) return false;
  unsigned class = harp_tx_stream_class(st);
  if (class == st->class) return false;
  harp_tx_list_pop(&s->load.ready[st->class]);
  st->class = (uint8_t) class;
  st->deficit_lines = HARP_TURN_LINES;
  harp_tx_list_push(&s->load.ready[class], st);
  return true;
}

/* Books what a stream sent in its turn, which ends when its share is used up. */
static void end_turn(struct harp_sender *s, const struct harp_tx_choice *c, uint32_t lines) {
  struct harp_tx_stream *st = c->stream;
  struct harp_tx_list *list = &s->load.ready[st->class];
  HARP_ASSERT(list->first == st);
  if (st->class == HARP_TX_LARGE)
    s->small_lines -= HARP_MIN(lines, s->small_lines);
  else if (s->load.ready[HARP_TX_LARGE].first)
    s->small_lines += lines;
  if ((c->message != st->next && reclass(s, st)) || list->last == st) return;
  st->deficit_lines -= (int32_t)lines;
  if (st->deficit_lines <= 0) rotate(list);
}

static bool size_probe_due(const struct harp_path *p, harp_ns now) {
  return p->size_probe_ns <= now && !p->pto_count && p->state == HARP_PATH_UP;
}

/* Small messages that follow one another travel together, since a superframe costs a system call however
 * little it holds: while more is in flight than waits to be sent, acknowledgements will soon ask for the
 * rest. Bounded in time, and never for the first few packets, so that single messages go at once. (Nagle's
 * rule, RFC 896, by bytes.) */
static bool corked(struct harp_sender *s, harp_ns now) {
  uint64_t waiting = (uint64_t)s->load.waiting_lines * HARP_LINE_BYTES, flying = 0;
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

/* Whether a line is well placed on the path: it may carry data, and was not drained of what it had. */
static bool carries_data(const struct harp_sender *s, const struct harp_path *p) {
  return (s->eligible >> p->index & 1) && !p->drained;
}

/* How many full packets may go on the path now. A superframe takes at most half the window, so that
 * acknowledgements keep it moving. The last packet may be short, so the window is checked against full ones.
 */
static uint32_t packets_allowed(const struct harp_path *p, harp_ns now) {
  if (p->is_tcp) return HARP_MIN(harp_path_allowance(p, now), 1u);
  uint32_t packets = HARP_MIN(harp_path_allowance(p, now), p->cc.window_bytes / 2 / p->cc.packet_bytes);
  packets = HARP_MIN(packets, p->to->bytes / 2 / harp_window_cost_bytes(1, p->cc.packet_bytes));
  return HARP_MIN(packets, (uint32_t)HARP_BURST_MAX_PACKETS);
}

/* Cuts the choice's lines to its packets and to the end of their message. */
static void fit(const struct harp_sender *s, struct harp_tx_choice *c) {
  const struct harp_path *p = &s->paths[c->path];
  if (c->kind != HARP_TX_NEW) c->message = harp_tx_stream_message_of(c->stream, c->line);
  const struct harp_send_message *m = harp_tx_stream_message(c->stream, c->message);
  c->lines = HARP_MIN(HARP_MIN(c->lines, c->packets * p->lines), m->line + m->lines - c->line);
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
 * other probe goes on carrying data, which saves a round trip where the path was at fault. */
static bool asks_barely(const struct harp_path *p) {
  return p->pto_count > HARP_PATH_SILENT_PTOS && p->lines <= HARP_PACKET_MIN_LINES && p->pto_count % 2 == 0;
}

/* One packet in spite of the window: what has waited longest, else an empty probe. What is to be sent again
 * is left to other paths where there are any. */
static struct harp_tx_choice choose_probe(struct harp_sender *s, const struct harp_path *p) {
  struct harp_tx_choice c = {.kind = HARP_TX_PROBE, .path = p->index, .packets = 1};
  bool carries = carries_data(s, p), alone = s->eligible == 1ull << p->index;
  if (s->credit_wanted || p->is_tcp || asks_barely(p)) return c;
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
  for (uint64_t bits = (s->probes_due & ~s->blocked) | s->sizing; bits; bits &= bits - 1) {
    const struct harp_path *p = &s->paths[__builtin_ctzll(bits)];
    if ((p->probe_due || size_probe_due(p, now)) && !harp_flight_full(&p->flight)) return p;
  }
  return NULL;
}

static bool choose(struct harp_sender *s, struct harp_tx_choice *c, harp_ns now) {
  const struct harp_path *p = probing_path(s, now);
  if (harp_unlikely(p)) {
    *c = p->probe_due ? choose_probe(s, p) : choose_size_probe(p);
    return true;
  }
  struct harp_tx_stream *st = next_stream(s);
  if (!s->eligible) return false;
  if (st) {
    uint64_t among = s->by_class[st->class];
    if (!s->load.resend_lines && !(among & s->tcp) && corked(s, now)) return false;
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
  const struct harp_tx_stream *st = next_stream(s);
  if (!s->eligible || !st) return HARP_NEVER;
  struct harp_stripe stripe = stripe_of(s, s->by_class[st->class]);
  if (s->cork_ns != HARP_NEVER && !s->load.resend_lines && !(stripe.among & s->tcp)) return s->cork_ns;
  stripe.among = harp_stripe_answering(s->paths, stripe.among);
  harp_ns at = harp_stripe_deadline_ns(s->paths, &stripe, now);
  for (uint64_t bits = s->sizing & s->eligible; bits; bits &= bits - 1) {
    const struct harp_path *p = &s->paths[__builtin_ctzll(bits)];
    if (!p->pto_count && !harp_flight_full(&p->flight)) at = HARP_MIN(at, p->size_probe_ns);
  }
  return at;
}

/* Returns when there may be something to send by time alone, or a timer falls due. */
static harp_ns deadline_ns(struct harp_sender *s, harp_ns now) {
  harp_ns at = HARP_MIN(s->credit_probe_ns, s->timers_ns);
  if (s->probes_due & ~s->blocked) return now;
  if (is_any_ready(s)) return HARP_MIN(at, data_ns(s, now));
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
  struct harp_tx_stream *st = next_stream(s);
  struct harp_tx_choice c = {.kind = HARP_TX_NOTHING};
  if (!st || !(s->by_class[st->class] >> path & 1) || p->probe_due || size_probe_due(p, now) ||
      !choose_data(s, st, p, &c, now))
    c = (struct harp_tx_choice){.kind = HARP_TX_NOTHING};
  return c;
}

/* ---- taking ---- */

/* Makes the run for the first `lines` lines of a choice and books it on the path. */
static void emit(struct harp_path *p, const struct harp_tx_choice *c, uint32_t lines, struct harp_tx_run *run,
                 harp_ns now) {
  const struct harp_send_message *msg = harp_tx_stream_message(c->stream, c->message);
  uint32_t first = c->line - msg->line, count = (lines + p->lines - 1) / p->lines;
  uint32_t last_lines = lines - (count - 1) * p->lines;
  uint32_t last_line = first + (count - 1) * p->lines;
  uint32_t end_bytes = HARP_MIN(msg->bytes, (last_line + last_lines) * HARP_LINE_BYTES);
  HARP_ASSERT(first + lines <= msg->lines);
  struct harp_burst burst = {
      .stream = c->stream,
      .line = c->line,
      .lines_per_packet = (uint16_t)p->lines,
      .last_lines = (uint16_t)last_lines,
      .packet_bytes = HARP_DATA_HEADER_BYTES + HARP_MIN(p->lines, lines) * HARP_LINE_BYTES,
      .count = (uint8_t)count,
  };
  *run = (struct harp_tx_run){
      .type = HARP_PACKET_DATA,
      .path = p->index,
      .stream = c->stream->id,
      .count = count,
      .number = harp_path_on_sent(p, &burst, now),
      .message = c->message,
      .line = c->line,
      .lines_per_packet = p->lines,
      .last_bytes = end_bytes - last_line * HARP_LINE_BYTES,
      .offset = first * HARP_LINE_BYTES,
      .size = msg->bytes,
      .data = msg->data + (size_t)first * HARP_LINE_BYTES,
  };
}

static void emit_probe(struct harp_sender *s, struct harp_path *p, uint32_t lines, struct harp_tx_run *run,
                       harp_ns now) {
  struct harp_burst burst = {.packet_bytes = HARP_DATA_HEADER_BYTES + lines * HARP_LINE_BYTES, .count = 1};
  *run = (struct harp_tx_run){.type = HARP_PACKET_PROBE,
                              .path = p->index,
                              .count = 1,
                              .number = harp_path_on_sent(p, &burst, now),
                              .flags = HARP_FLAG_ACK_SOON | (s->credit_wanted ? HARP_FLAG_CREDIT : 0),
                              .last_bytes = lines * HARP_LINE_BYTES};
  s->credit_wanted = false;
  s->counters->probes++;
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_TX_PROBE,
                                       .path = p->index,
                                       .number = run->number,
                                       .count = 1,
                                       .b = run->last_bytes});
}

static void take_probe(struct harp_sender *s, struct harp_path *p, const struct harp_tx_choice *c,
                       struct harp_tx_run *run, harp_ns now) {
  harp_path_health_want_probe(s, p, false);
  p->probed_ns = now; /* the next probe keeps its distance even if this one had to wait for a frame */
  if (p->pto_count || harp_path_pto_ns(p) <= now) p->pto_from_ns = now;
  if (!c->lines) {
    emit_probe(s, p, 0, run, now);
    return;
  }
  harp_tx_stream_take_lost(c->stream, c->line, c->lines);
  emit(p, c, c->lines, run, now);
  run->flags = HARP_FLAG_ACK_SOON;
}

static void take_size_probe(struct harp_sender *s, struct harp_path *p, const struct harp_tx_choice *c,
                            struct harp_tx_run *run, harp_ns now) {
  p->size_probe_lines = c->bytes / HARP_LINE_BYTES;
  p->size_probe_ns = now + (p->size_try_max ? SIZE_PROBE_AGAIN_NS : SIZE_PROBE_INTERVAL_NS);
  p->size_try_max = false;
  p->size_probe_number = p->next_number;
  emit_probe(s, p, p->size_probe_lines, run, now);
}

static void take_copy(struct harp_sender *s, struct harp_path *p, const struct harp_tx_choice *c,
                      uint32_t lines, struct harp_tx_run *run, harp_ns now) {
  c->copy_of->copied = true;
  emit(p, c, lines, run, now);
  run->flags = HARP_FLAG_ACK_SOON;
  s->copy_budget_bytes -= HARP_MIN(s->copy_budget_bytes, lines * HARP_LINE_BYTES);
  s->counters->tail_duplicates += run->count;
}

static void take_new(struct harp_sender *s, struct harp_path *p, const struct harp_tx_choice *c,
                     uint32_t lines, struct harp_tx_run *run, harp_ns now) {
  emit(p, c, lines, run, now);
  harp_tx_stream_take_new(c->stream, lines);
  note_waiting(s, c->stream, now);
  s->copy_budget_bytes =
      HARP_MIN(s->copy_budget_bytes + lines * (HARP_LINE_BYTES / HARP_TAIL_DUPLICATION_SHARE),
               HARP_TAIL_DUPLICATION_BUDGET_BYTES + 0u);
}

/* Whether enough of the path's window, or of its records, was used since it last asked. */
static bool used_its_part(const struct harp_path *p) {
  uint32_t window = HARP_MIN(p->cc.window_bytes, p->to->bytes);
  return p->unrequested_bytes >= window / ACK_REQUEST_PARTS ||
         p->unrequested_bursts >= p->flight.records / ACK_REQUEST_PARTS;
}

/* Whether an acknowledgement that was asked for has yet to come. */
static bool awaits_ack(const struct harp_path *p) {
  return p->inflight_bytes && (!p->any_acked || p->ack_request_number > p->largest_acked);
}

/* Whether the last packet is to ask for an acknowledgement: a part of the window is used, or the sender can
 * go on only when one comes. What is left may be held back by credit or by the cork, or by the window; then
 * an acknowledgement that is to come anyway is enough. */
static bool wants_ack(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  uint64_t left = (uint64_t)s->load.waiting_lines * HARP_LINE_BYTES;
  if (used_its_part(p)) return true;
  if (!s->load.resend_lines && (left < CORK_BYTES || !next_stream(s))) return true;
  return !awaits_ack(p) && !harp_path_allowance(p, now);
}

/* Notes what a run has asked for. */
static void note_ack_request(struct harp_path *p, const struct harp_tx_run *run) {
  if (!(run->flags & HARP_FLAG_ACK_SOON)) return;
  p->ack_request_number = run->number + run->count - 1;
  p->unrequested_bytes = p->unrequested_bursts = 0;
}

static struct harp_trace_entry entry_of(enum harp_event event, const struct harp_tx_run *run,
                                        uint32_t lines) {
  return (struct harp_trace_entry){
      .event = (uint8_t)event,
      .path = run->path,
      .number = run->number,
      .count = (uint8_t)run->count,
      .stream = run->stream,
      .a = run->line,
      .b = lines,
  };
}

static HARP_COLD void trace_again(const struct harp_sender *s, const struct harp_tx_run *run, uint32_t lines,
                                  bool is_copy, harp_ns now) {
  harp_trace(s->trace, now, entry_of(is_copy ? HARP_EVENT_TX_COPY : HARP_EVENT_TX_AGAIN, run, lines));
}

void harp_sender_take(struct harp_sender *s, const struct harp_tx_choice *c, uint32_t max_packets,
                      struct harp_tx_run *run, harp_ns now) {
  HARP_ASSERT(c->kind != HARP_TX_NOTHING && c->packets && max_packets);
  struct harp_path *p = &s->paths[c->path];
  uint32_t lines = HARP_MIN(c->lines, max_packets * p->lines);
  if (s->pair_count < s->path_count) harp_flows_on_sent(&s->flows[p->pair], now);
  bool first = !p->inflight_bytes, in_turn = c->kind == HARP_TX_RESEND || c->kind == HARP_TX_NEW;
  switch (c->kind) {
  case HARP_TX_PROBE:
    take_probe(s, p, c, run, now);
    break;
  case HARP_TX_SIZE_PROBE:
    take_size_probe(s, p, c, run, now);
    break;
  case HARP_TX_COPY:
    take_copy(s, p, c, lines, run, now);
    break;
  case HARP_TX_RESEND:
    emit(p, c, lines, run, now);
    harp_tx_stream_take_lost(c->stream, c->line, lines);
    p->resent_packets += run->count;
    break;
  default:
    take_new(s, p, c, lines, run, now);
  }
  if (harp_likely(c->kind == HARP_TX_NEW))
    harp_trace(s->trace, now, entry_of(HARP_EVENT_TX_DATA, run, lines));
  else if (run->type == HARP_PACKET_DATA)
    trace_again(s, run, lines, c->kind == HARP_TX_COPY, now);
  if (in_turn) {
    end_turn(s, c, lines);
    if (wants_ack(s, p, now)) run->flags = HARP_FLAG_ACK_SOON;
  }
  note_ack_request(p, run);
  if (first || c->kind == HARP_TX_PROBE || c->kind == HARP_TX_SIZE_PROBE) harp_path_health_touch(s, p);
}

void harp_sender_keepalive(struct harp_sender *s, harp_ns quiet_ns, harp_ns now) {
  harp_path_health_probe_quiet(s, quiet_ns, now);
}

static void check_path(const struct harp_sender *s, unsigned i) {
  const struct harp_path *p = &s->paths[i];
  HARP_ASSERT(p->probe_due == (s->probes_due >> i & 1));
  HARP_ASSERT(p->is_tcp == (s->tcp >> i & 1) && p->blocked == (s->blocked >> i & 1));
  HARP_ASSERT((p->size_probe_ns != HARP_NEVER) == (s->sizing >> i & 1));
  HARP_ASSERT(p->state == HARP_PATH_UP || !(s->eligible >> i & 1));
  HARP_ASSERT(p->state != HARP_PATH_DORMANT || !p->probe_due);
  uint64_t bytes = 0, number = 0;
  for (uint32_t k = p->flight.head; k != p->flight.tail; k++) {
    const struct harp_burst *b = harp_flight_at(&p->flight, k);
    bytes += (uint64_t)harp_popcount(harp_burst_pending(b)) * b->packet_bytes;
    HARP_ASSERT(k == p->flight.head || b->number >= number);
    HARP_ASSERT(!b->stream || (b->lines_per_packet && s->streams[b->stream->id] == b->stream));
    number = b->number + b->count;
  }
  HARP_ASSERT(bytes == p->inflight_bytes && number <= p->next_number);
}

static uint32_t cost_of_flight(const struct harp_flight *f) {
  uint32_t cost = 0;
  for (uint32_t k = f->head; k != f->tail; k++) {
    const struct harp_burst *b = harp_flight_at(f, k);
    cost += harp_window_cost_bytes(harp_popcount(harp_burst_pending(b)), b->packet_bytes);
  }
  return cost;
}

static void check_list(const struct harp_sender *s, unsigned class) {
  const struct harp_tx_list *list = &s->load.ready[class];
  HARP_ASSERT(!list->first == !list->last);
  for (const struct harp_tx_stream *st = list->first; st; st = st->next_ready)
    HARP_ASSERT(s->streams[st->id] == st && st->is_ready && st->class == class &&
                (st->next_ready || st == list->last));
}

void harp_sender_check(const struct harp_sender *s) {
  uint32_t messages = 0, waiting = 0, resend = 0;
  for (unsigned i = 0; i < s->stream_max; i++) {
    const struct harp_tx_stream *st = s->streams[i];
    if (!st) continue;
    HARP_ASSERT(st->id == i && st->load == &s->load);
    harp_tx_stream_check(st);
    HARP_ASSERT(!harp_tx_stream_lacks_credit(st) || (st->is_waiting && s->credit_probe_ns != HARP_NEVER));
    messages += st->tail - st->oldest, resend += st->resend.count;
    waiting += harp_tx_stream_waiting_lines(st);
  }
  HARP_ASSERT(s->load.messages == messages && s->load.waiting_lines == waiting &&
              s->load.resend_lines == resend);
  for (unsigned class = 0; class < HARP_TX_CLASSES; class ++) check_list(s, class);
  HARP_ASSERT(!(s->probes_due >> (s->path_count - 1) >> 1));
  uint32_t cost[HARP_WINDOWS_MAX] = {0};
  for (unsigned i = 0; i < s->path_count; i++) {
    check_path(s, i);
    if (!s->paths[i].is_tcp) cost[s->paths[i].to - s->windows] += cost_of_flight(&s->paths[i].flight);
  }
  for (unsigned i = 0; i < HARP_WINDOWS_MAX; i++) HARP_ASSERT(s->windows[i].inflight_bytes == cost[i]);
}
