/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of a sender, for tests: harp_sender_check of send.h. */
#include "proto/send.h"

static void check_path(const struct harp_sender *s, unsigned i) {
  const struct harp_path *p = &s->paths[i];
  HARP_ASSERT(harp_path_size_is_searched(&p->size) == (s->set.sizing >> i & 1));
  HARP_ASSERT(p->state == HARP_PATH_UP || !(s->set.eligible >> i & 1));
  HARP_ASSERT(p->state != HARP_PATH_DORMANT || !(s->set.probes_due >> i & 1));
  uint64_t bytes = 0, padding = 0, number = 0;
  for (uint32_t k = p->flight.head; k != p->flight.tail; k++) {
    const struct harp_burst *b = harp_flight_at(&p->flight, k);
    uint64_t pending = (uint64_t)harp_popcount(harp_burst_pending(b)) * b->packet_bytes;
    bytes += pending;
    padding += b->is_padding ? pending : 0;
    HARP_ASSERT(k == p->flight.head || b->number >= number);
    HARP_ASSERT(!b->stream || (b->lines_per_packet && s->streams[b->stream->id] == b->stream));
    number = b->number + b->count;
  }
  HARP_ASSERT(bytes == p->inflight_bytes && padding == p->padding_bytes && number <= p->next_number);
}

static uint32_t cost_of_flight(const struct harp_flight *f) {
  uint32_t cost = 0;
  for (uint32_t k = f->head; k != f->tail; k++) {
    const struct harp_burst *b = harp_flight_at(f, k);
    cost += harp_burst_cost_bytes(b, harp_popcount(harp_burst_pending(b)));
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
  uint32_t messages = 0, awaited = 0, large = 0, waiting = 0, resend = 0;
  for (unsigned i = 0; i < s->stream_max; i++) {
    const struct harp_tx_stream *st = s->streams[i];
    if (!st) continue;
    HARP_ASSERT(st->id == i && st->load == &s->load);
    harp_tx_stream_check(st);
    HARP_ASSERT(!harp_tx_stream_lacks_credit(st) || (st->is_waiting && s->credit.probe_ns != HARP_NEVER));
    messages += st->tail - st->oldest, resend += st->resend.count;
    for (uint32_t m = st->oldest; m != st->let_go; m++) {
      awaited += harp_tx_stream_message(st, m)->is_awaited;
      large += harp_send_message_is_large(harp_tx_stream_message(st, m));
    }
    waiting += harp_tx_stream_waiting_lines(st);
  }
  HARP_ASSERT(s->load.messages == messages && s->load.awaited == awaited && s->load.large == large);
  HARP_ASSERT(s->load.waiting_lines == waiting && s->load.resend_lines == resend);
  for (unsigned class = 0; class < HARP_TX_CLASSES; class ++) check_list(s, class);
  HARP_ASSERT(!(s->set.probes_due >> (s->path_count - 1) >> 1));
  uint32_t cost[HARP_WINDOWS_MAX] = {0};
  for (unsigned i = 0; i < s->path_count; i++) {
    check_path(s, i);
    if (!s->paths[i].is_tcp) cost[s->paths[i].to - s->windows.by_eni] += cost_of_flight(&s->paths[i].flight);
  }
  for (unsigned i = 0; i < HARP_WINDOWS_MAX; i++) HARP_ASSERT(s->windows.by_eni[i].inflight_bytes == cost[i]);
}
