/* SPDX-License-Identifier: Apache-2.0 */
/* The experiments of a session: which one is due, and what those that have ended have changed. A pure
 * function of what was measured and of the time: no clock, no I/O.
 *
 * Part of a sender; send_experiment.c feeds it and does what it says. Nothing else writes its fields.
 *
 * Rules:
 *  1. One experiment measures at a time. A trial of the other carrier and a search for flows exclude each
 *     other, but that the search for flows of the carrier that is tried takes place while it settles.
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

/* From the first large message to the first trial: flows are searched for before. */
#define HARP_EXPERIMENTS_CARRIER_NS HARP_MS(300)
/* From a change to the next trial. */
#define HARP_EXPERIMENTS_CHANGE_NS HARP_SEC(2)
/* Signs of trouble this long after the last ones are new. */
#define HARP_EXPERIMENTS_CALM_NS HARP_SEC(10)
/* A trial that begins so soon after a sign of trouble is urgent. */
#define HARP_EXPERIMENTS_URGENT_NS HARP_MS(200)
/* What a trial may lose by waiting until datagrams have learned: the time of two drains; and where TCP shows
 * loss that of drains in which windows of one packet or two carry enough to tell a loss of 1 % from none. */
#define HARP_EXPERIMENTS_PATIENCE_NS       HARP_MS(300)
#define HARP_EXPERIMENTS_PATIENCE_LOSSY_NS HARP_SEC(2)
/* The mean of what a carrier moves is known when it holds so much time, and holds twice as much at most: TCP
 * waits for 200 ms and more where it has lost the end of its flight. */
#define HARP_EXPERIMENTS_LATELY_NS HARP_MS(500)
/* A search whose phase lasts so long gets too little traffic: it is stopped, for what else is to be found. */
#define HARP_EXPERIMENTS_STALE_NS HARP_SEC(10)
enum {
  HARP_EXPERIMENTS_COST_PARTS = 100,
  HARP_EXPERIMENTS_FADED_PARTS = 2,
  HARP_EXPERIMENTS_EARNED_MAX_S = 1, /* seconds of cost that are kept for later */
};

struct harp_experiments {
  unsigned hurry;                /* experiments and waits are so many times shorter: 1, but in tests */
  bool datagrams;                /* large messages take them, outside of a trial; else TCP */
  bool has_choice;               /* large messages have the choice between carriers */
  uint64_t pairs;                /* that may carry data, a bit each, */
  uint64_t silent;               /* and those of TCP that are silent where datagrams are not */
  struct harp_experiment search; /* for flows */
  struct harp_experiment trial;  /* of the carrier */
  struct harp_evidence carrier;
  int64_t earned_ns;        /* times HARP_EXPERIMENTS_COST_PARTS: what trials may cost now */
  harp_ns trial_began_ns;   /* the last one of the carrier */
  struct harp_slice lately; /* mean of the carrier in use, outside of what trials try */
  struct harp_slice other;  /* of the other one, in use or tried; no busy_ns: unknown */
  bool is_by_fade;          /* the trial is, by rule 6 */
  harp_ns fade_next_ns;     /* none by rule 6 before */
  harp_ns trouble_ns;       /* of the last sign that TCP loses or queues; 0: none yet */
  harp_ns search_began_ns;  /* its phase */
  bool search_busy;         /* something of the pair is in flight */
  harp_ns search_seen_ns;   /* up to when its time is counted */
  bool has_begun;           /* large messages have been under way */
  harp_ns large_since_ns;   /* they are, and counted up to then; HARP_NEVER: none are */
  harp_ns cpu_ns;           /* what the caller took to send, since then */
  /* for statistics and the log: the last trial */
  struct harp_trial_report {
    unsigned count; /* that have ended */
    enum harp_verdict verdict;
    uint32_t time_percent, cpu_percent;
  } carrier_report;
};

void harp_experiments_init(struct harp_experiments *x);

/* Takes which pairs may carry data, which besides are silent by rule 2, and whether large messages have a
 * choice of carriers between some now. Returns whether that has stopped an experiment. */
bool harp_experiments_on_pairs(struct harp_experiments *x, uint64_t pairs, uint64_t silent, bool has_choice);

/* Notes that TCP shows loss or a queue, or is silent. Returns whether that is news (rule 3). */
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

/* Notes that something is sent on the pair of a search. */
static inline void harp_experiments_on_sent(struct harp_experiments *x, unsigned pair, harp_ns now) {
  if (!harp_experiment_is_under_way(&x->search) || x->search.pair != pair || x->search_busy) return;
  x->search_busy = true;
  x->search_seen_ns = now;
}

/* Returns whether a search has got no traffic for so long that it is to be stopped. */
static inline bool harp_experiments_search_is_stale(const struct harp_experiments *x, harp_ns now) {
  return harp_experiment_is_under_way(&x->search) && now - x->search_began_ns >= HARP_EXPERIMENTS_STALE_NS;
}

/* Notes bytes that were acknowledged on the pair of the search; `busy`: something is still in flight. Returns
 * whether the phase has changed. */
bool harp_experiments_feed_search(struct harp_experiments *x, uint32_t bytes, bool busy,
                                  harp_ns now) HARP_MUST_CHECK;

/* Adds the time with large messages under way, what was acknowledged in it, and what the carrier in use still
 * has to learn; FLOWS also where a search is about to begin. Returns whether large messages may have to do
 * something else from now on. `*ended` is set when a trial has ended with a verdict. */
bool harp_experiments_feed_large(struct harp_experiments *x, uint32_t bytes, bool under_way,
                                 enum harp_lesson lesson, bool *ended, harp_ns now) HARP_MUST_CHECK;

#endif
