#include "proto/recv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/seq.h"

/* When an acknowledgement leaves. At once: something is out of order, or ACK_EVERY_BYTES arrived. Soon: the
 * sender waits for it; a few microseconds let the receiving thread hand the message to its caller first. Else
 * it may ride with a later one. */
enum {
  ACK_EVERY_BYTES = 96 * 1024,
  ACK_REPEATS = 4, /* a range that did not change is told so often, in case acknowledgements get lost */
};
#define ACK_SOON_NS HARP_US(1)
#define ACK_LATE_NS HARP_US(25)
/* With several paths each gets less in that time; one whose window is used up says so by ACK_SOON. */
#define ACK_LATE_MANY_NS HARP_US(200)
#define ACK_CREDIT_NS    HARP_US(50)

enum { MESSAGE_SLOTS = HARP_RECV_SLOTS };

static struct harp_recv_message *message_at(struct harp_receiver *r, uint32_t m) {
  return &r->messages[m % MESSAGE_SLOTS];
}

void harp_receiver_init(struct harp_receiver *r, const struct harp_receiver_config *config,
                        struct harp_trace *trace, struct harp_counters *counters) {
  HARP_ASSERT(config->path_count >= 1 && config->path_count <= HARP_PATHS_MAX);
  memset(r, 0, sizeof *r);
  r->trace = trace;
  r->counters = counters;
  r->done = r->posted = r->announced = config->first_message;
  r->delivered = config->first_line;
  r->staging = config->staging;
  r->path_count = config->path_count;
  r->ack_due_ns = HARP_NEVER;
  r->ack_late_ns = config->path_count == 1 ? ACK_LATE_NS : ACK_LATE_MANY_NS;
  for (unsigned i = 0; i < r->path_count; i++) {
    r->paths[i].next_number = r->paths[i].ack_number = config->first_number;
    r->paths[i].ack_due_ns = HARP_NEVER;
  }
}

/* ---- acknowledgements ---- */

static void ack_by(struct harp_receiver *r, unsigned path, harp_ns at) {
  if (at >= r->paths[path].ack_due_ns) return;
  r->paths[path].ack_due_ns = at;
  r->ack_due_ns = HARP_MIN(r->ack_due_ns, at);
  r->waiting |= 1ull << path;
}

/* The acknowledgement of a path is on its way. */
static void ack_sent(struct harp_receiver *r, unsigned path) {
  r->paths[path].ack_due_ns = r->ack_due_ns = HARP_NEVER;
  r->waiting &= ~(1ull << path);
  for (uint64_t bits = r->waiting; bits; bits &= bits - 1)
    r->ack_due_ns = HARP_MIN(r->ack_due_ns, r->paths[__builtin_ctzll(bits)].ack_due_ns);
}

static void note_arrival(struct harp_receiver *r, const struct harp_packet *p, uint64_t number, harp_ns now) {
  struct harp_rx_path *path = &r->paths[p->path];
  bool in_order = number == path->next_number;
  bool fresh = harp_ranges_add(&path->received, number);
  path->next_number = HARP_MAX(path->next_number, number + 1);
  path->echo_time = p->data.time;
  path->echo_arrival_ns = now;
  path->detour = p->detour;
  path->unacked_bytes += HARP_DATA_HEADER_BYTES + p->data.length;
  if (!fresh || !in_order || path->unacked_bytes >= ACK_EVERY_BYTES)
    ack_by(r, p->path, now);
  else if (p->flags & HARP_FLAG_ACK_SOON)
    ack_by(r, p->path, now + ACK_SOON_NS);
  else
    ack_by(r, p->path, now + r->ack_late_ns);
}

int harp_receiver_next_ack(const struct harp_receiver *r, harp_ns now) {
  for (uint64_t bits = r->ack_due_ns <= now ? r->waiting : 0; bits; bits &= bits - 1) {
    int i = __builtin_ctzll(bits);
    if (r->paths[i].ack_due_ns <= now) return i;
  }
  return -1;
}

bool harp_receiver_poll_ack(struct harp_receiver *r, struct harp_packet *ack, uint64_t *number, harp_ns now) {
  int i = harp_receiver_next_ack(r, now);
  if (i < 0) return false;
  struct harp_rx_path *path = &r->paths[i];
  ack->type = HARP_PACKET_ACK;
  ack->flags = path->detour ? HARP_FLAG_DETOUR : 0;
  ack->path = (uint8_t)i;
  ack->ack.echo_time = path->echo_time;
  ack->ack.echo_delay = harp_ticks_from_ns(now) - harp_ticks_from_ns(path->echo_arrival_ns);
  ack->ack.delivered = r->delivered;
  ack->ack.posted = r->posted;
  ack->ack.range_count = path->received.count;
  for (uint32_t k = 0; k < path->received.count; k++) {
    ack->ack.ranges[k].begin = (uint32_t)path->received.at[k].begin;
    ack->ack.ranges[k].end = (uint32_t)path->received.at[k].end;
  }
  harp_ranges_told(&path->received, ACK_REPEATS);
  *number = path->ack_number++;
  ack_sent(r, (unsigned)i);
  path->unacked_bytes = 0;
  r->announced = r->posted;
  r->counters->tx_acks++;
  harp_trace(r->trace, now, HARP_EVENT_TX_ACK, (unsigned)i, path->next_number - 1, r->delivered, r->posted);
  return true;
}

void harp_receiver_hurry(struct harp_receiver *r, harp_ns now) {
  for (uint64_t bits = r->waiting; bits; bits &= bits - 1) ack_by(r, (unsigned)__builtin_ctzll(bits), now);
}

harp_ns harp_receiver_deadline_ns(const struct harp_receiver *r) {
  return r->ack_due_ns;
}

/* ---- receives ---- */

/* A message for which a larger size than its receive holds was announced can never be delivered. */
static void refuse_size(struct harp_receiver *r, uint32_t m, uint32_t size, uint32_t capacity) {
  if (r->too_large) return;
  r->too_large = true;
  r->too_large_message = m;
  r->too_large_size = size;
  r->too_large_capacity = capacity;
}

/* Lists every run of an early message's lines that has arrived, to be copied from its staging slot. */
static void place_early(const struct harp_receiver *r, const struct harp_recv_message *msg,
                        struct harp_placement *place) {
  for (uint32_t at = 0; at < msg->lines;) {
    uint32_t line = msg->line + at, left = msg->lines - at;
    /* Before `delivered` everything has arrived, and the map's bits are free again. */
    uint32_t have = harp_seq_before(line, r->delivered) ? HARP_MIN(r->delivered - line, left)
                                                        : harp_linemap_run(&r->arrived, line, left, true);
    uint32_t from = at * HARP_LINE_BYTES, to = HARP_MIN((at + have) * HARP_LINE_BYTES, msg->size);
    if (to > from) {
      HARP_ASSERT(place->count < HARP_RUNS_MAX);
      place->runs[place->count].from = from;
      place->runs[place->count++].bytes = to - from;
    }
    at += have;
    if (!have) at += harp_linemap_run(&r->arrived, line, left, false);
  }
}

int harp_receiver_post(struct harp_receiver *r, void *data, uint32_t capacity, void *cookie,
                       struct harp_placement *place, const uint8_t **early, harp_ns now) {
  place->count = 0;
  *early = NULL;
  if (r->posted - r->done == HARP_MESSAGES_MAX) return -EAGAIN;
  struct harp_recv_message *msg = message_at(r, r->posted);
  harp_trace(r->trace, now, HARP_EVENT_RECV_POST, r->posted, capacity, 0, 0);
  if (msg->begun && msg->size > capacity) {
    refuse_size(r, r->posted, msg->size, capacity); /* and what still comes of it stays in staging */
  } else {
    if (msg->begun) {
      *early = msg->data;
      place_early(r, msg, place);
      place->dst = data;
      r->counters->early_messages++;
    }
    msg->data = data;
  }
  msg->capacity = capacity;
  msg->cookie = cookie;
  r->posted++;
  /* Tell the sender at once when what it was told last is used up, else with the next acknowledgement. */
  bool starved = !harp_seq_after(r->announced, r->done + 1);
  ack_by(r, r->latest, now + (starved ? ACK_SOON_NS : ACK_CREDIT_NS));
  return 0;
}

bool harp_receiver_poll_done(struct harp_receiver *r, void **cookie, uint32_t *bytes) {
  if (r->done == r->posted || (r->too_large && r->done == r->too_large_message)) return false;
  struct harp_recv_message *msg = message_at(r, r->done);
  if (!msg->begun || msg->missing) return false;
  *cookie = msg->cookie;
  *bytes = msg->size;
  *msg = (struct harp_recv_message){0};
  r->done++;
  r->counters->messages_received++;
  return true;
}

/* ---- packets ---- */

/* Finds the packet's message and begins it if this is its first packet. */
static enum harp_drop find_message(struct harp_receiver *r, const struct harp_packet *p,
                                   struct harp_recv_message **found) {
  uint32_t m = p->data.message, start = p->data.line - p->data.offset / HARP_LINE_BYTES;
  if (m - r->done >= MESSAGE_SLOTS)
    return harp_seq_before(m, r->done) ? HARP_DROP_DUPLICATE : HARP_DROP_WINDOW;
  struct harp_recv_message *msg = message_at(r, m);
  *found = msg;
  if (msg->begun) {
    /* One that began early may turn out too large for the receive posted since: it has no place any more. */
    bool fits = msg->size == p->data.size && msg->line == start && msg->size <= msg->capacity;
    return fits ? HARP_DROP_NONE : HARP_DROP_CONTRADICTION;
  }
  uint32_t lines = harp_lines_of(p->data.size);
  if (harp_seq_before(start, r->delivered)) return HARP_DROP_CONTRADICTION;
  if (harp_seq_before(m, r->posted)) {
    if (p->data.size > msg->capacity) {
      refuse_size(r, m, p->data.size, msg->capacity);
      return HARP_DROP_CONTRADICTION;
    }
  } else {
    if (m - r->posted >= HARP_EARLY_MESSAGES || p->data.size > HARP_EARLY_MAX_BYTES) return HARP_DROP_CREDIT;
    msg->data = r->staging + (size_t)(m % HARP_EARLY_MESSAGES) * HARP_EARLY_MAX_BYTES;
    msg->capacity = HARP_EARLY_MAX_BYTES;
  }
  msg->begun = true;
  msg->size = p->data.size;
  msg->line = start;
  msg->lines = msg->missing = lines;
  return HARP_DROP_NONE;
}

/* The packet that is next in line while none is ahead of it, which is nearly every one: no map is needed. */
static uint32_t take_next(struct harp_receiver *r, const struct harp_packet *p, uint32_t lines,
                          struct harp_placement *place) {
  place->runs[0].from = 0;
  place->runs[0].bytes = p->data.length;
  place->count = p->data.length != 0;
  r->delivered += lines;
  return lines;
}

/* Marks the packet's lines as arrived and lists those that are new. Returns how many are. */
static uint32_t take_lines(struct harp_receiver *r, const struct harp_packet *p, uint32_t lines,
                           struct harp_placement *place) {
  uint32_t taken = 0, at = harp_seq_before(p->data.line, r->delivered) ? r->delivered - p->data.line : 0;
  while (at < lines) {
    uint32_t line = p->data.line + at;
    uint32_t fresh = harp_linemap_run(&r->arrived, line, lines - at, false);
    if (fresh) {
      uint32_t from = at * HARP_LINE_BYTES;
      uint32_t bytes = HARP_MIN(fresh * HARP_LINE_BYTES, p->data.length - from);
      harp_linemap_set(&r->arrived, line, fresh);
      if (bytes) {
        place->runs[place->count].from = from;
        place->runs[place->count++].bytes = bytes;
      }
      taken += fresh;
      at += fresh;
    }
    if (at < lines) at += harp_linemap_run(&r->arrived, p->data.line + at, lines - at, true);
  }
  r->ahead += taken;
  return taken;
}

/* Moves `delivered` over everything that has arrived, and makes those bits free for the next turn of the map.
 */
static void advance(struct harp_receiver *r) {
  uint32_t run = harp_linemap_run(&r->arrived, r->delivered, HARP_WINDOW_LINES, true);
  harp_linemap_clear(&r->arrived, r->delivered, run);
  r->delivered += run;
  r->ahead -= run;
}

static enum harp_drop on_data(struct harp_receiver *r, const struct harp_packet *p,
                              struct harp_placement *place) {
  uint32_t line = p->data.line, lines = harp_lines_of(p->data.length);
  uint32_t end = line + lines;
  if (p->data.size > HARP_MESSAGE_MAX_BYTES) return HARP_DROP_FIELD;
  if (!harp_seq_after(end, r->delivered)) return HARP_DROP_DUPLICATE;
  if (end - r->delivered > HARP_WINDOW_LINES) return HARP_DROP_WINDOW;
  struct harp_recv_message *msg;
  enum harp_drop drop = find_message(r, p, &msg);
  if (drop) return drop;
  bool next = line == r->delivered && !r->ahead;
  uint32_t fresh = harp_likely(next) ? take_next(r, p, lines, place) : take_lines(r, p, lines, place);
  if (!fresh) return HARP_DROP_DUPLICATE;
  HARP_ASSERT(fresh <= msg->missing);
  place->dst = msg->data + p->data.offset;
  msg->missing -= fresh;
  if (!next && !harp_seq_after(line, r->delivered)) advance(r);
  return HARP_DROP_NONE;
}

uint64_t harp_receiver_number(const struct harp_receiver *r, const struct harp_packet *p) {
  return harp_seq_widen(p->number, r->paths[p->path].next_number);
}

enum harp_drop harp_receiver_on_packet(struct harp_receiver *r, const struct harp_packet *p, uint64_t number,
                                       struct harp_placement *place, harp_ns now) {
  HARP_ASSERT(p->path < r->path_count);
  enum harp_drop drop = HARP_DROP_NONE;
  place->count = 0;
  if (p->type == HARP_PACKET_DATA) {
    r->latest = p->path;
    drop = on_data(r, p, place);
  }
  /* What could not be taken is not acknowledged, so it comes again; what had arrived is. */
  if (drop == HARP_DROP_NONE || drop == HARP_DROP_DUPLICATE) note_arrival(r, p, number, now);
  if (drop == HARP_DROP_NONE && p->type == HARP_PACKET_DATA)
    harp_trace(r->trace, now, HARP_EVENT_RX_DATA, p->path, number, p->data.line,
               harp_lines_of(p->data.length));
  else if (drop == HARP_DROP_DUPLICATE)
    harp_trace(r->trace, now, HARP_EVENT_RX_DUPLICATE, p->path, number, p->data.line, 0);
  else if (drop)
    harp_trace(r->trace, now, HARP_EVENT_RX_DROP, p->path, number, drop, 0);
  return drop;
}

void harp_receiver_check(const struct harp_receiver *r) {
  HARP_ASSERT(r->posted - r->done <= HARP_MESSAGES_MAX);
  HARP_ASSERT(!harp_linemap_test(&r->arrived, r->delivered));
  HARP_ASSERT(r->ahead < HARP_WINDOW_LINES);
  HARP_ASSERT(r->ahead || !harp_linemap_test(&r->arrived, r->delivered + 1));
  for (uint32_t m = r->done; m != r->done + MESSAGE_SLOTS; m++) {
    const struct harp_recv_message *msg = &r->messages[m % MESSAGE_SLOTS];
    HARP_ASSERT(msg->missing <= msg->lines);
    HARP_ASSERT(!msg->begun || msg->missing || !harp_seq_before(m, r->done));
  }
}
