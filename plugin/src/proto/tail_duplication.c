/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tail_duplication.h"

#include "base/assert.h"
#include "base/seq.h"
#include "proto/send.h"

/* A burst is overdue that was not acknowledged within the RTT, twice its variation, and at least this, on
 * a path that has received nothing for half as long: a path that continues finds its losses by itself. */
#define OVERDUE_MARGIN_NS HARP_US(300)

static harp_ns overdue_ns(const struct harp_path *p, const struct harp_burst *b) {
  harp_ns margin_ns = HARP_MAX(2 * p->rtt.variation_ns, OVERDUE_MARGIN_NS);
  return HARP_MAX(b->sent_ns + p->rtt.smoothed_ns, p->probe.pto_from_ns + p->rtt.smoothed_ns / 2) + margin_ns;
}

/* The oldest burst of data in flight that was not repeated; NULL: none. */
static struct harp_burst *oldest_unrepeated_burst(const struct harp_path *p) {
  if (!p->inflight_bytes) return NULL;
  for (uint32_t i = p->flight.head; i != p->flight.tail; i++) {
    struct harp_burst *b = harp_flight_at(&p->flight, i);
    if (!b->is_duplicated && b->stream && harp_burst_pending(b) &&
        harp_seq_after(harp_burst_line(b, b->count - 1u) + b->last_lines, b->stream->delivered))
      return b;
  }
  return NULL;
}

/* The paths that take part: what is on a tcp path is repeated by the kernel. */
static uint64_t paths_that_take_part(const struct harp_sender *s) {
  return s->set.eligible & ~harp_path_set_tcp(s->paths, s->set.eligible);
}

/* Returns whether something may be repeated: there is another path for it, and budget. */
static bool may_repeat(const struct harp_sender *s, uint64_t among) {
  return among & (among - 1) && s->duplication.budget_bytes >= HARP_PACKET_MAX_PAYLOAD_BYTES;
}

/* Names the packets of the burst that are pending, from the first to the last in a row; false: all of their
 * lines were delivered. */
static bool choose_pending_packets(struct harp_burst *b, struct harp_tx_choice *choice) {
  uint64_t pending = harp_burst_pending(b);
  uint32_t first = (uint32_t)__builtin_ctzll(pending);
  uint64_t after = ~(pending >> first);
  uint32_t count = after ? (uint32_t)__builtin_ctzll(after) : 64;
  choice->duplicate_of = b;
  choice->stream = b->stream;
  choice->line = harp_burst_line(b, first);
  choice->lines = 0;
  for (uint32_t i = first; i < first + count; i++) choice->lines += harp_burst_lines(b, i);
  if (harp_seq_before(choice->line, b->stream->delivered)) {
    uint32_t gone = HARP_MIN(b->stream->delivered - choice->line, choice->lines);
    choice->line += gone, choice->lines -= gone;
  }
  return choice->lines;
}

bool harp_tail_duplication_choose(const struct harp_sender *s, struct harp_tx_choice *choice, harp_ns now) {
  uint64_t among = paths_that_take_part(s);
  if (!may_repeat(s, among)) return false;
  HARP_EACH_BIT (i, among) {
    const struct harp_path *p = &s->paths[i];
    struct harp_burst *b = oldest_unrepeated_burst(p);
    if (!b || overdue_ns(p, b) > now || !choose_pending_packets(b, choice)) continue;
    struct harp_stripe others = {.among = among & ~(1ull << p->index), .start = s->search.start};
    const struct harp_path *q = harp_stripe_pick(s->paths, &others, now);
    if (!q || q->probe.pto_count) continue;
    HARP_ASSERT(q != p && choice->lines);
    choice->kind = HARP_TX_TAIL_DUPLICATE;
    choice->path = q->index;
    return true;
  }
  return false;
}

harp_ns harp_tail_duplication_deadline_ns(const struct harp_sender *s, harp_ns now) {
  harp_ns at = HARP_NEVER;
  bool declined = false; /* something is overdue, and no path could take it */
  uint64_t among = paths_that_take_part(s);
  if (!may_repeat(s, among)) return at;
  HARP_EACH_BIT (i, among) {
    const struct harp_path *p = &s->paths[i];
    const struct harp_burst *b = oldest_unrepeated_burst(p);
    harp_ns due = b ? overdue_ns(p, b) : HARP_NEVER;
    declined |= due <= now;
    if (due > now) at = HARP_MIN(at, due);
  }
  HARP_EACH_BIT (i, declined ? among : 0) {
    harp_ns open = harp_path_allowance_ns(&s->paths[i], now);
    if (open > now) at = HARP_MIN(at, open);
  }
  return at;
}

void harp_tail_duplication_on_repeated(struct harp_tail_duplication *t, struct harp_burst *burst,
                                       uint32_t bytes) {
  HARP_ASSERT(!burst->is_duplicated);
  burst->is_duplicated = true;
  t->budget_bytes -= HARP_MIN(t->budget_bytes, bytes);
}
