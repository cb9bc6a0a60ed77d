/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send.h"

#include <errno.h>

#include "base/seq.h"

/* The most that the receiver may call its own delay, for the congestion control. It sends requested
 * acknowledgements at once, and the lowest RTT of several decides; one that calls the network's queue its own
 * delay gains no more. */
#define ACK_DELAY_MAX_NS HARP_US(25)
/* RTT samples older than this are stale. */
#define RTT_STALE_NS HARP_MS(50)

/* ---- streams ---- */

void harp_sender_open(struct harp_sender *s, struct harp_tx_stream *st,
                      const struct harp_tx_stream_config *config) {
  HARP_ASSERT(config->id < s->stream_max && !s->streams[config->id]);
  harp_tx_stream_init(st, config, &s->load, s->trace, s->counters);
  s->streams[config->id] = st;
  s->was_open[config->id / 64] |= 1ull << config->id % 64;
}

void harp_sender_close(struct harp_sender *s, struct harp_tx_stream *st) {
  HARP_ASSERT(s->streams[st->id] == st);
  s->streams[st->id] = NULL;
  harp_tx_stream_close(st);
  harp_send_credit_on_closed(&s->credit, st);
  for (unsigned i = 0; i < s->path_count; i++) harp_flight_forget(&s->paths[i].flight, st);
  harp_send_experiments_on_closed(s);
}

/* Messages are posted after a time without any. */
static void sender_is_busy(struct harp_sender *s, harp_ns now) {
  HARP_EACH_BIT (i, s->set.eligible) harp_path_account_busy(&s->paths[i], now);
  if (s->path_count > 1 || !s->set.eligible) harp_path_timers_on_busy(&s->timers, now);
}

int harp_sender_post(struct harp_sender *s, struct harp_tx_stream *st, const void *data, uint32_t bytes,
                     void *cookie, bool is_awaited, harp_ns now) {
  bool was_idle = !s->load.messages;
  if (harp_unlikely(bytes > HARP_SMALL_MAX_BYTES)) harp_path_pairs_on_large(s, now);
  harp_send_carriers_update_windows(s, bytes);
  int err = harp_tx_stream_post(st, data, bytes, cookie, is_awaited, now);
  if (!err && was_idle) sender_is_busy(s, now);
  harp_send_windows_on_posted(&s->windows, now);
  harp_send_credit_on_stream(&s->credit, st, now);
  harp_send_experiments_on_posted(s, now);
  return err;
}

/* ---- acknowledgements ---- */

/* The RTT that an acknowledgement shows, 0 if it shows none: now - echoed time - time it waited at the
 * receiver. */
static harp_ns ack_rtt_ns(const struct harp_packet *p, harp_ns now) {
  int32_t ticks = (int32_t)(harp_ticks_from_ns(now) - p->ack.echo_time - p->ack.echo_delay);
  return ticks < 0 ? 0 : HARP_MAX((harp_ns)ticks, 1u) * HARP_TICK_NS;
}

/* Returns the RTT for the congestion control, 0 if there is none: by the times that we have recorded, since
 * the peer may lie. */
static harp_ns control_rtt_ns(const struct harp_path *path, const struct harp_packet *p,
                              const struct harp_loss_result *r, harp_ns rtt_ns, harp_ns now) {
  if (path->is_tcp) return rtt_ns;
  if (!r->newest_sent_ns) return 0;
  harp_ns delay_ns = HARP_MIN((harp_ns)p->ack.echo_delay * HARP_TICK_NS, ACK_DELAY_MAX_NS);
  harp_ns most_ns = now - r->newest_sent_ns;
  return HARP_MAX(most_ns, delay_ns + 1) - delay_ns;
}

uint64_t harp_sender_ack_number(const struct harp_sender *s, const struct harp_packet *p) {
  return harp_seq_widen(p->number, s->paths[p->path].ack_next);
}

/* A stream that was closed meanwhile needs no credit; for one that never was, none can be given. */
static void credit_came(struct harp_sender *s, const struct harp_credit *credit) {
  uint16_t id = credit->stream;
  struct harp_tx_stream *st = id < s->stream_max ? s->streams[id] : NULL;
  if (st)
    harp_tx_stream_on_credit(st, credit->posted);
  else if (id >= s->stream_max || !(s->was_open[id / 64] >> id % 64 & 1))
    s->counters->absurd_credits++;
}

/* The receiver's sum of bytes that came marked as CE; the congestion control gets what is new of it. */
static void marks_came(struct harp_sender *s, struct harp_path *p, uint32_t ce_bytes) {
  if (harp_likely(ce_bytes == (uint32_t)p->ecn.ce_bytes)) return;
  uint64_t before = p->ecn.ce_bytes;
  if (!harp_path_ecn_on_report(&p->ecn, ce_bytes)) s->counters->absurd_marks++;
  s->counters->ce_reported_bytes += p->ecn.ce_bytes - before;
}

enum harp_drop harp_sender_on_ack(struct harp_sender *s, const struct harp_packet *p, uint64_t number,
                                  harp_ns now) {
  HARP_ASSERT(p->path < s->path_count);
  struct harp_path *path = &s->paths[p->path];
  uint64_t newest = 0; /* one above the highest number that is acknowledged */
  for (uint32_t i = 0; i < p->ack.range_count; i++) {
    if (!harp_seq_before(p->ack.ranges[i].begin, p->ack.ranges[i].end)) return HARP_DROP_FIELD;
    uint64_t end = harp_seq_widen(p->ack.ranges[i].end, path->next_number);
    if (end > path->next_number || p->ack.ranges[i].end - p->ack.ranges[i].begin > end)
      return HARP_DROP_STALE_ACK;
    if (harp_path_skip_is_false(&path->skip, end - (p->ack.ranges[i].end - p->ack.ranges[i].begin), end))
      return HARP_DROP_FALSE_ACK;
    newest = HARP_MAX(newest, end);
  }
  s->counters->rx_acks++;
  if (number >= path->ack_next) { /* no other of this path has overtaken it */
    path->ack_next = number + 1;
    harp_send_windows_on_announced(s, p->ack.window_bytes, now);
    marks_came(s, path, p->ack.ce_bytes);
  }
  for (uint32_t i = 0; i < p->ack.credit_count; i++) credit_came(s, &p->ack.credits[i]);

  struct harp_loss_result r = {0};
  uint32_t inflight = path->inflight_bytes;
  for (uint32_t i = p->ack.range_count; i-- > 0;) {
    uint64_t end = harp_seq_widen(p->ack.ranges[i].end, path->next_number);
    uint64_t begin = end - (p->ack.ranges[i].end - p->ack.ranges[i].begin);
    harp_loss_on_acked(path, begin, end, &r, s->trace, now);
  }
  if (harp_unlikely(path->ecn.is_withheld) && r.ect_acked) harp_path_health_on_ect(s, path, now);
  harp_send_experiments_on_acked(s, path, r.acked_bytes, now);
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_RX_ACK,
                                       .path = p->path,
                                       .number = path->loss.largest_acked,
                                       .a = (uint32_t)number,
                                       .b = path->cc.window_bytes});
  harp_path_health_on_detour(s, path, p->flags & HARP_FLAG_DETOUR, now);
  bool proven =
      (path->state == HARP_PATH_NEW || path->state == HARP_PATH_DOWN) && newest > path->probe.proof_number;
  if (!r.advanced && !proven) return HARP_DROP_NONE;

  harp_ns rtt_ns = ack_rtt_ns(p, now);
  if (rtt_ns && s->path_count > 1 && now - path->probe.last_ack_ns > RTT_STALE_NS)
    harp_rtt_forget(&path->rtt);
  harp_ns control_ns = control_rtt_ns(path, p, &r, rtt_ns, now);
  if (rtt_ns) harp_rtt_on_sample(&path->rtt, rtt_ns);
  if (control_ns)
    harp_rtt_on_base(&path->rtt, control_ns, harp_ticks_from_ns(now) - p->ack.time, path->cc.drain_every_ns,
                     now);
  if (control_ns && !path->is_tcp) control_ns = harp_rtt_there_ns(&path->rtt, control_ns);
  if (path->state == HARP_PATH_UP || proven) harp_path_health_on_answer(s, path, now);
  if (r.size_probe_acked) harp_path_health_on_size_probe(s, path, now);
  harp_loss_detect(path, &r, s->trace, now);
  harp_path_account_event(s, path, &r, inflight, control_ns, now);
  harp_path_health_on_losses(s, path, now);
  /* a smaller RTT, or the first answer after doublings, brings the timeout closer */
  harp_path_timers_on_changed(s, path);
  return HARP_DROP_NONE;
}

/* ---- paths and timers ---- */

void harp_sender_set_clock(struct harp_sender *s, harp_ns offset_ns, bool is_own) {
  for (unsigned i = 0; i < s->path_count; i++) harp_cc_set_clock(&s->paths[i].cc, offset_ns, is_own);
}

void harp_sender_path_down(struct harp_sender *s, unsigned path, harp_ns now) {
  HARP_ASSERT(path < s->path_count);
  harp_path_health_down(s, &s->paths[path], now);
}

void harp_sender_test_connection(struct harp_sender *s, unsigned path, harp_ns now) {
  HARP_ASSERT(path < s->path_count);
  harp_path_pairs_test(s, &s->paths[path], now);
}

void harp_sender_probe_anew(struct harp_sender *s, unsigned path, harp_ns now) {
  struct harp_path *p = &s->paths[path];
  HARP_ASSERT(path < s->path_count && !p->is_tcp);
  if (p->state == HARP_PATH_NEW || p->state == HARP_PATH_DOWN) harp_path_probing_begin(s, p, now);
}

bool harp_sender_on_trouble(struct harp_sender *s, harp_ns now) {
  return harp_experiments_on_trouble(&s->experiments, now);
}

void harp_sender_on_timeout(struct harp_sender *s, harp_ns now) {
  harp_send_experiments_on_time(s, now);
  harp_path_health_on_timeout(s, now);
  if (s->credit.probe_ns <= now) harp_send_credit_on_time(s, now);
}

void harp_sender_keepalive(struct harp_sender *s, harp_ns quiet_ns, harp_ns now) {
  harp_path_probing_probe_quiet(s, quiet_ns, now);
}
