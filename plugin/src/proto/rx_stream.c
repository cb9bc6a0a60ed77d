/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rx_stream.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/seq.h"

enum { MESSAGE_SLOTS = HARP_RECV_SLOTS };

static struct harp_recv_message *message_at(struct harp_rx_stream *st, uint32_t m) {
  return &st->messages[m % MESSAGE_SLOTS];
}

void harp_rx_stream_init(struct harp_rx_stream *st, const struct harp_rx_stream_config *config,
                         const struct harp_trace *trace, struct harp_counters *counters) {
  memset(st, 0, sizeof *st);
  st->trace = trace;
  st->counters = counters;
  st->id = config->id;
  st->done = st->posted = st->announced = config->first_message;
  st->last_size = UINT32_MAX;
  st->delivered = config->first_line;
  st->staging = config->staging;
}

/* ---- receives ---- */

/* A message for which a larger size than its receive holds was announced can never be delivered. */
static void refuse_size(struct harp_rx_stream *st, uint32_t m, uint32_t size, uint32_t capacity) {
  if (st->too_large) return;
  st->too_large = true;
  st->too_large_message = m;
  st->too_large_size = size;
  st->too_large_capacity = capacity;
}

/* Lists every run of an early message's lines that has arrived, to be copied from its staging slot. The map
 * holds one window from `delivered` on: its bits for lines beyond are those of lines one window earlier. */
static void place_early(const struct harp_rx_stream *st, const struct harp_recv_message *msg,
                        struct harp_placement *place) {
  uint32_t lines = HARP_MIN(msg->lines, st->delivered + HARP_WINDOW_LINES - msg->line);
  for (uint32_t at = 0; at < lines;) {
    uint32_t line = msg->line + at, left = lines - at;
    /* Before `delivered` everything has arrived, and the map's bits are free again. */
    uint32_t have = harp_seq_before(line, st->delivered) ? HARP_MIN(st->delivered - line, left)
                                                         : harp_linemap_run(&st->arrived, line, left, true);
    uint32_t from = at * HARP_LINE_BYTES, to = HARP_MIN((at + have) * HARP_LINE_BYTES, msg->size);
    if (to > from) {
      HARP_ASSERT(place->count < HARP_RUNS_MAX);
      place->runs[place->count].from = from;
      place->runs[place->count++].bytes = to - from;
    }
    at += have;
    if (!have) at += harp_linemap_run(&st->arrived, line, left, false);
  }
}

int harp_rx_stream_post(struct harp_rx_stream *st, void *data, uint32_t capacity, bool is_watched,
                        void *cookie, struct harp_placement *place, const uint8_t **early, harp_ns now) {
  place->count = 0;
  place->is_placed = false; /* what came early is the caller's to copy */
  *early = NULL;
  if (st->posted - st->done == HARP_MESSAGES_MAX) return -EAGAIN;
  struct harp_recv_message *msg = message_at(st, st->posted);
  if (harp_trace_is_long(st->trace, capacity))
    harp_trace(st->trace, now,
               (struct harp_trace_entry){
                   .event = HARP_EVENT_RECV_POST, .stream = st->id, .number = st->posted, .a = capacity});
  if (msg->begun && msg->size > capacity) {
    refuse_size(st, st->posted, msg->size, capacity); /* packets of it that still come stay in staging */
  } else {
    if (msg->begun) {
      *early = msg->data;
      place_early(st, msg, place);
      place->dst = data;
      st->counters->early_messages++;
    }
    msg->data = data;
  }
  msg->capacity = capacity;
  msg->is_watched = is_watched;
  msg->cookie = cookie;
  st->posted++;
  return 0;
}

bool harp_rx_stream_poll_done(struct harp_rx_stream *st, void **cookie, uint32_t *bytes) {
  if (st->done == st->posted || (st->too_large && st->done == st->too_large_message)) return false;
  struct harp_recv_message *msg = message_at(st, st->done);
  if (!msg->begun || msg->missing) return false;
  *cookie = msg->cookie;
  *bytes = msg->size;
  *msg = (struct harp_recv_message){0};
  st->done++;
  st->counters->messages_received++;
  return true;
}

bool harp_rx_stream_staging_is_free(const struct harp_rx_stream *st) {
  for (uint32_t i = 0; i < HARP_EARLY_MESSAGES; i++)
    if (st->messages[(st->posted + i) % MESSAGE_SLOTS].begun) return false;
  return true;
}

/* ---- packets ---- */

/* Begins the message of its first packet. */
static HARP_NOINLINE enum harp_drop begin_message(struct harp_rx_stream *st, const struct harp_packet *p,
                                                  struct harp_recv_message *msg, uint32_t start) {
  uint32_t m = p->data.message, lines = harp_lines_of(p->data.size);
  if (harp_seq_before(start, st->delivered)) return HARP_DROP_CONTRADICTION;
  if (harp_seq_before(m, st->posted)) {
    if (p->data.size > msg->capacity) {
      refuse_size(st, m, p->data.size, msg->capacity);
      return HARP_DROP_CONTRADICTION;
    }
  } else {
    if (m - st->posted >= HARP_EARLY_MESSAGES || p->data.size > HARP_EARLY_MAX_BYTES) return HARP_DROP_CREDIT;
    msg->data = st->staging + (size_t)(m % HARP_EARLY_MESSAGES) * HARP_EARLY_MAX_BYTES;
    msg->capacity = HARP_EARLY_MAX_BYTES;
  }
  msg->begun = true;
  st->last_size = msg->size = p->data.size;
  msg->line = start;
  msg->lines = msg->missing = lines;
  return HARP_DROP_NONE;
}

/* Finds the packet's message and begins it if this is its first packet. */
static HARP_ALWAYS_INLINE enum harp_drop find_message(struct harp_rx_stream *st, const struct harp_packet *p,
                                                      struct harp_recv_message **found) {
  uint32_t m = p->data.message, start = p->data.line - p->data.offset / HARP_LINE_BYTES;
  if (harp_unlikely(m - st->done >= MESSAGE_SLOTS))
    return harp_seq_before(m, st->done) ? HARP_DROP_DUPLICATE : HARP_DROP_WINDOW;
  struct harp_recv_message *msg = message_at(st, m);
  *found = msg;
  if (harp_unlikely(!msg->begun)) return begin_message(st, p, msg, start);
  /* One that began early may turn out too large for the receive posted since: it has no place any more. */
  bool fits = msg->size == p->data.size && msg->line == start && msg->size <= msg->capacity;
  return fits ? HARP_DROP_NONE : HARP_DROP_CONTRADICTION;
}

/* The packet that is next in line while none is ahead of it, which is nearly every one: no map is needed.
 * `place` is NULL where its payload is in place. */
static uint32_t take_next(struct harp_rx_stream *st, const struct harp_packet *p, uint32_t lines,
                          struct harp_placement *place) {
  if (harp_likely(place)) {
    place->runs[0].from = 0;
    place->runs[0].bytes = p->data.length;
    place->count = p->data.length != 0;
  }
  st->delivered += lines;
  return lines;
}

/* Marks the packet's lines as arrived and lists those that are new. Returns how many are. */
static uint32_t take_lines(struct harp_rx_stream *st, const struct harp_packet *p, uint32_t lines,
                           struct harp_placement *place) {
  uint32_t taken = 0, at = harp_seq_before(p->data.line, st->delivered) ? st->delivered - p->data.line : 0;
  if (place) place->count = 0;
  while (at < lines) {
    uint32_t line = p->data.line + at;
    uint32_t fresh = harp_linemap_run(&st->arrived, line, lines - at, false);
    if (fresh) {
      uint32_t from = at * HARP_LINE_BYTES;
      uint32_t bytes = HARP_MIN(fresh * HARP_LINE_BYTES, p->data.length - from);
      harp_linemap_set(&st->arrived, line, fresh);
      if (bytes && place) {
        place->runs[place->count].from = from;
        place->runs[place->count++].bytes = bytes;
      }
      taken += fresh;
      at += fresh;
    }
    if (at < lines) at += harp_linemap_run(&st->arrived, p->data.line + at, lines - at, true);
  }
  st->ahead += taken;
  return taken;
}

/* Moves `delivered` over everything that has arrived, and makes those bits free for the next turn of the
 * map. */
static void deliver_next_lines(struct harp_rx_stream *st) {
  uint32_t run = harp_linemap_run(&st->arrived, st->delivered, HARP_WINDOW_LINES, true);
  harp_linemap_clear(&st->arrived, st->delivered, run);
  st->delivered += run;
  st->ahead -= run;
}

/* Returns whether the packet may be taken, and the message that it is of, which begins with it if it is the
 * first. */
static HARP_ALWAYS_INLINE enum harp_drop check_packet(struct harp_rx_stream *st, const struct harp_packet *p,
                                                      struct harp_recv_message **msg) {
  uint32_t end = p->data.line + harp_lines_of(p->data.length);
  if (p->data.size > HARP_MESSAGE_MAX_BYTES) return HARP_DROP_FIELD;
  if (!harp_seq_after(end, st->delivered)) return HARP_DROP_DUPLICATE;
  if (end - st->delivered > HARP_WINDOW_LINES) return HARP_DROP_WINDOW;
  return find_message(st, p, msg);
}

/* Takes the lines of a packet that was judged well; lists those that are new. */
static HARP_ALWAYS_INLINE enum harp_drop take_packet(struct harp_rx_stream *st, const struct harp_packet *p,
                                                     struct harp_recv_message *msg,
                                                     struct harp_placement *place) {
  uint32_t line = p->data.line, lines = harp_lines_of(p->data.length);
  bool next = line == st->delivered && !st->ahead;
  uint32_t fresh = harp_likely(next) ? take_next(st, p, lines, place) : take_lines(st, p, lines, place);
  if (!fresh) return HARP_DROP_DUPLICATE;
  HARP_ASSERT(fresh <= msg->missing);
  msg->missing -= fresh;
  if (!next && !harp_seq_after(line, st->delivered)) deliver_next_lines(st);
  return HARP_DROP_NONE;
}

enum harp_drop harp_rx_stream_on_data(struct harp_rx_stream *st, const struct harp_packet *p,
                                      struct harp_placement *place) {
  struct harp_recv_message *msg;
  enum harp_drop drop = check_packet(st, p, &msg);
  if (drop) return drop;
  place->dst = msg->data + p->data.offset;
  return take_packet(st, p, msg, place);
}

/* ---- packets that are larger than a datagram ---- */

struct harp_rx_target harp_rx_stream_target(struct harp_rx_stream *st, const struct harp_packet *p,
                                            uint32_t from) {
  struct harp_recv_message *msg;
  uint32_t line = p->data.line + from / HARP_LINE_BYTES, left = p->data.length - from;
  struct harp_rx_target t = {.bytes = left};
  enum harp_drop drop = check_packet(st, p, &msg);
  t.is_refused = drop && drop != HARP_DROP_DUPLICATE;
  if (drop) return t;
  t.is_watched = msg->is_watched;
  uint32_t lines = harp_lines_of(p->data.length) - from / HARP_LINE_BYTES;
  if (harp_seq_before(line, st->delivered)) {
    lines = HARP_MIN(lines, st->delivered - line);
  } else {
    bool arrived = st->ahead && harp_linemap_test(&st->arrived, line);
    if (st->ahead) lines = harp_linemap_run(&st->arrived, line, lines, arrived);
    if (!arrived) t.dst = msg->data + p->data.offset + from;
  }
  t.bytes = HARP_MIN(lines * HARP_LINE_BYTES - from % HARP_LINE_BYTES, left);
  return t;
}

uint8_t *harp_rx_stream_target_unverified(const struct harp_rx_stream *st, const struct harp_packet *p) {
  uint32_t line = p->data.line, lines = harp_lines_of(p->data.length);
  const struct harp_recv_message *msg = &st->messages[p->data.message % MESSAGE_SLOTS];
  if (p->data.message - st->done >= MESSAGE_SLOTS || !msg->begun || msg->is_watched) return NULL;
  if (msg->size != p->data.size || msg->size > msg->capacity) return NULL;
  if (line - p->data.offset / HARP_LINE_BYTES != msg->line || harp_seq_before(line, st->delivered))
    return NULL;
  if (line + lines - st->delivered > HARP_WINDOW_LINES) return NULL;
  if (st->ahead && harp_linemap_run(&st->arrived, line, lines, false) != lines) return NULL;
  return msg->data + p->data.offset;
}

enum harp_drop harp_rx_stream_on_placed(struct harp_rx_stream *st, const struct harp_packet *p) {
  struct harp_recv_message *msg;
  enum harp_drop drop = check_packet(st, p, &msg);
  return drop ? drop : take_packet(st, p, msg, NULL);
}

void harp_rx_stream_check(const struct harp_rx_stream *st) {
  HARP_ASSERT(st->posted - st->done <= HARP_MESSAGES_MAX);
  HARP_ASSERT(!harp_linemap_test(&st->arrived, st->delivered));
  HARP_ASSERT(st->ahead < HARP_WINDOW_LINES);
  HARP_ASSERT(st->ahead || !harp_linemap_test(&st->arrived, st->delivered + 1));
  for (uint32_t m = st->done; m != st->done + MESSAGE_SLOTS; m++) {
    const struct harp_recv_message *msg = &st->messages[m % MESSAGE_SLOTS];
    HARP_ASSERT(msg->missing <= msg->lines);
    HARP_ASSERT(!msg->begun || msg->missing || !harp_seq_before(m, st->done));
  }
}
