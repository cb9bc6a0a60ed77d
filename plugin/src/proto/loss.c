/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/loss.h"

#include "base/seq.h"

#define REORDER_MAX_NS HARP_MS(20)

static uint64_t ones(uint32_t from, uint32_t to) { /* bits [from, to) */
  uint64_t high = to >= 64 ? ~0ull : (1ull << to) - 1;
  return high & ~((1ull << from) - 1);
}

static void settle(struct harp_path *p, const struct harp_burst *b, uint32_t packets, uint32_t *bytes) {
  uint32_t n = packets * b->packet_bytes, cost = harp_burst_cost_bytes(b, packets);
  HARP_ASSERT(p->inflight_bytes >= n && p->to->inflight_bytes >= cost);
  p->inflight_bytes -= n;
  if (b->is_padding) p->padding_bytes -= n;
  p->to->inflight_bytes -= cost;
  *bytes += n;
}

/* Packets found lost and now acknowledged: they were only late. Tolerates more from now on. */
static void forgive(struct harp_path *p, struct harp_burst *b, uint64_t bits, struct harp_loss_result *result,
                    const struct harp_trace *trace, harp_ns now) {
  result->spurious_packets += harp_popcount(bits);
  harp_trace(trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_SPURIOUS,
                                       .path = p->index,
                                       .number = b->number + (unsigned)__builtin_ctzll(bits),
                                       .count = (uint8_t)harp_popcount(bits)});
  harp_ns late_ns = now - b->sent_ns;
  harp_ns excess_ns = late_ns > p->rtt.smoothed_ns ? late_ns - p->rtt.smoothed_ns : 0;
  p->reorder_ns = HARP_MIN(HARP_MAX(2 * p->reorder_ns, excess_ns), REORDER_MAX_NS);
}

/* Forgets settled records; a lost one after four RTTs, when no late acknowledgement is to be expected. */
static void trim(struct harp_path *p, harp_ns now) {
  harp_flight_trim(&p->flight, now > 4 * p->rtt.smoothed_ns ? now - 4 * p->rtt.smoothed_ns : 0);
}

/* Tells the burst's stream which of its lines arrived, run by run. */
static void deliver(const struct harp_burst *b, uint64_t bits, harp_ns now) {
  while (bits) {
    uint32_t first = (uint32_t)__builtin_ctzll(bits);
    uint64_t after = ~(bits >> first);
    uint32_t count = after ? (uint32_t)__builtin_ctzll(after) : 64;
    uint32_t line = harp_burst_line(b, first), last = first + count - 1;
    harp_tx_stream_on_acked(b->stream, line, harp_burst_line(b, last) + harp_burst_lines(b, last) - line,
                            now);
    bits &= ~ones(first, first + count);
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
    uint64_t fresh = ones(from, to) & ~b->acked;
    if (!fresh) continue;
    uint64_t late = fresh & b->lost;
    b->acked |= fresh;
    settle(p, b, harp_popcount(fresh & ~late), &result->acked_bytes);
    if (b->stream) deliver(b, fresh, now);
    if (harp_unlikely(late)) forgive(p, b, late, result, trace, now);
    result->advanced = true;
    uint64_t size_probe = p->size_probe_number - b->number;
    if (p->size_probe_lines && size_probe < 64 && fresh >> size_probe & 1) result->size_probe_acked = true;
    uint64_t highest = b->number + 63 - (uint64_t)__builtin_clzll(fresh);
    if (!p->any_acked || highest > p->largest_acked) {
      p->largest_acked = highest;
      p->any_acked = true;
      p->rack_sent_ns = b->sent_ns;
      result->flight_bytes = b->flight_bytes;
    }
  }
  trim(p, now);
}

static void lose(struct harp_path *p, struct harp_burst *b, uint64_t bits, struct harp_loss_result *result,
                 const struct harp_trace *trace, harp_ns now) {
  b->lost |= bits;
  settle(p, b, harp_popcount(bits), &result->lost_bytes);
  result->lost_packets += harp_popcount(bits);
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
  p->loss_deadline_ns = HARP_NEVER;
  if (!p->any_acked) return;
  harp_ns patience_ns = HARP_MAX(p->rtt.smoothed_ns, p->rtt.latest_ns) +
                        HARP_MAX(p->reorder_ns, HARP_MIN(p->rtt.smoothed_ns / 8, HARP_MS(1)));
  for (uint32_t i = f->head; i != f->tail; i++) {
    struct harp_burst *b = harp_flight_at(f, i);
    if (b->number >= p->largest_acked || b->sent_ns > p->rack_sent_ns) break;
    uint64_t bits = harp_burst_pending(b);
    if (p->largest_acked < b->number + b->count) bits &= ones(0, (uint32_t)(p->largest_acked - b->number));
    if (!bits) continue;
    if (b->sent_ns + patience_ns <= now)
      lose(p, b, bits, result, trace, now);
    else
      p->loss_deadline_ns = HARP_MIN(p->loss_deadline_ns, b->sent_ns + patience_ns);
  }
  trim(p, now);
}

void harp_loss_give_up(struct harp_path *p, struct harp_loss_result *result, const struct harp_trace *trace,
                       harp_ns now) {
  struct harp_flight *f = &p->flight;
  for (uint32_t i = f->head; i != f->tail; i++) {
    struct harp_burst *b = harp_flight_at(f, i);
    uint64_t bits = harp_burst_pending(b);
    if (bits) lose(p, b, bits, result, trace, now);
  }
  HARP_ASSERT(p->inflight_bytes == 0);
  p->loss_deadline_ns = HARP_NEVER;
  trim(p, now);
}
