/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds the experiments of a session (experiments.h) and does what they say: which class of messages takes
 * which paths, and how many flows of a pair of ENIs are in use. Writes s->experiments, s->by_class, and the
 * flows of a pair. */
#include "proto/path_health.h"
#include "proto/send_parts.h"

/* ---- carriers ---- */

/* Returns the pairs of ENIs that have an eligible path, a bit each. */
static uint64_t eligible_pairs(const struct harp_sender *s) {
  uint64_t pairs = 0;
  HARP_EACH_BIT (i, s->eligible) pairs |= 1ull << s->paths[i].pair;
  return pairs;
}

/* Between two ENIs that have paths over both carriers, small messages go over datagrams, which cost less for
 * each message, and large ones over what experiments have found. Returns whether there are such. */
static bool divide_classes(struct harp_sender *s) {
  bool datagrams = harp_experiments_take_datagrams(&s->experiments), has_choice = false;
  s->by_class[HARP_TX_SMALL] = s->by_class[HARP_TX_LARGE] = s->eligible;
  HARP_EACH_BIT (i, s->eligible & s->tcp) {
    const struct harp_path *p = &s->paths[i];
    HARP_EACH_BIT (k, s->eligible & ~s->tcp) {
      const struct harp_path *q = &s->paths[k];
      if (q->local_eni != p->local_eni || q->remote_eni != p->remote_eni) continue;
      has_choice = true;
      s->by_class[HARP_TX_SMALL] &= ~(1ull << i);
      s->by_class[HARP_TX_LARGE] &= ~(1ull << (datagrams ? i : k));
    }
  }
  return has_choice;
}

void harp_sender_choose_carriers(struct harp_sender *s) {
  bool has_choice = divide_classes(s);
  struct harp_experiments *x = &s->experiments;
  if (!harp_experiments_on_pairs(x, eligible_pairs(s), has_choice)) return;
  (void)!harp_flows_on_phase(&s->flows[x->search.pair], &x->search); /* begin_search makes the rest dormant */
  (void)divide_classes(s);
}

void harp_sender_note_large(struct harp_sender *s, harp_ns now) {
  if (s->experiments.large_since_ns == HARP_NEVER && s->load.large) s->experiments.large_since_ns = now;
}

/* ---- reports ---- */

static void report_experiment(struct harp_sender *s, const struct harp_experiment *e, bool changed,
                              harp_ns now) {
  s->counters->experiments++;
  s->counters->experiment_changes += changed;
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_EXPERIMENT,
                                       .path = e->question == HARP_QUESTION_FLOWS ? (uint8_t)e->pair : 0,
                                       .number = e->question,
                                       .count = changed ? 0 : (uint8_t)e->verdict,
                                       .a = e->time_percent,
                                       .b = e->cpu_percent});
}

/* ---- flows ---- */

/* Has a pair use as many paths as the search says. */
static void apply_flows(struct harp_sender *s, harp_ns now) {
  const struct harp_experiment *e = &s->experiments.search;
  if (harp_flows_on_phase(&s->flows[e->pair], e)) harp_path_health_settle(s, e->pair, now);
}

static void end_search(struct harp_sender *s, harp_ns now) {
  const struct harp_experiment *e = &s->experiments.search;
  struct harp_flows *f = &s->flows[e->pair];
  bool changed = harp_flows_on_verdict(f, e, now);
  report_experiment(s, e, changed, now);
  if (changed) harp_path_health_settle(s, e->pair, now);
}

static bool is_pair_busy(const struct harp_sender *s, const struct harp_flows *f) {
  HARP_EACH_BIT (i, f->paths & s->eligible) {
    if (s->paths[i].inflight_bytes) return true;
  }
  return false;
}

/* Feeds the search for flows what was acknowledged on a path. */
static void measure_search(struct harp_sender *s, const struct harp_path *p, uint32_t acked_bytes,
                           harp_ns now) {
  struct harp_experiments *x = &s->experiments;
  if (harp_likely(!harp_experiment_is_under_way(&x->search)) || p->pair != x->search.pair) return;
  bool busy = is_pair_busy(s, &s->flows[p->pair]);
  if (!harp_experiments_feed_search(x, acked_bytes, busy, now)) return;
  if (!harp_experiment_is_under_way(&x->search)) end_search(s, now);
  apply_flows(s, now);
}

void harp_sender_on_round(struct harp_sender *s, const struct harp_path *p, bool held_back, harp_ns now) {
  struct harp_flows *f = &s->flows[p->pair];
  harp_flows_on_round(f, held_back);
  if (!harp_flows_want_more(f, now) || !harp_experiments_allow_search(&s->experiments, p->is_tcp)) return;
  harp_path_health_settle(s, p->pair, now); /* one that was stopped may have left more in use */
  struct harp_experiment plan = harp_flows_plan(f, p->pair, p->rtt.smoothed_ns, s->experiments.hurry);
  harp_experiments_begin_search(&s->experiments, &plan, now);
}

/* Whether flows of the pairs that large messages take now are being searched for, or are about to be. */
static bool is_searching(const struct harp_sender *s, harp_ns now) {
  if (harp_experiment_is_under_way(&s->experiments.search)) return true;
  HARP_EACH_BIT (i, s->by_class[HARP_TX_LARGE]) {
    if (harp_flows_want_more(&s->flows[s->paths[i].pair], now)) return true;
  }
  return false;
}

/* Ends a search that the end of a trial, or the want of traffic, has left behind. */
static void stop_search(struct harp_sender *s, harp_ns now) {
  if (!harp_experiment_is_under_way(&s->experiments.search)) return;
  harp_experiment_stop(&s->experiments.search);
  apply_flows(s, now);
}

/* ---- what is measured ---- */

static void measure_large(struct harp_sender *s, uint32_t acked_bytes, harp_ns now) {
  struct harp_experiments *x = &s->experiments;
  bool ended = false, was_datagrams = x->datagrams, was_reference = x->by_reference;
  bool tried = harp_experiment_tries(&x->trial);
  bool searches = x->large_since_ns != HARP_NEVER && is_searching(s, now);
  if (!harp_experiments_feed_large(x, acked_bytes, s->load.large, searches, &ended, now)) return;
  if (tried) stop_search(s, now);
  if (ended)
    report_experiment(s, &x->trial, was_datagrams != x->datagrams || was_reference != x->by_reference, now);
  (void)divide_classes(s);
}

void harp_sender_measure(struct harp_sender *s, const struct harp_path *p, uint32_t acked_bytes,
                         harp_ns now) {
  if (p) measure_search(s, p, acked_bytes, now);
  measure_large(s, acked_bytes, now);
}
