/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/recv.h"

#include <string.h>

#include "base/assert.h"
#include "base/seq.h"
#include "proto/receive_window.h"

/* The acknowledgement leaves at once when something is out of order, or came marked as CE (RFC 9000,
 * section 13.2.1), or a part of our window is used. It leaves soon when the sender requests it, as it does
 * when it has used a part of its own window, or waits; a few microseconds let the receiving thread hand
 * the message to its caller first. Else it leaves late: it may ride on data. */
enum {
  ACK_WINDOW_PARTS = 4,
  ACK_EVERY_MAX_BYTES = 512 * 1024, /* eight superframes */
  CREDIT_REPEATS = 4,               /* a credit is announced so often, in case acknowledgements get lost */
};
#define ACK_SOON_NS HARP_US(1)
#define ACK_LATE_NS HARP_US(200)
#define ACK_REST_NS HARP_US(500) /* small messages, for which nobody waits: less than a probe timeout */
/* An acknowledgement that carries the credit of a new receive waits for so long. */
#define ACK_NEXT_CREDIT_NS HARP_US(20) /* the sender may need it for its next message */
#define ACK_CREDIT_NS      HARP_US(50) /* it has some left */
/* An acknowledgement rides on data when it falls due within this. Tried: all that wait ride. Then each
 * superframe brings one, each makes room for a few packets, and superframes shrink: 2870 of them carried what
 * 1250 do without riding (tests/script/test_streams.c). */
#define RIDE_NS HARP_US(25)

static size_t closed_words(unsigned stream_max) {
  return (stream_max + 63) / 64;
}

size_t harp_receiver_bytes(const struct harp_receiver_config *config) {
  return sizeof(struct harp_receiver) + config->path_count * sizeof(struct harp_rx_path) +
         config->stream_max * sizeof(struct harp_rx_stream *) +
         closed_words(config->stream_max) * sizeof(uint64_t);
}

void harp_receiver_init(struct harp_receiver *r, const struct harp_receiver_config *config,
                        const struct harp_trace *trace, struct harp_counters *counters) {
  HARP_ASSERT(config->path_count >= 1 && config->path_count <= HARP_PATHS_MAX);
  HARP_ASSERT(config->stream_max >= 1 && config->stream_max <= HARP_STREAMS_MAX);
  memset(r, 0, harp_receiver_bytes(config));
  r->trace = trace;
  r->packet_trace = trace && trace->is_full;
  r->counters = counters;
  r->path_count = config->path_count;
  r->stream_max = config->stream_max;
  r->streams = (struct harp_rx_stream **)&r->paths[r->path_count];
  r->closed = (uint64_t *)&r->streams[r->stream_max];
  harp_receiver_set_window(r, config->window_bytes);
  r->ack_due_ns = HARP_NEVER;
  r->unproved = config->unproved;
  for (unsigned i = 0; i < r->path_count; i++) {
    r->paths[i].next_number = r->paths[i].ack_number = r->paths[i].settled_number = config->first_number;
    r->paths[i].least_number = config->first_number;
    r->paths[i].ack_due_ns = HARP_NEVER;
  }
}

void harp_receiver_set_window(struct harp_receiver *r, uint32_t bytes) {
  r->window_bytes = harp_receive_window_bounded(bytes) / HARP_WINDOW_UNIT_BYTES * HARP_WINDOW_UNIT_BYTES;
  r->ack_every_bytes = HARP_MIN(r->window_bytes / ACK_WINDOW_PARTS, (uint32_t)ACK_EVERY_MAX_BYTES);
}

/* ---- credit ---- */

static struct harp_rx_list *list_of(struct harp_receiver *r, const struct harp_rx_stream *st) {
  if (!st->announces_left) return &r->announced;
  return st->announces_left == CREDIT_REPEATS ? &r->fresh : &r->repeated;
}

static void add_to_list(struct harp_receiver *r, struct harp_rx_stream *st, uint8_t announces_left) {
  st->announces_left = announces_left;
  struct harp_rx_list *list = list_of(r, st);
  st->next = NULL;
  st->previous = list->last;
  *(list->last ? &list->last->next : &list->first) = st;
  list->last = st;
  r->fresh_count += list == &r->fresh;
}

static void remove_from_list(struct harp_receiver *r, struct harp_rx_stream *st) {
  struct harp_rx_list *list = list_of(r, st);
  *(st->previous ? &st->previous->next : &list->first) = st->next;
  *(st->next ? &st->next->previous : &list->last) = st->previous;
  r->fresh_count -= list == &r->fresh;
}

/* Announces the credit of a stream in the next acknowledgements, on whichever path. */
static void announce_credit(struct harp_receiver *r, struct harp_rx_stream *st) {
  if (st->announces_left == CREDIT_REPEATS) return;
  remove_from_list(r, st);
  add_to_list(r, st, CREDIT_REPEATS);
}

static void put_credit(struct harp_receiver *r, struct harp_packet *ack, struct harp_rx_stream *st) {
  HARP_ASSERT(st->announces_left);
  ack->ack.credits[ack->ack.credit_count++] = (struct harp_credit){st->id, st->posted};
  st->announced = st->posted;
  remove_from_list(r, st);
  add_to_list(r, st, (uint8_t)(st->announces_left - 1));
}

/* Puts the credit of streams into an acknowledgement, of at most so many: first what is new, which would
 * otherwise need an acknowledgement of its own, then what is repeated. */
static void put_credits(struct harp_receiver *r, struct harp_packet *ack, uint32_t most) {
  struct harp_rx_stream *last = r->repeated.last; /* those behind it come to the list just now */
  ack->ack.credit_count = 0;
  while (ack->ack.credit_count < most && r->fresh.first) put_credit(r, ack, r->fresh.first);
  for (struct harp_rx_stream *st = NULL; last && st != last && ack->ack.credit_count < most;)
    put_credit(r, ack, st = r->repeated.first);
}

/* ---- acknowledgements ---- */

/* Returns the bytes of a path's acknowledgement without credit. */
static uint32_t bare_ack_bytes(const struct harp_receiver *r, const struct harp_rx_path *path) {
  return HARP_ACK_HEADER_BYTES + path->received.count * HARP_ACK_RANGE_BYTES + r->mac_bytes;
}

/* Returns whether the acknowledgement of a path may be sent. While it waits, what comes adds more to the
 * allowance than to its length. */
static bool is_allowed(const struct harp_receiver *r, unsigned path) {
  const struct harp_rx_path *p = &r->paths[path];
  return !harp_receiver_is_unproved(r, path) || p->allowance_bytes >= bare_ack_bytes(r, p);
}

/* Takes an acknowledgement that is about to be sent off its path's allowance. Returns how many credits it may
 * have. */
static HARP_COLD uint32_t spend_allowance(const struct harp_receiver *r, struct harp_rx_path *path,
                                          uint32_t credits_max) {
  uint32_t bare = bare_ack_bytes(r, path);
  HARP_ASSERT(path->allowance_bytes >= bare);
  uint64_t most = (path->allowance_bytes - bare) / HARP_ACK_CREDIT_BYTES;
  uint32_t credits = (uint32_t)HARP_MIN(most, (uint64_t)credits_max);
  path->allowance_bytes -= bare + credits * HARP_ACK_CREDIT_BYTES;
  return credits;
}

static void ack_by(struct harp_receiver *r, unsigned path, harp_ns at) {
  if (at >= r->paths[path].ack_due_ns || !is_allowed(r, path)) return;
  r->paths[path].ack_due_ns = at;
  r->ack_due_ns = HARP_MIN(r->ack_due_ns, at);
  r->waiting |= 1ull << path;
}

static harp_ns first_due_ns(const struct harp_receiver *r, uint64_t except) {
  harp_ns at = HARP_NEVER;
  HARP_EACH_BIT (i, r->waiting & ~except) at = HARP_MIN(at, r->paths[i].ack_due_ns);
  return at;
}

/* The acknowledgement of a path is on its way. */
static void ack_sent(struct harp_receiver *r, unsigned path) {
  r->paths[path].ack_due_ns = HARP_NEVER;
  r->waiting &= ~(1ull << path);
  r->elsewhere &= ~(1ull << path);
  if (!r->waiting) r->is_requested = false;
  r->ack_due_ns = first_due_ns(r, 0);
}

static HARP_COLD void trace_gap(const struct harp_receiver *r, uint8_t path, uint64_t number, harp_ns now) {
  harp_trace(r->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_RX_GAP,
                                       .path = path,
                                       .number = number,
                                       .a = (uint32_t)(number - r->paths[path].next_number)});
}

/* Learns of a packet that the network marked instead of dropping it (RFC 3168). Only the newest so far
 * counts: a number that later ones have overtaken may be a duplicate whose range is forgotten, and the sum
 * must not exceed what the sender has sent. */
static HARP_COLD void packet_was_marked(struct harp_receiver *r, const struct harp_packet *p,
                                        uint64_t number) {
  struct harp_rx_path *path = &r->paths[p->path];
  if (number < path->next_number) return;
  r->counters->ce_packets++;
  path->ce_bytes += HARP_DATA_HEADER_BYTES + p->data.length;
}

/* The sender knows what became of all packets before the last one with this flag: they need not be reported
 * any more. A flag that later ones have overtaken says nothing new. */
static HARP_COLD void forget_settled(struct harp_rx_path *path, uint64_t number) {
  if (number <= path->settled_number) return;
  harp_ranges_forget_below(&path->received, path->settled_number);
  path->least_number = path->settled_number;
  path->settled_number = number;
}

/* Records a number that is not the next one. */
static HARP_COLD void record_gap(struct harp_receiver *r, uint8_t path, uint64_t number, harp_ns now) {
  struct harp_rx_path *p = &r->paths[path];
  if (number > p->next_number) {
    trace_gap(r, path, number, now);
    p->next_number = number + 1;
  }
  (void)harp_ranges_add(&p->received, number);
}

/* Records the number of a packet. Returns whether it was the next one, and new. */
static HARP_ALWAYS_INLINE bool record_number(struct harp_receiver *r, uint8_t path, uint64_t number,
                                             harp_ns now) {
  struct harp_rx_path *p = &r->paths[path];
  if (harp_unlikely(number != p->next_number)) {
    record_gap(r, path, number, now);
    return false;
  }
  p->next_number = number + 1;
  return harp_ranges_add(&p->received, number);
}

static HARP_ALWAYS_INLINE void packet_arrived(struct harp_receiver *r, const struct harp_packet *p,
                                              uint64_t number, harp_ns now) {
  struct harp_rx_path *path = &r->paths[p->path];
  if (harp_receiver_is_unproved(r, p->path))
    path->allowance_bytes += HARP_DATA_HEADER_BYTES + (uint64_t)p->data.length;
  if (harp_unlikely(p->ce)) packet_was_marked(r, p, number);
  bool is_next = record_number(r, p->path, number, now);
  path->echo_time = p->data.time;
  path->echo_arrival_ns = now;
  path->detour = p->detour;
  path->unacked_bytes += HARP_DATA_HEADER_BYTES + p->data.length;
  if (harp_unlikely(p->flags & HARP_FLAG_SETTLED)) forget_settled(path, number);
  bool is_due = !is_next || p->ce || path->unacked_bytes >= r->ack_every_bytes;
  if (harp_unlikely(p->flags & HARP_FLAG_ACK_SOON)) {
    ack_by(r, p->path, is_due ? now : now + ACK_SOON_NS);
    r->is_requested = r->waiting != 0;
  } else if (harp_unlikely(is_due)) {
    ack_by(r, p->path, now);
  } else {
    ack_by(r, p->path, now + (p->data.size <= HARP_EARLY_MAX_BYTES ? ACK_REST_NS : ACK_LATE_NS));
  }
}

void harp_receiver_on_proved(struct harp_receiver *r, unsigned path, harp_ns now) {
  HARP_ASSERT(path < r->path_count);
  r->unproved &= ~(1ull << path);
  if (r->paths[path].unacked_bytes) ack_by(r, path, now);
  if (r->fresh_count) ack_by(r, r->latest, now);
}

int harp_receiver_next_ack(const struct harp_receiver *r, uint64_t except, harp_ns now) {
  int longest = -1;
  harp_ns before_ns = now + 1;
  HARP_EACH_BIT (i, r->ack_due_ns <= now ? r->waiting & ~except : 0) {
    if (r->paths[i].ack_due_ns >= before_ns) continue;
    before_ns = r->paths[i].ack_due_ns;
    longest = (int)i;
  }
  return longest;
}

/* Makes the acknowledgement of a path, with the credit of at most so many streams. */
static void make_ack(struct harp_receiver *r, unsigned i, uint32_t credits_max, struct harp_packet *ack,
                     uint64_t *number, harp_ns now) {
  struct harp_rx_path *path = &r->paths[i];
  ack->type = HARP_PACKET_ACK;
  ack->flags = path->detour ? HARP_FLAG_DETOUR : 0;
  ack->path = (uint8_t)i;
  ack->ack.echo_time = path->echo_time;
  ack->ack.time = harp_ticks_from_ns(now);
  ack->ack.echo_delay = ack->ack.time - harp_ticks_from_ns(path->echo_arrival_ns);
  ack->ack.window_bytes = r->window_bytes;
  ack->ack.ce_bytes = path->ce_bytes;
  ack->ack.range_count = path->received.count;
  for (uint32_t k = 0; k < path->received.count; k++) {
    ack->ack.ranges[k].begin = (uint32_t)path->received.at[k].begin;
    ack->ack.ranges[k].end = (uint32_t)path->received.at[k].end;
  }
  if (harp_receiver_is_unproved(r, i)) credits_max = spend_allowance(r, path, credits_max);
  *number = path->ack_number++;
  ack_sent(r, i);
  path->received_bytes += path->unacked_bytes;
  path->unacked_bytes = 0;
  put_credits(r, ack, credits_max);
  if (r->fresh_count) ack_by(r, i, now); /* more than fits one acknowledgement */
  r->counters->tx_acks++;
  harp_trace(r->trace, now,
             (struct harp_trace_entry){
                 .event = HARP_EVENT_TX_ACK,
                 .path = (uint8_t)i,
                 .number = path->next_number - 1,
                 .count = (uint8_t)ack->ack.credit_count,
                 .a = (uint32_t)*number,
                 .b = (uint32_t)HARP_MIN(now - path->echo_arrival_ns, (harp_ns)UINT32_MAX),
             });
}

void harp_receiver_take_ack(struct harp_receiver *r, unsigned path, struct harp_packet *ack, uint64_t *number,
                            harp_ns now) {
  HARP_ASSERT(path < r->path_count && r->waiting >> path & 1);
  make_ack(r, path, HARP_ACK_CREDITS_MAX, ack, number, now);
}

uint32_t harp_receiver_ride_bytes(const struct harp_receiver *r, unsigned path, harp_ns now) {
  HARP_ASSERT(path < r->path_count);
  bool is_due = r->waiting >> path & 1 && r->paths[path].ack_due_ns <= now + RIDE_NS;
  if (!is_due && !(r->elsewhere >> path & 1)) return 0;
  /* More new credit than fits would have to follow alone. */
  if (r->fresh_count > HARP_ACK_CREDITS_MAX) return 0;
  return bare_ack_bytes(r, &r->paths[path]) + r->fresh_count * HARP_ACK_CREDIT_BYTES;
}

bool harp_receiver_ride_ack(struct harp_receiver *r, unsigned path, uint32_t room_bytes,
                            struct harp_packet *ack, uint64_t *number, harp_ns now) {
  uint32_t bytes = harp_receiver_ride_bytes(r, path, now);
  if (!bytes || bytes > room_bytes) return false;
  uint32_t credits = r->fresh_count + (room_bytes - bytes) / HARP_ACK_CREDIT_BYTES;
  make_ack(r, path, HARP_MIN(credits, HARP_ACK_CREDITS_MAX + 0u), ack, number, now);
  return true;
}

void harp_receiver_repeat_ack(struct harp_receiver *r, unsigned path, harp_ns now) {
  HARP_ASSERT(r->elsewhere >> path & 1);
  ack_by(r, path, now);
}

void harp_receiver_ack_requested(struct harp_receiver *r, harp_ns now) {
  HARP_EACH_BIT (i, r->is_requested ? r->waiting : 0) ack_by(r, (unsigned)i, now);
}

harp_ns harp_receiver_deadline_ns(const struct harp_receiver *r, uint64_t except) {
  return harp_likely(!except) ? r->ack_due_ns : first_due_ns(r, except);
}

/* ---- streams ---- */

void harp_receiver_open(struct harp_receiver *r, struct harp_rx_stream *st,
                        const struct harp_rx_stream_config *config) {
  HARP_ASSERT(config->id < r->stream_max && !r->streams[config->id]);
  harp_rx_stream_init(st, config, r->trace, r->counters);
  r->streams[config->id] = st;
  r->closed[config->id / 64] &= ~(1ull << config->id % 64);
  add_to_list(r, st, 0);
}

void harp_receiver_close(struct harp_receiver *r, struct harp_rx_stream *st) {
  HARP_ASSERT(r->streams[st->id] == st);
  r->streams[st->id] = NULL;
  /* A message that was too large must not count as delivered. */
  if (!st->too_large) r->closed[st->id / 64] |= 1ull << st->id % 64;
  remove_from_list(r, st);
}

/* Returns how long the credit of a receive may wait for data to ride on. `is_small`: what fits into the
 * receive may come without its credit, while early places are left. NCCL posts receives as large as its
 * buffers, for messages of any size: where the last one was small, the next is taken for small as well. If it
 * is not, the sender requests its credit (send_credit.c), which is then given at once. While no more receives
 * are posted than half of the early places the credit waits as long as it can: between hosts that send in one
 * direction only, as in a ring of three or more, there is no data to ride on, and each credit would be a
 * packet of its own. */
static harp_ns credit_delay_ns(const struct harp_rx_stream *st, bool is_small) {
  uint32_t left = st->announced - st->done, ahead = st->posted - st->done;
  bool is_likely_small = is_small || harp_rx_stream_was_small(st);
  bool is_covered = is_likely_small && ahead <= HARP_EARLY_MESSAGES / 2;
  uint32_t spare = is_covered ? HARP_EARLY_MESSAGES - 1 : is_likely_small ? HARP_EARLY_MESSAGES / 2 : 0;
  if (st->is_credit_wanted || !harp_seq_after(st->announced + spare, st->done + 1)) return ACK_SOON_NS;
  if (is_covered) return ACK_REST_NS;
  if (2 * left > ahead) return ACK_LATE_NS;
  return is_small || !is_likely_small ? ACK_CREDIT_NS : ACK_NEXT_CREDIT_NS;
}

int harp_receiver_post(struct harp_receiver *r, struct harp_rx_stream *st, void *data, uint32_t capacity,
                       bool is_watched, void *cookie, struct harp_placement *place, const uint8_t **early,
                       harp_ns now) {
  int err = harp_rx_stream_post(st, data, capacity, is_watched, cookie, place, early, now);
  if (err) return err;
  bool is_small = capacity <= HARP_EARLY_MAX_BYTES;
  announce_credit(r, st);
  ack_by(r, r->latest, now + credit_delay_ns(st, is_small));
  st->is_credit_wanted = false;
  return 0;
}

/* ---- packets ---- */

static bool is_closed(const struct harp_receiver *r, const struct harp_packet *p) {
  unsigned id = p->data.stream;
  return id < r->stream_max && r->closed[id / 64] >> id % 64 & 1;
}

static enum harp_drop on_data(struct harp_receiver *r, const struct harp_packet *p,
                              struct harp_placement *place) {
  struct harp_rx_stream *st = harp_receiver_stream(r, p->data.stream);
  r->latest = p->path;
  if (harp_unlikely(!st)) return HARP_DROP_STREAM;
  return harp_likely(place) ? harp_rx_stream_on_data(st, p, place) : harp_rx_stream_on_placed(st, p);
}

static void on_probe(struct harp_receiver *r, const struct harp_packet *p) {
  bool is_request = p->flags & HARP_FLAG_CREDIT;
  if (is_request || !r->paths[r->latest].received.count) r->latest = p->path;
  if (!is_request) return;
  while (r->announced.first) announce_credit(r, r->announced.first);
  while (r->repeated.first) announce_credit(r, r->repeated.first);
  for (struct harp_rx_stream *st = r->fresh.first; st; st = st->next) st->is_credit_wanted = true;
}

/* Records what was dropped; in tests each packet. Out of line, which keeps its work off the others. */
static HARP_COLD void trace_packet(const struct harp_receiver *r, const struct harp_packet *p,
                                   uint64_t number, enum harp_drop drop, harp_ns now) {
  struct harp_trace_entry e = {.path = p->path, .stream = p->data.stream, .number = number};
  if (drop == HARP_DROP_DUPLICATE && !r->packet_trace)
    return; /* tail duplicates bring these, so they are not recorded */
  if (drop == HARP_DROP_DUPLICATE) {
    e.event = HARP_EVENT_RX_DUPLICATE;
    e.a = p->data.line;
  } else if (drop) {
    e.event = HARP_EVENT_RX_DROP;
    e.a = drop;
  } else if (p->type == HARP_PACKET_DATA) {
    e.event = HARP_EVENT_RX_DATA;
    e.a = p->data.line;
    e.b = harp_lines_of(p->data.length);
  } else {
    return;
  }
  harp_trace(r->trace, now, e);
}

/* Handles a packet that is dropped. One that could not be taken is not acknowledged, so it comes again;
 * one that had arrived is, and one that nobody waits for. */
static HARP_COLD void packet_dropped(struct harp_receiver *r, const struct harp_packet *p, uint64_t number,
                                     struct harp_placement *place, enum harp_drop drop, harp_ns now) {
  if (place) place->count = 0;
  if (drop == HARP_DROP_DUPLICATE || (drop == HARP_DROP_STREAM && is_closed(r, p)))
    packet_arrived(r, p, number, now);
  trace_packet(r, p, number, drop, now);
}

static HARP_COLD bool is_replay(const struct harp_rx_path *path, uint64_t number) {
  return number < path->least_number || harp_ranges_has(&path->received, number);
}

enum harp_drop harp_receiver_on_packet(struct harp_receiver *r, const struct harp_packet *p, uint64_t number,
                                       struct harp_placement *place, harp_ns now) {
  HARP_ASSERT(p->path < r->path_count);
  const struct harp_rx_path *path = &r->paths[p->path];
  if (harp_unlikely(number < path->next_number) && is_replay(path, number)) {
    packet_dropped(r, p, number, place, HARP_DROP_REPLAY, now);
    return HARP_DROP_REPLAY;
  }
  if (harp_likely(p->type == HARP_PACKET_DATA)) {
    enum harp_drop drop = on_data(r, p, place);
    if (harp_unlikely(drop)) {
      packet_dropped(r, p, number, place, drop, now);
      return drop;
    }
  } else {
    if (place) place->count = 0;
    on_probe(r, p);
  }
  packet_arrived(r, p, number, now);
  if (harp_unlikely(r->packet_trace)) trace_packet(r, p, number, HARP_DROP_NONE, now);
  return HARP_DROP_NONE;
}

static uint32_t check_list(const struct harp_receiver *r, const struct harp_rx_list *list, unsigned least,
                           unsigned most) {
  const struct harp_rx_stream *before = NULL;
  uint32_t count = 0;
  for (const struct harp_rx_stream *st = list->first; st; before = st, st = st->next, count++) {
    HARP_ASSERT(r->streams[st->id] == st && st->previous == before);
    HARP_ASSERT(st->announces_left >= least && st->announces_left <= most);
  }
  HARP_ASSERT(list->last == before);
  return count;
}

void harp_receiver_check(const struct harp_receiver *r) {
  uint32_t open = 0;
  for (unsigned i = 0; i < r->stream_max; i++) {
    if (!r->streams[i]) continue;
    harp_rx_stream_check(r->streams[i]);
    open++;
  }
  uint32_t fresh = check_list(r, &r->fresh, CREDIT_REPEATS, CREDIT_REPEATS);
  uint32_t repeated = check_list(r, &r->repeated, 1, CREDIT_REPEATS - 1);
  HARP_ASSERT(fresh == r->fresh_count && open == fresh + repeated + check_list(r, &r->announced, 0, 0));
  HARP_ASSERT(r->waiting || !r->is_requested);
  HARP_EACH_BIT (i, r->waiting) HARP_ASSERT(is_allowed(r, (unsigned)i));
}
