/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_account.h"

#include "proto/send.h"

void harp_path_account_window_cut(const struct harp_sender *s, const struct harp_path *p, uint32_t from_bytes,
                                  harp_ns now) {
  if (harp_likely(p->cc.window_bytes >= from_bytes - from_bytes / 8)) return;
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_WINDOW,
                                       .path = p->index,
                                       .a = p->cc.window_bytes,
                                       .b = (uint32_t)(p->rtt.smoothed_ns / HARP_US(1))});
}

/* Returns whether other paths carry data, to other ENIs, and none of them has lost anything that counted
 * lately. */
static bool is_lossy_alone(const struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  bool has_others = false;
  HARP_EACH_BIT (i, s->set.eligible & ~harp_path_bit(p)) {
    const struct harp_path *q = &s->paths[i];
    if (q->is_tcp) continue;
    if (q->to == p->to || !harp_cc_is_clean(&q->cc, now)) return false;
    has_others = true;
  }
  return has_others;
}

void harp_path_account_event(struct harp_sender *s, struct harp_path *p, const struct harp_loss_result *r,
                             uint32_t inflight_bytes, harp_ns rtt_ns, harp_ns now) {
  s->counters->spurious_losses += r->spurious_packets;
  s->counters->lost_packets += r->lost_packets;
  harp_path_stats_on_lost(&p->stats, r->lost_packets);
  if (!r->acked_bytes && !r->lost_bytes) return;
  struct harp_cc_sample sample = {
      .now = now,
      .rtt_ns = rtt_ns,
      .rtt_min_ns = p->rtt.min_ns,
      .acked_bytes = r->acked_bytes,
      .lost_bytes = r->lost_bytes,
      .lost_sent_ns = r->lost_sent_ns,
      .ce_bytes = harp_path_ecn_take_new(&p->ecn),
      .inflight_bytes = inflight_bytes,
      .peer_limited = p->to->inflight_bytes + r->acked_bytes >= p->to->bytes / 2,
      .is_lossy_alone = r->lost_bytes && is_lossy_alone(s, p, now),
      .round_end = r->advanced && p->loss.largest_acked >= p->loss.round_end_number,
  };
  if (p->is_tcp) harp_tcp_speeds_on_flight(&s->tcp_speeds, r->flight_bytes, rtt_ns);
  if (sample.round_end) harp_loss_on_round(p);
  if (sample.round_end && harp_path_pairs_is_choice(&s->pairs, s->path_count)) {
    harp_path_pairs_on_round(s, p, &sample);
    harp_send_experiments_on_round(s, p, now);
  }
  uint32_t window = p->cc.window_bytes;
  p->cc.ops->on_ack(&p->cc, &sample);
  harp_path_speed_update(p);
  harp_path_account_window_cut(s, p, window, now);
}

void harp_path_account_busy(struct harp_path *p, harp_ns now) {
  if (p->inflight_bytes) return;
  p->cc.ops->on_busy(&p->cc, now - p->probe.last_ack_ns);
  harp_path_speed_update(p);
}
