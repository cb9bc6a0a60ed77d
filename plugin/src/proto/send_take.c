/* SPDX-License-Identifier: Apache-2.0 */
/* Carries a choice out: packet numbers, bursts, requests for acknowledgements. send.h declares
 * harp_sender_take, which books it in the parts of the sender and of the path that it concerns; it writes
 * none of their fields. Rules for a request of an acknowledgement, beside each probe and each copy:
 *
 *   1. A part of the window, or of the records, is used since the last one (ack_request.h).
 *   2. It is the last packet for now of messages that somebody waits for.
 *   3. While nobody waits for any message, one acknowledgement for several messages suffices.
 *   4. The window is full and no acknowledgement is to come anyway. */
#include "proto/loss.h"
#include "proto/send.h"

/* Messages that one acknowledgement suffices for, while nobody waits for them. */
enum { UNAWAITED_PER_ACK = HARP_MESSAGES_MAX / HARP_ACK_REQUEST_PARTS };

/* Makes the run for the first `lines` lines of a choice and books it on the path. */
static void emit_data(struct harp_path *p, const struct harp_tx_choice *c, uint32_t lines,
                      struct harp_tx_run *run, harp_ns now) {
  const struct harp_send_message *msg = harp_tx_stream_message(c->stream, c->message);
  uint32_t first = c->line - msg->line, count = (lines + p->size.lines - 1) / p->size.lines;
  uint32_t last_lines = lines - (count - 1) * p->size.lines;
  uint32_t last_line = first + (count - 1) * p->size.lines;
  uint32_t end_bytes = HARP_MIN(msg->bytes, (last_line + last_lines) * HARP_LINE_BYTES);
  HARP_ASSERT(first + lines <= msg->lines);
  struct harp_burst burst = {
      .stream = c->stream,
      .line = c->line,
      .lines_per_packet = (uint16_t)p->size.lines,
      .last_lines = (uint16_t)last_lines,
      .packet_bytes = HARP_DATA_HEADER_BYTES + HARP_MIN(p->size.lines, lines) * HARP_LINE_BYTES,
      .count = (uint8_t)count,
  };
  burst.is_ect =
      harp_path_ecn_on_sent(&p->ecn, c->kind == HARP_TX_PROBE, (uint64_t)burst.packet_bytes * count);
  *run = (struct harp_tx_run){
      .type = HARP_PACKET_DATA,
      .path = p->index,
      .stream = c->stream->id,
      .count = count,
      .number = harp_path_on_sent(p, &burst, now),
      .message = c->message,
      .line = c->line,
      .lines_per_packet = p->size.lines,
      .last_bytes = end_bytes - last_line * HARP_LINE_BYTES,
      .offset = first * HARP_LINE_BYTES,
      .size = msg->bytes,
      .data = msg->data + (size_t)first * HARP_LINE_BYTES,
      .ect = burst.is_ect,
  };
}

static void emit_probe(struct harp_sender *s, struct harp_path *p, const struct harp_tx_choice *c,
                       struct harp_tx_run *run, harp_ns now) {
  bool is_of_size = c->kind == HARP_TX_SIZE_PROBE;
  struct harp_burst burst = {
      .packet_bytes = HARP_DATA_HEADER_BYTES + c->bytes, .count = 1, .is_padding = is_of_size};
  burst.is_ect = harp_path_ecn_on_sent(&p->ecn, !is_of_size, burst.packet_bytes);
  *run = (struct harp_tx_run){
      .type = HARP_PACKET_PROBE,
      .path = p->index,
      .count = 1,
      .number = harp_path_on_sent(p, &burst, now),
      .flags = HARP_FLAG_ACK_SOON |
               (!is_of_size && harp_send_credit_take_request(&s->credit, p->index) ? HARP_FLAG_CREDIT : 0),
      .last_bytes = c->bytes,
      .ect = burst.is_ect};
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
  harp_path_set_withdraw_probe(s, p);
  harp_path_probe_on_probe(&p->probe, now); /* even if this one had to wait for a frame */
  if (p->probe.pto_count || harp_path_pto_ns(p) <= now) harp_path_probe_restart_pto(&p->probe, now);
  if (!c->lines) {
    emit_probe(s, p, c, run, now);
    return;
  }
  harp_tx_stream_take_lost(c->stream, c->line, c->lines);
  emit_data(p, c, c->lines, run, now);
  run->flags = HARP_FLAG_ACK_SOON;
}

static void take_size_probe(struct harp_sender *s, struct harp_path *p, const struct harp_tx_choice *c,
                            struct harp_tx_run *run, harp_ns now) {
  harp_path_size_on_probe_sent(&p->size, c->bytes / HARP_LINE_BYTES, p->next_number, now);
  emit_probe(s, p, c, run, now);
}

static void take_tail_duplicate(struct harp_sender *s, struct harp_path *p, const struct harp_tx_choice *c,
                                uint32_t lines, struct harp_tx_run *run, harp_ns now) {
  harp_tail_duplication_on_repeated(&s->duplication, c->duplicate_of, lines * HARP_LINE_BYTES);
  emit_data(p, c, lines, run, now);
  run->flags = HARP_FLAG_ACK_SOON;
  s->counters->tail_duplicates += run->count;
}

static void take_new(struct harp_sender *s, struct harp_path *p, const struct harp_tx_choice *c,
                     uint32_t lines, struct harp_tx_run *run, harp_ns now) {
  emit_data(p, c, lines, run, now);
  harp_tx_stream_take_new(c->stream, lines);
  harp_send_credit_on_stream(&s->credit, c->stream, now);
  harp_tail_duplication_on_sent(&s->duplication, lines * HARP_LINE_BYTES);
}

/* Returns whether this was the last of what there is to send for now. What is left may be held back by credit
 * or by the cork. */
static bool is_last_for_now(struct harp_sender *s) {
  uint64_t left = (uint64_t)s->load.waiting_lines * HARP_LINE_BYTES;
  return !s->load.resend_lines && (left < HARP_CORK_BYTES || !harp_send_turns_next(s));
}

/* Returns whether a requested acknowledgement has yet to come. */
static bool awaits_ack(const struct harp_path *p) {
  return p->inflight_bytes && (!p->loss.any_acked || p->ack_request.number > p->loss.largest_acked);
}

/* Returns whether the last packet is to request an acknowledgement: the rules of the head. */
static bool wants_ack(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  if (harp_ack_request_is_due(&p->ack_request, HARP_MIN(p->cc.window_bytes, p->to->bytes), p->flight.records))
    return true;
  if (s->load.awaited
          ? is_last_for_now(s)
          : p->ack_request.unrequested_bursts * harp_popcount(s->carriers.by_class[HARP_TX_SMALL]) >=
                UNAWAITED_PER_ACK)
    return true;
  return !awaits_ack(p) && !harp_path_allowance(p, now);
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
                                  bool is_duplicate, harp_ns now) {
  harp_trace(s->trace, now,
             entry_of(is_duplicate ? HARP_EVENT_TX_DUPLICATE : HARP_EVENT_TX_AGAIN, run, lines));
}

void harp_sender_take(struct harp_sender *s, const struct harp_tx_choice *c, uint32_t max_packets,
                      struct harp_tx_run *run, harp_ns now) {
  HARP_ASSERT(c->kind != HARP_TX_NOTHING && c->packets && max_packets);
  struct harp_path *p = &s->paths[c->path];
  uint32_t lines = HARP_MIN(c->lines, max_packets * p->size.lines);
  harp_path_skip_numbers(p);
  harp_experiments_on_sent(&s->experiments, p->pair, now);
  bool first = !harp_path_awaits_answer(p), in_turn = c->kind == HARP_TX_RESEND || c->kind == HARP_TX_NEW;
  switch (c->kind) {
  case HARP_TX_PROBE:
    take_probe(s, p, c, run, now);
    break;
  case HARP_TX_SIZE_PROBE:
    take_size_probe(s, p, c, run, now);
    break;
  case HARP_TX_TAIL_DUPLICATE:
    take_tail_duplicate(s, p, c, lines, run, now);
    break;
  case HARP_TX_RESEND:
    emit_data(p, c, lines, run, now);
    harp_tx_stream_take_lost(c->stream, c->line, lines);
    harp_path_stats_on_resent(&p->stats, run->count);
    break;
  default:
    take_new(s, p, c, lines, run, now);
  }
  if (harp_likely(c->kind == HARP_TX_NEW))
    harp_trace(s->trace, now, entry_of(HARP_EVENT_TX_DATA, run, lines));
  else if (run->type == HARP_PACKET_DATA)
    trace_again(s, run, lines, c->kind == HARP_TX_TAIL_DUPLICATE, now);
  if (in_turn) {
    bool is_slow = p->cc.window_bytes < HARP_PACE_EXACT_PACKETS * p->cc.packet_bytes;
    harp_send_turns_on_sent(s, c->stream, c->message, lines, is_slow);
    if (wants_ack(s, p, now)) run->flags = HARP_FLAG_ACK_SOON;
  }
  if (harp_loss_take_settled(p, run->number + run->count - 1)) run->flags |= HARP_FLAG_SETTLED;
  if (run->flags & HARP_FLAG_ACK_SOON)
    harp_ack_request_on_requested(&p->ack_request, run->number + run->count - 1);
  if (first || c->kind == HARP_TX_PROBE || c->kind == HARP_TX_SIZE_PROBE) harp_path_timers_on_changed(s, p);
}
