/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_experiment.h"

#include "proto/send.h"

static void report_experiment(struct harp_sender *s, const struct harp_experiment *e, bool changed,
                              harp_ns now) {
  s->counters->experiments++;
  s->counters->experiment_changes += changed;
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_EXPERIMENT,
                                       .number = e->question,
                                       .count = changed ? 0 : (uint8_t)e->verdict,
                                       .a = e->time_percent,
                                       .b = e->cpu_percent});
}

/* ---- search for flows ---- */

/* Returns how long the windows of twice as many flows take to grow; 0: they are fixed. */
static harp_ns growth_ns(const struct harp_path *p, harp_ns round_ns) {
  if (p->is_tcp) return 0;
  bool is_few = p->cc.window_bytes < HARP_EXPERIMENT_FLOWS_FEW_PACKETS * p->cc.packet_bytes;
  return HARP_MIN(p->rtt.min_ns, round_ns) *
         (is_few ? HARP_EXPERIMENT_FLOWS_FEW_ROUNDS : HARP_EXPERIMENT_FLOWS_ADAPT_ROUNDS);
}

void harp_send_experiments_on_round(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  const struct harp_flows *f = &s->pairs.flows[p->pair];
  if (!harp_flows_want_more(f, now) || !harp_experiments_allow_search(&s->experiments, p->is_tcp)) return;
  harp_path_pairs_update(s, p, now); /* a search that was stopped may have left more in use */
  harp_ns round_ns = harp_path_pairs_round_ns(s, p->pair);
  struct harp_experiment plan =
      harp_flows_plan(f, p->pair, round_ns, growth_ns(p, round_ns), s->experiments.hurry);
  harp_experiments_begin_search(&s->experiments, &plan, now);
}

static bool is_pair_busy(const struct harp_sender *s, unsigned pair) {
  HARP_EACH_BIT (i, s->pairs.flows[pair].paths & s->set.eligible) {
    if (s->paths[i].inflight_bytes) return true;
  }
  return false;
}

static void feed_search(struct harp_sender *s, const struct harp_path *p, uint32_t acked_bytes, harp_ns now) {
  struct harp_experiments *x = &s->experiments;
  if (harp_likely(!harp_experiment_is_under_way(&x->search)) || p->pair != x->search.pair) return;
  if (p->state == HARP_PATH_DORMANT)
    acked_bytes = 0; /* a flow that was tried, and is in use no more, brought them */
  if (!harp_experiments_feed_search(x, acked_bytes, is_pair_busy(s, p->pair), now)) return;
  if (harp_experiment_is_under_way(&x->search))
    harp_path_pairs_on_search(s, &x->search, now);
  else
    report_experiment(s, &x->search, harp_path_pairs_on_verdict(s, &x->search, now), now);
}

/* Returns whether flows of the pairs that large messages take now are being searched for, or are about to be.
 */
static bool is_searching(const struct harp_sender *s, harp_ns now) {
  if (harp_experiment_is_under_way(&s->experiments.search)) return true;
  HARP_EACH_BIT (i, s->carriers.by_class[HARP_TX_LARGE]) {
    if (harp_flows_want_more(&s->pairs.flows[s->paths[i].pair], now)) return true;
  }
  return false;
}

/* Returns whether TCP is silent between interfaces where datagrams are not, or has not answered in time. */
static bool is_tcp_late(const struct harp_sender *s) {
  if (s->experiments.silent) return true;
  HARP_EACH_BIT (i, s->carriers.by_class[HARP_TX_LARGE]) {
    if (s->paths[i].is_tcp && s->paths[i].probe.pto_count) return true;
  }
  return false;
}

/* Returns what the carrier that large messages take now still has to learn. */
static enum harp_lesson lesson_of(const struct harp_sender *s, harp_ns now) {
  if (is_searching(s, now)) return HARP_LESSON_FLOWS;
  if (!harp_experiment_tries(&s->experiments.trial)) return HARP_LESSON_NONE;
  if (harp_experiments_wait_for_tcp(&s->experiments) && is_tcp_late(s)) return HARP_LESSON_PATHS;
  HARP_EACH_BIT (i, s->carriers.by_class[HARP_TX_LARGE]) {
    if (harp_cc_is_learning(&s->paths[i].cc, s->experiments.trial_began_ns)) return HARP_LESSON_PATHS;
  }
  return HARP_LESSON_NONE;
}

/* Stops a search that gets no traffic, or whose carrier is tried no more. */
static void stop_search(struct harp_sender *s, harp_ns now) {
  struct harp_experiment *search = &s->experiments.search;
  if (!harp_experiment_is_under_way(search)) return;
  harp_experiment_stop(search);
  harp_path_pairs_on_search(s, search, now);
}

/* ---- trials ---- */

void harp_send_experiments_on_posted(struct harp_sender *s, harp_ns now) {
  if (s->experiments.large_since_ns == HARP_NEVER && s->load.large) s->experiments.large_since_ns = now;
}

void harp_send_experiments_on_closed(struct harp_sender *s) {
  if (!s->load.large) s->experiments.large_since_ns = HARP_NEVER;
}

static void feed_trial(struct harp_sender *s, uint32_t acked_bytes, harp_ns now) {
  struct harp_experiments *x = &s->experiments;
  bool had_tried = harp_experiment_tries(&x->trial), ended = false;
  bool datagrams = x->datagrams;
  enum harp_lesson lesson = x->large_since_ns != HARP_NEVER ? lesson_of(s, now) : HARP_LESSON_NONE;
  if (!harp_experiments_feed_large(x, acked_bytes, s->load.large, lesson, &ended, now)) return;
  if (had_tried) stop_search(s, now);
  if (ended) report_experiment(s, &x->trial, datagrams != x->datagrams, now);
  (void)harp_send_carriers_choose(s);
}

/* Returns whether a path of datagrams between the same ENIs has answered since the tcp path fell silent. */
static bool datagrams_answer(const struct harp_sender *s, const struct harp_path *p) {
  HARP_EACH_BIT (i, s->set.eligible) {
    const struct harp_path *q = &s->paths[i];
    bool is_beside = !q->is_tcp && q->local_eni == p->local_eni && q->remote_eni == p->remote_eni;
    if (is_beside && !harp_path_is_silent(q) && q->loss.any_acked &&
        q->loss.rack_sent_ns > p->probe.silent_ns)
      return true;
  }
  return false;
}

void harp_send_experiments_on_silence(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  if (p->is_tcp && datagrams_answer(s, p)) (void)harp_experiments_on_trouble(&s->experiments, now);
}

void harp_send_experiments_on_acked(struct harp_sender *s, const struct harp_path *p, uint32_t acked_bytes,
                                    harp_ns now) {
  feed_search(s, p, acked_bytes, now);
  feed_trial(s, acked_bytes, now);
}

void harp_send_experiments_on_time(struct harp_sender *s, harp_ns now) {
  if (harp_unlikely(harp_experiment_tries(&s->experiments.trial))) feed_trial(s, 0, now);
  if (harp_unlikely(harp_experiments_search_is_stale(&s->experiments, now))) stop_search(s, now);
}
