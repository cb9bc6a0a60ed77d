/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_health.h"

#include "base/assert.h"
#include "proto/send.h"

/* ---- packet size ---- */

static void restart_path_size(struct harp_sender *s, struct harp_path *p) {
  if (p->is_tcp) return;
  harp_path_size_restart(&p->size);
  harp_path_set_on_size(s, p);
}

static void shrink_path_size(struct harp_sender *s, struct harp_path *p, bool is_hole, harp_ns now) {
  uint32_t lines = p->size.lines;
  if (p->is_tcp || !harp_path_size_shrink(&p->size, is_hole, now)) return;
  harp_path_set_on_size(s, p);
  harp_trace(s->trace, now,
             (struct harp_trace_entry){
                 .event = HARP_EVENT_PATH_SIZE, .path = p->index, .a = lines, .b = p->size.lines});
}

/* The engine sees by the counter that it is to look for paths whose limit has changed. */
static void count_size_changes(struct harp_sender *s, struct harp_path *p) {
  s->counters->size_changes += harp_path_size_take_news(&p->size);
}

void harp_path_health_on_size_probe(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  harp_trace(
      s->trace, now,
      (struct harp_trace_entry){
          .event = HARP_EVENT_PATH_SIZE, .path = p->index, .a = p->size.lines, .b = p->size.probe_lines});
  harp_path_size_on_probe_acked(&p->size, now);
  harp_path_set_on_size(s, p);
  count_size_changes(s, p);
}

void harp_path_health_on_losses(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  if (harp_unlikely(harp_path_size_is_hole(&p->size)) && p->state == HARP_PATH_UP)
    shrink_path_size(s, p, true, now);
  count_size_changes(s, p);
}

/* ---- ECN ---- */

static void trace_ecn(const struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  harp_trace(
      s->trace, now,
      (struct harp_trace_entry){.event = HARP_EVENT_PATH_ECN, .path = p->index, .a = p->ecn.is_withheld});
}

static void withhold_ect(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  if (!p->ecn.is_used) return;
  harp_path_ecn_on_silence(&p->ecn);
  trace_ecn(s, p, now);
}

/* Sends the probe that tests whether ECN-capable packets pass, once the path answers without. */
static void test_ect(struct harp_sender *s, struct harp_path *p) {
  if (harp_path_ecn_on_answer(&p->ecn) && !harp_flight_is_full(&p->flight)) harp_path_set_request_probe(s, p);
}

void harp_path_health_on_ect(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  harp_path_ecn_on_acked(&p->ecn);
  trace_ecn(s, p, now);
}

/* ---- answers ---- */

void harp_path_health_on_detour(struct harp_sender *s, struct harp_path *p, bool detour, harp_ns now) {
  if (harp_likely(p->detour == detour)) return;
  harp_path_set_on_detour(s, p, detour);
  harp_path_pairs_update(s, p, now);
}

void harp_path_health_on_answer(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  bool was_poor = p->probe.pto_count || p->state != HARP_PATH_UP;
  harp_path_probe_on_answer(&p->probe, now);
  if (harp_unlikely(s->set.probes_due & harp_path_bit(p))) {
    harp_path_set_withdraw_probe(s, p);
    harp_path_timers_on_changed(s, p);
  }
  if (harp_unlikely(p->state != HARP_PATH_UP)) {
    if (p->state == HARP_PATH_DOWN) harp_path_pairs_restart_window(p);
    harp_path_set_move(s, p, HARP_PATH_UP, now);
    harp_path_timers_on_changed(s, p);
  }
  if (harp_unlikely(was_poor)) test_ect(s, p);
  if (harp_unlikely(harp_send_stall_on_answer(&s->stall))) harp_path_probing_on_stall_end(s);
  if (harp_unlikely(was_poor)) harp_path_pairs_update(s, p, now);
}

/* ---- silence ---- */

void harp_path_health_down(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  if (p->state != HARP_PATH_UP) {
    harp_path_flight_give_up(s, p, now);
    harp_path_probe_renew_proof(&p->probe,
                                p->next_number); /* what was sent on it before proves nothing any more */
    return;
  }
  harp_path_probing_on_down(s, p);
  harp_path_flight_give_up(s, p, now);
  harp_path_set_move(s, p, HARP_PATH_DOWN, now);
  if (s->path_count > 1) restart_path_size(s, p);
  harp_path_probing_begin(s, p, now);
  harp_path_pairs_update(s, p, now);
  harp_path_pairs_on_down(s, p, now);
  harp_path_timers_on_changed(s, p);
}

/* Returns whether another path had something acknowledged that was sent after this one fell silent: then the
 * peer is reachable. */
static bool others_progress(const struct harp_sender *s, const struct harp_path *p) {
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *q = &s->paths[i];
    if (q != p && q->state == HARP_PATH_UP && q->loss.any_acked && !harp_path_is_silent(q) &&
        q->loss.rack_sent_ns > p->probe.silent_ns)
      return true;
  }
  return false;
}

/* Returns whether no other path may carry data until this one is DOWN: none that may answers, nor one between
 * the same ENIs. */
static bool standby_is_needed(const struct harp_sender *s, const struct harp_path *p) {
  if (harp_path_pairs_other_answers(s, p)) return false;
  HARP_EACH_BIT (i, s->set.eligible & ~harp_path_bit(p)) {
    if (!harp_path_is_silent(&s->paths[i])) return false;
  }
  return (s->set.eligible & harp_path_bit(p)) != 0;
}

/* Requests an acknowledgement, and gives the path's flight to others where it is in doubt. That of a tcp path
 * is given up only with its connection, when the path goes DOWN; and its flight has room for few probes. */
static void probe_or_move_flight(struct harp_sender *s, struct harp_path *p, bool elsewhere, harp_ns now) {
  if (!p->is_tcp || !harp_flight_is_full(&p->flight))
    harp_path_set_request_probe(s, p);
  else
    harp_path_set_withdraw_probe(s, p);
  if (p->is_tcp) return;
  if (elsewhere && p->probe.pto_count >= HARP_PATH_DOUBTFUL_PTOS && !p->probe.has_moved_flight) {
    harp_path_probe_on_flight_moved(&p->probe);
    restart_path_size(s, p);
    harp_path_flight_give_up(s, p, now);
  } else if (p->probe.pto_count >= HARP_PATH_SILENT_PTOS && !p->probe.has_moved_flight) {
    shrink_path_size(s, p, false, now);
  }
  if (p->probe.pto_count >= HARP_PATH_GIVE_UP_PTOS || harp_flight_is_full(&p->flight))
    harp_path_flight_give_up(s, p, now);
}

static void path_timed_out(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  HARP_ASSERT(p->state == HARP_PATH_UP && p->probe.pto_from_ns <= now);
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_PTO,
                                       .path = p->index,
                                       .a = p->probe.pto_count,
                                       .b = (uint32_t)((now - p->probe.pto_from_ns) / HARP_US(1))});
  s->counters->probe_timeouts++;
  harp_path_stats_on_pto(&p->stats);
  harp_path_probe_on_pto(&p->probe, now);
  if (p->probe.pto_count == HARP_PATH_SILENT_PTOS) withhold_ect(s, p, now);
  uint32_t window = p->cc.window_bytes;
  if (p->probe.pto_count == 2) p->cc.ops->on_timeout(&p->cc);
  harp_path_account_window_cut(s, p, window, now);
  bool elsewhere = s->path_count > 1 && others_progress(s, p);
  bool long_silent = now - p->probe.silent_ns >= HARP_PATH_DOWN_NS || standby_is_needed(s, p);
  if (elsewhere && p->probe.pto_count >= HARP_PATH_DOUBTFUL_PTOS && long_silent) {
    harp_send_experiments_on_silence(s, p, now);
    harp_path_health_down(s, p, now);
    return;
  }
  probe_or_move_flight(s, p, elsewhere, now);
  if (s->path_count > 1 && !elsewhere) {
    harp_path_probing_on_pto(s, p);
    harp_path_pairs_on_silence(s, p, now);
  }
  harp_path_pairs_update(s, p, now);
  harp_send_stall_on_silence(s, now);
}

/* The next probe of a path that is not UP. */
static void path_probe_timer_expired(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  harp_path_flight_give_up(s, p, now);
  harp_path_probe_on_interval(&p->probe, now);
  if (p->probe.count == HARP_PATH_SILENT_PTOS) withhold_ect(s, p, now);
  harp_path_set_request_probe(s, p);
  if (p->probe.count >= HARP_PATH_DOUBTFUL_PTOS) harp_path_pairs_update(s, p, now);
  harp_path_pairs_on_silence(s, p, now);
  if (p->probe.count >= HARP_PATH_SILENT_PTOS) harp_send_stall_on_silence(s, now);
}

/* A path out of use has not answered for what is in flight on it. Nobody waits for that of datagrams; a tcp
 * path is watched again until it answers, or ends with its connection. */
static void dormant_path_timed_out(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  if (!p->is_tcp) {
    harp_path_flight_give_up(s, p, now);
    return;
  }
  harp_path_pairs_resume(s, p, now);
  path_timed_out(s, p, now);
}

static void path_timer_expired(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  bool carried = p->state == HARP_PATH_UP || p->state == HARP_PATH_DORMANT;
  if (carried && p->loss.deadline_ns <= now) {
    struct harp_loss_result r = {0};
    uint32_t inflight = p->inflight_bytes;
    harp_loss_detect(p, &r, s->trace, now);
    harp_path_account_event(s, p, &r, inflight, 0, now);
    harp_path_health_on_losses(s, p, now);
  }
  if (harp_path_timers_of(s, p) > now) return;
  if (p->state == HARP_PATH_DORMANT)
    dormant_path_timed_out(s, p, now);
  else if (p->state != HARP_PATH_UP)
    path_probe_timer_expired(s, p, now);
  else if (harp_path_owes(p))
    path_timed_out(s, p, now);
  else
    harp_path_set_request_probe(s, p);
}

void harp_path_health_on_timeout(struct harp_sender *s, harp_ns now) {
  if (harp_likely(s->timers.next_ns > now)) return;
  for (unsigned i = 0; i < s->path_count; i++) path_timer_expired(s, &s->paths[i], now);
  harp_path_timers_restart(s);
}
