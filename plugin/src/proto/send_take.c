/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_health.h"
#include "proto/send_parts.h"
#include "proto/tail_duplication.h"

#define SIZE_PROBE_INTERVAL_NS HARP_SEC(10)
#define SIZE_PROBE_AGAIN_NS    HARP_MS(100)
/* Acknowledgements requested for each window, and for as many messages as a stream may have under way: the
 * receiver does not know how large the window is. */
enum { ACK_REQUEST_PARTS = 4, UNAWAITED_PER_ACK = HARP_MESSAGES_MAX / ACK_REQUEST_PARTS };

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
  struct harp_burst burst = {
      .packet_bytes = HARP_DATA_HEADER_BYTES + lines * HARP_LINE_BYTES, .count = 1, .is_padding = lines};
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
  harp_sender_note_waiting(s, c->stream, now);
  s->copy_budget_bytes =
      HARP_MIN(s->copy_budget_bytes + lines * (HARP_LINE_BYTES / HARP_TAIL_DUPLICATION_SHARE),
               HARP_TAIL_DUPLICATION_BUDGET_BYTES + 0u);
}

/* Whether enough of the path's window, or of its records, was used since its last request. */
static bool used_its_part(const struct harp_path *p) {
  uint32_t window = HARP_MIN(p->cc.window_bytes, p->to->bytes);
  return p->unrequested_bytes >= window / ACK_REQUEST_PARTS ||
         p->unrequested_bursts >= p->flight.records / ACK_REQUEST_PARTS;
}

/* Whether a requested acknowledgement has yet to come. */
static bool awaits_ack(const struct harp_path *p) {
  return p->inflight_bytes && (!p->any_acked || p->ack_request_number > p->largest_acked);
}

/* Whether this was the last of what there is to send for now. What is left may be held back by credit or by
 * the cork. */
static bool is_last_for_now(struct harp_sender *s) {
  uint64_t left = (uint64_t)s->load.waiting_lines * HARP_LINE_BYTES;
  return !s->load.resend_lines && (left < HARP_SENDER_CORK_BYTES || !harp_sender_next_stream(s));
}

/* Whether the last packet is to request an acknowledgement: a part of the window is used, or it is the last
 * packet for now of messages that somebody waits for, or the window is full and no acknowledgement is to
 * come anyway. While nobody waits for any message, one acknowledgement for several messages suffices. */
static bool wants_ack(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  if (used_its_part(p)) return true;
  if (s->load.awaited
          ? is_last_for_now(s)
          : p->unrequested_bursts * harp_popcount(s->by_class[HARP_TX_SMALL]) >= UNAWAITED_PER_ACK)
    return true;
  return !awaits_ack(p) && !harp_path_allowance(p, now);
}

/* Notes what a run has requested. */
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
  harp_experiments_on_sent(&s->experiments, p->pair, now);
  bool first = !harp_path_awaits_answer(p), in_turn = c->kind == HARP_TX_RESEND || c->kind == HARP_TX_NEW;
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
    harp_sender_end_turn(s, c, lines);
    if (wants_ack(s, p, now)) run->flags = HARP_FLAG_ACK_SOON;
  }
  note_ack_request(p, run);
  if (first || c->kind == HARP_TX_PROBE || c->kind == HARP_TX_SIZE_PROBE) harp_path_health_touch(s, p);
}
