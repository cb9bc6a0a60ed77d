/* SPDX-License-Identifier: Apache-2.0 */
/* The experiments of a session: which one is due, and what those that have ended have changed. A pure
 * function of what was measured and of the time: no clock, no I/O.
 *
 * Part of a sender; send_experiment.c feeds it and does what it says. Nothing else writes its fields.
 *
 * Rules:
 *  1. One experiment measures at a time. A trial of the other carrier and a search for flows exclude each
 *     other, but that the search for flows of the carrier that is tried takes place while it adapts.
 *  2. A trial and a search end without a verdict when the set of pairs of interfaces, with their
 *     carriers, that may carry data has changed. Another state of a path that leaves the set as it is
 *     ends nothing. Nor does TCP that is silent between interfaces where datagrams are not end a trial:
 *     datagrams carry its messages meanwhile, and that is part of what taking TCP brings.
 *  3. Signs of loss or of a queue in TCP, and its silence, decide nothing. The first ones after
 *     HARP_EXPERIMENTS_CALM_NS without make a trial of datagrams due at once, and while they last one clear
 *     win is enough.
 *  4. Trials may cost one part in HARP_EXPERIMENTS_COST_PARTS of the time with large messages under way: one
 *     begins when as much time as the last one cost has been earned, twice as much where nothing is urgent.
 *     One that follows a win need not wait.
 *  5. A trial of datagrams is given time to learn whether loss is random, which drains of the congestion
 *     control show (cc_target.c): the time of two of them, and of what it takes with the smallest windows
 *     while TCP shows loss, so that much is to be gained.
 *  6. What the carrier in use has moved lately is known, and what the other one moved when it was in use or
 *     tried last. Where the former is less than one part in HARP_EXPERIMENTS_FADED_PARTS of the latter, as on
 *     hosts whose cores other work takes from now on, a trial is due at once, whatever the last one cost, and
 *     one clear win is enough. One of TCP is given time for a silence then. When it has lost, the next one
 *     by this rule waits as any other, and datagrams that were chosen just now are given the time to learn.
 */
#ifndef HARP_EXPERIMENTS_H
#define HARP_EXPERIMENTS_H

#include "proto/flows.h"

/* The report of a session's trials, for statistics and the log. */
struct harp_trial_report {
  unsigned count; /* the number of trials that have ended */
  enum harp_verdict verdict;
  uint32_t time_percent, cpu_percent;
};

struct harp_experiments {
  unsigned hurry;  /* experiments and waits are so many times shorter: 1, but in tests */
  bool has_choice; /* large messages have a choice between carriers */
  bool datagrams;  /* large messages take datagrams outside of a trial; else TCP */
  uint64_t pairs;  /* the pairs that may carry data, a bit each */
  uint64_t silent; /* the pairs of TCP that are silent where datagrams are not, a bit each */

  /* the search for flows */
  struct harp_experiment search;
  harp_ns search_began_ns; /* the time when its phase began */
  harp_ns search_seen_ns;  /* the time up to which it has been fed */
  bool search_busy;        /* something of its pair is in flight */

  /* the trial of the other carrier */
  struct harp_experiment trial;
  struct harp_evidence carrier; /* what trials have shown since the last change */
  struct harp_trial_report carrier_report;
  harp_ns trial_began_ns; /* the time when the last trial began */
  int64_t earned_ns;      /* the time that trials may cost now, times HARP_EXPERIMENTS_COST_PARTS (rule 4) */
  harp_ns trouble_ns;     /* the time of the last sign that TCP loses or queues; 0: none yet (rule 3) */
  struct harp_slice lately; /* the mean of the carrier in use, without what trials try (rule 6) */
  struct harp_slice other;  /* the mean of the other carrier; no busy_ns: unknown (rule 6) */
  bool is_by_fade;          /* rule 6 began the trial under way */
  harp_ns fade_next_ns;     /* rule 6 begins no trial before this time */

  /* the time with large messages under way */
  bool has_begun;         /* large messages have been under way */
  harp_ns large_since_ns; /* the time up to which it has been counted; HARP_NEVER: none is under way */
  harp_ns cpu_ns;         /* the time that the caller took to send since then */
};

void harp_experiments_init(struct harp_experiments *x);

/* Takes which pairs may carry data, which besides are silent by rule 2, and whether large messages have a
 * choice of carriers between some now. Returns whether that has stopped an experiment. */
bool harp_experiments_on_pairs(struct harp_experiments *x, uint64_t pairs, uint64_t silent, bool has_choice);

/* Learns that TCP shows loss or a queue, or is silent. Returns whether that is news (rule 3). */
bool harp_experiments_on_trouble(struct harp_experiments *x, harp_ns now);

/* Returns whether large messages are to take datagrams now. */
static inline bool harp_experiments_take_datagrams(const struct harp_experiments *x) {
  return x->datagrams != harp_experiment_tries(&x->trial);
}

/* Returns whether TCP is tried, and is to be given time for a silence. */
static inline bool harp_experiments_wait_for_tcp(const struct harp_experiments *x) {
  return harp_experiment_tries(&x->trial) && x->datagrams && x->trial.patience_ns;
}

/* Returns whether the time that the caller takes to send is of interest. */
static inline bool harp_experiments_measure_cpu(const struct harp_experiments *x) {
  return harp_experiment_measures(&x->trial);
}

/* Adds that time. */
static inline void harp_experiments_on_cpu_time(struct harp_experiments *x, harp_ns ns) {
  x->cpu_ns += ns;
}

/* Returns whether a search for flows of a pair over this carrier may begin. */
bool harp_experiments_allow_search(const struct harp_experiments *x, bool is_tcp);

/* Begins one. */
void harp_experiments_begin_search(struct harp_experiments *x, const struct harp_experiment *plan,
                                   harp_ns now);

/* Learns that something is sent on the pair of a search. */
static inline void harp_experiments_on_sent(struct harp_experiments *x, unsigned pair, harp_ns now) {
  if (!harp_experiment_is_under_way(&x->search) || x->search.pair != pair || x->search_busy) return;
  x->search_busy = true;
  x->search_seen_ns = now;
}

/* Returns whether a search has got no traffic for so long that it is to be stopped. */
static inline bool harp_experiments_search_is_stale(const struct harp_experiments *x, harp_ns now) {
  return harp_experiment_is_under_way(&x->search) && now - x->search_began_ns >= HARP_EXPERIMENTS_STALE_NS;
}

/* Counts bytes that were acknowledged on the pair of the search; `busy`: something is still in flight.
 * Returns whether the phase has changed. */
bool harp_experiments_feed_search(struct harp_experiments *x, uint32_t bytes, bool busy,
                                  harp_ns now) HARP_MUST_CHECK;

/* Adds the time with large messages under way, what was acknowledged in it, and what the carrier in use still
 * has to learn; FLOWS also where a search is about to begin. Returns whether large messages may have to do
 * something else from now on. `*ended` is set when a trial has ended with a verdict. */
bool harp_experiments_feed_large(struct harp_experiments *x, uint32_t bytes, bool under_way,
                                 enum harp_lesson lesson, bool *ended, harp_ns now) HARP_MUST_CHECK;

#endif
