/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch/recorder.h"

#include "base/assert.h"
#include "engine/engine.h"
#include "host/stats_file.h"
#include "proto/path_report.h"

void harp_recorder_join(struct harp_engine *e) {
  e->recorder = (struct harp_recorder){
      .trace = {.peer = HARP_TRACE_NO_PEER, .message_min_bytes = HARP_TRACE_MESSAGE_BYTES}};
  if (e->stats.file) e->recorder.trace.ring = harp_stats_file_ring(e->stats.file, e->stats.entry);
}

static const struct harp_trace *trace_of(const struct harp_engine *e) {
  return e->recorder.trace.ring ? &e->recorder.trace : NULL;
}

void harp_recorder_trace(const struct harp_engine *e, harp_ns now, struct harp_trace_entry entry) {
  harp_trace(trace_of(e), now, entry);
}

void harp_recorder_trace_peer(const struct harp_peer *peer, harp_ns now, struct harp_trace_entry entry) {
  harp_trace(peer->session.trace, now, entry);
}

void harp_recorder_add_peer(struct harp_peer *peer) {
  if (!trace_of(peer->engine)) return;
  peer->trace = peer->engine->recorder.trace;
  if (peer->stats.entry >= 0) peer->trace.peer = (uint16_t)peer->stats.entry;
  harp_session_set_trace(&peer->session, &peer->trace);
  struct harp_path_report first = harp_path_report_of(&peer->session, 0);
  harp_recorder_trace_peer(peer, peer->engine->clock(),
                           (struct harp_trace_entry){.event = HARP_EVENT_SESSION_OPEN,
                                                     .number = first.first_number,
                                                     .a = peer->path_count});
}

void harp_recorder_trace_link(const struct harp_link *link, bool is_open) {
  HARP_ASSERT(!link->tx != !link->rx);
  struct harp_trace_entry entry = {
      .event = is_open ? HARP_EVENT_STREAM_OPEN : HARP_EVENT_STREAM_CLOSED,
      .stream = link->tx ? link->tx->id : link->rx->id,
      .a = !link->tx,
      .b = atomic_load_explicit(&link->status, memory_order_relaxed),
  };
  harp_recorder_trace_peer(link->peer, link->engine->clock(), entry);
}

void harp_recorder_trace_refused(struct harp_engine *e, harp_ns now) {
  struct harp_recorder *r = &e->recorder;
  uint64_t refused = e->counters.tx_busy - r->refused, deferred = e->counters.tx_deferred - r->deferred;
  if (harp_likely(!refused && !deferred)) return;
  r->refused += refused;
  r->deferred += deferred;
  harp_recorder_trace(e, now,
                      (struct harp_trace_entry){
                          .event = HARP_EVENT_REFUSED, .a = (uint32_t)refused, .b = (uint32_t)deferred});
}
