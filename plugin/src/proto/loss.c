/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/loss.h"

#include "base/seq.h"

/* Bounds of the tolerance for reordering, and how many round trips it takes to shrink by a factor e. */
#define REORDER_MIN_NS HARP_US(5)
#define REORDER_MAX_NS HARP_MS(20)
enum { REORDER_MEMORY_ROUNDS = 64 };

void harp_loss_init(struct harp_path_loss *l, uint64_t first_number) {
  *l = (struct harp_path_loss){.largest_acked = first_number - 1,
                               .round_end_number = first_number,
                               .settled_number = first_number,
                               .deadline_ns = HARP_NEVER,
                               .reorder_ns = REORDER_MIN_NS};
}

/* Returns the first number that is neither acknowledged nor lost, or is not sent yet. */
static uint64_t first_pending(const struct harp_path *p) {
  const struct harp_flight *f = &p->flight;
  for (uint32_t i = f->head; i != f->tail; i++) {
    const struct harp_burst *b = harp_flight_at(f, i);
    uint64_t bits = harp_burst_pending(b);
    if (bits) return b->number + (unsigned)__builtin_ctzll(bits);
  }
  return p->next_number;
}

void harp_loss_on_round(struct harp_path *p) {
  struct harp_path_loss *l = &p->loss;
  l->round_end_number = p->next_number;
  l->is_settled_due = first_pending(p) > l->settled_number;
  l->reorder_ns = HARP_MAX(l->reorder_ns - l->reorder_ns / REORDER_MEMORY_ROUNDS, REORDER_MIN_NS);
}

static uint64_t bits_between(uint32_t from, uint32_t to) { /* bits [from, to) */
  uint64_t high = to >= 64 ? ~0ull : (1ull << to) - 1;
  return high & ~((1ull << from) - 1);
}

/* Packets found lost and now acknowledged: they were only late. Tolerates more from now on. */
static void packets_came_late(struct harp_path *p, struct harp_burst *b, uint64_t bits,
                              struct harp_loss_result *result, const struct harp_trace *trace, harp_ns now) {
  result->spurious_packets += harp_popcount(bits);
  harp_trace(trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_SPURIOUS,
                                       .path = p->index,
                                       .number = b->number + (unsigned)__builtin_ctzll(bits),
                                       .count = (uint8_t)harp_popcount(bits)});
  harp_ns late_ns = now - b->sent_ns;
  harp_ns excess_ns = late_ns > p->rtt.smoothed_ns ? late_ns - p->rtt.smoothed_ns : 0;
  p->loss.reorder_ns = HARP_MIN(HARP_MAX(2 * p->loss.reorder_ns, excess_ns), REORDER_MAX_NS);
}

/* Forgets settled records; a lost one after four RTTs, when no late acknowledgement is to be expected. */
static void trim_flight(struct harp_path *p, harp_ns now) {
  harp_flight_trim(&p->flight, now > 4 * p->rtt.smoothed_ns ? now - 4 * p->rtt.smoothed_ns : 0);
}

/* Tells the burst's stream which of its lines arrived, run by run. */
static void lines_arrived(const struct harp_burst *b, uint64_t bits, harp_ns now) {
  while (bits) {
    uint32_t first = (uint32_t)__builtin_ctzll(bits);
    uint64_t after = ~(bits >> first);
    uint32_t count = after ? (uint32_t)__builtin_ctzll(after) : 64;
    uint32_t line = harp_burst_line(b, first), last = first + count - 1;
    harp_tx_stream_on_acked(b->stream, line, harp_burst_line(b, last) + harp_burst_lines(b, last) - line,
                            now);
    bits &= ~bits_between(first, first + count);
  }
}

void harp_loss_on_acked(struct harp_path *p, uint64_t begin, uint64_t end, struct harp_loss_result *result,
                        const struct harp_trace *trace, harp_ns now) {
  struct harp_flight *f = &p->flight;
  HARP_ASSERT(begin < end && end <= p->next_number);
  for (uint32_t i = f->head; i != f->tail; i++) {
    struct harp_burst *b = harp_flight_at(f, i);
    if (b->number >= end) break;
    if (b->number + b->count <= begin) continue;
    uint32_t from = begin > b->number ? (uint32_t)(begin - b->number) : 0;
    uint32_t to = end < b->number + b->count ? (uint32_t)(end - b->number) : b->count;
    uint64_t fresh = bits_between(from, to) & ~b->acked;
    if (!fresh) continue;
    uint64_t late = fresh & b->lost;
    b->acked |= fresh;
    result->acked_bytes += harp_path_on_settled(p, b, harp_popcount(fresh & ~late));
    uint32_t was_lost = harp_path_size_on_acked(&p->size, b, fresh);
    if (harp_unlikely(was_lost)) {
      result->lost_bytes += was_lost;
      result->lost_sent_ns = HARP_MAX(result->lost_sent_ns, p->size.hole_sent_ns);
    }
    if (b->stream) lines_arrived(b, fresh, now);
    if (harp_unlikely(late)) packets_came_late(p, b, late, result, trace, now);
    result->advanced = true;
    result->ect_acked |= b->is_ect;
    if (harp_path_size_is_probe_among(&p->size, b->number, fresh)) result->size_probe_acked = true;
    uint64_t highest = b->number + 63 - (uint64_t)__builtin_clzll(fresh);
    if (!p->loss.any_acked || highest > p->loss.largest_acked) {
      p->loss.largest_acked = highest;
      p->loss.any_acked = true;
      p->loss.rack_sent_ns = b->sent_ns;
      result->newest_sent_ns = b->sent_ns;
      result->flight_bytes = b->flight_bytes;
    }
  }
  trim_flight(p, now);
}

static void packets_are_lost(struct harp_path *p, struct harp_burst *b, uint64_t bits,
                             struct harp_loss_result *result, const struct harp_trace *trace, harp_ns now) {
  b->lost |= bits;
  result->lost_bytes += harp_path_on_settled(p, b, harp_popcount(bits));
  result->lost_packets += harp_popcount(bits);
  result->lost_sent_ns = HARP_MAX(result->lost_sent_ns, b->sent_ns);
  uint32_t first = (uint32_t)__builtin_ctzll(bits);
  harp_trace(trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_LOST,
                                       .path = p->index,
                                       .number = b->number + first,
                                       .count = (uint8_t)harp_popcount(bits),
                                       .a = harp_burst_line(b, first)});
  for (; bits; bits &= bits - 1) {
    uint32_t i = (uint32_t)__builtin_ctzll(bits);
    if (b->stream) harp_tx_stream_on_lost(b->stream, harp_burst_line(b, i), harp_burst_lines(b, i));
  }
}

void harp_loss_detect(struct harp_path *p, struct harp_loss_result *result, const struct harp_trace *trace,
                      harp_ns now) {
  struct harp_flight *f = &p->flight;
  p->loss.deadline_ns = HARP_NEVER;
  if (!p->loss.any_acked) return;
  harp_ns patience_ns = HARP_MAX(p->rtt.smoothed_ns, p->rtt.latest_ns) +
                        HARP_MAX(p->loss.reorder_ns, HARP_MIN(p->rtt.smoothed_ns / 8, HARP_MS(1)));
  for (uint32_t i = f->head; i != f->tail; i++) {
    struct harp_burst *b = harp_flight_at(f, i);
    if (b->number >= p->loss.largest_acked || b->sent_ns > p->loss.rack_sent_ns) break;
    uint64_t bits = harp_burst_pending(b);
    if (p->loss.largest_acked < b->number + b->count)
      bits &= bits_between(0, (uint32_t)(p->loss.largest_acked - b->number));
    if (!bits) continue;
    if (b->sent_ns + patience_ns <= now) {
      packets_are_lost(p, b, bits, result, trace, now);
      result->lost_bytes -= harp_path_size_on_lost(&p->size, b, bits, p->rtt.smoothed_ns);
    } else {
      p->loss.deadline_ns = HARP_MIN(p->loss.deadline_ns, b->sent_ns + patience_ns);
    }
  }
  trim_flight(p, now);
}

void harp_loss_give_up(struct harp_path *p, struct harp_loss_result *result, const struct harp_trace *trace,
                       harp_ns now) {
  struct harp_flight *f = &p->flight;
  for (uint32_t i = f->head; i != f->tail; i++) {
    struct harp_burst *b = harp_flight_at(f, i);
    uint64_t bits = harp_burst_pending(b);
    if (bits) packets_are_lost(p, b, bits, result, trace, now);
  }
  HARP_ASSERT(p->inflight_bytes == 0);
  p->loss.deadline_ns = HARP_NEVER;
  trim_flight(p, now);
}
