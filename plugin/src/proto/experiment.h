/* SPDX-License-Identifier: Apache-2.0 */
/* An experiment: the session does one thing differently for a moment, and what it moves before, with and
 * after is compared. One mechanism for all questions that only the network can answer. A pure function of
 * what was measured: no clock, no I/O.
 *
 * Owned by the experiments of a sender (send_experiment.c), which begin it, feed it, act on its phase and add
 * its verdict to the evidence of its question. Nothing else writes its fields.
 *
 * Rules:
 *  1. A slice is what was moved while something was under way. Pauses of the application do not count.
 *  2. BEFORE and AFTER measure a slice of what is in use, WITH measures one of what is tried. ADAPT and
 *     RETURN are not measured: windows and queues adapt in them.
 *  3. What is tried wins when it wins against the slice before and against the slice after. So a job or a
 *     neighbour that changes its pace is not taken for a difference. A carrier has to win against what the
 *     other one moved lately, too: a slice of TCP may be one of its silences.
 *  4. What is tried and does not win against the slice before has lost: RETURN and AFTER are left out. But
 *     while the network still teaches it something, it is tried again from ADAPT on, until that has cost
 *     patience_ns, or has lasted HARP_EXPERIMENT_LEARN_NS.
 *  5. ADAPT and WITH are bounded by the time that the slice before took, so that what does not get through
 *     costs a known time.
 *  6. ADAPT of the other carrier lasts until its flows are found, with a bound. What moves less than a
 *     quarter in it, and learns nothing, has lost at once.
 *  7. An experiment that is stopped proves nothing: it is neither won nor lost.
 *  8. Evidence makes a change after wins in a row that are worth four points: a clear win two, another one.
 *     For each two experiments that were lost since the last change one point more is needed, up to a
 *     bound. A lost one doubles the wait until the next one. Where flows have paid, half as many points
 *     make them pay again. */
#ifndef HARP_EXPERIMENT_H
#define HARP_EXPERIMENT_H

#include "proto/experiment_constants.h"

enum harp_question {
  HARP_QUESTION_FLOWS,   /* more flows between two interfaces */
  HARP_QUESTION_CARRIER, /* the other carrier of large messages */
  HARP_QUESTIONS,
};

enum harp_experiment_phase {
  HARP_EXPERIMENT_NONE, /* none is under way */
  HARP_EXPERIMENT_BEFORE,
  HARP_EXPERIMENT_ADAPT,
  HARP_EXPERIMENT_WITH,
  HARP_EXPERIMENT_RETURN,
  HARP_EXPERIMENT_AFTER,
};

enum harp_verdict {
  HARP_VERDICT_NONE,    /* no experiment has ended */
  HARP_VERDICT_LOST,    /* what is tried brings nothing */
  HARP_VERDICT_QUICKER, /* it moves more */
  HARP_VERDICT_CHEAPER, /* it moves as much, for less CPU of the sender */
};

/* The lesson that the carrier or flows under trial still learn from the network. */
enum harp_lesson {
  HARP_LESSON_NONE,  /* it moves what it can */
  HARP_LESSON_PATHS, /* its congestion control does not know yet whether loss is random, or TCP is silent */
  HARP_LESSON_FLOWS, /* more flows of it are searched for */
};

/* The bytes, time and CPU of a part of an experiment. */
struct harp_slice {
  uint64_t bytes;  /* the bytes that were acknowledged */
  harp_ns busy_ns; /* the time while something was under way */
  harp_ns cpu_ns;  /* the time that the sender's core took to send */
};

struct harp_experiment {
  enum harp_question question;
  enum harp_experiment_phase phase;

  /* what its beginner sets */
  unsigned hurry;           /* lengths and waits are divided by it: 1, but in tests */
  unsigned pair;            /* FLOWS: the pair of interfaces */
  unsigned from, to;        /* FLOWS: the flows in use, and the flows tried */
  harp_ns flows_ns;         /* FLOWS: the length of a slice */
  harp_ns adapt_ns;         /* FLOWS: the length of ADAPT */
  uint64_t full_bytes;      /* FLOWS: at so many bytes a second nothing is to be gained; 0: unknown */
  bool is_urgent;           /* CARRIER: TCP shows loss or a queue, or the other carrier has moved far more */
  harp_ns patience_ns;      /* CARRIER: the time that it may lose while the carrier learns of its paths */
  struct harp_slice lately; /* CARRIER: what the carrier in use has moved lately; no busy_ns: unknown */

  /* what it measures */
  struct harp_slice now;    /* the sums of the phase under way */
  struct harp_slice before; /* the slice of BEFORE */
  struct harp_slice with;   /* the slice of WITH */
  struct harp_slice tried;  /* the sums of ADAPT, WITH and RETURN */
  bool was_learning;        /* the network has taught the carrier something since ADAPT began */

  /* what the last one that ended has found */
  enum harp_verdict verdict;
  uint32_t time_percent; /* the time for a byte with what is tried, as a share of that with what is in use */
  uint32_t cpu_percent;  /* the same of the sender's CPU time */
  harp_ns cost_ns;       /* the time lost by trying */
};

/* Begins an experiment; the fields that are given when it begins are taken from `plan`. */
void harp_experiment_begin(struct harp_experiment *e, const struct harp_experiment *plan);

/* Ends one that is under way without a verdict. */
void harp_experiment_stop(struct harp_experiment *e);

/* Adds what was measured since the last call, and what is still to be learned. Returns whether the phase has
 * changed. When it has become NONE there is a verdict. */
bool harp_experiment_feed(struct harp_experiment *e, const struct harp_slice *more,
                          enum harp_lesson lesson) HARP_MUST_CHECK;

/* Returns whether the rate of the first of two slices is less than that of the second divided by `part`. */
static inline bool harp_slice_is_slower(const struct harp_slice *a, const struct harp_slice *b,
                                        unsigned part) {
  return (double)a->bytes * (double)b->busy_ns * part < (double)b->bytes * (double)a->busy_ns;
}

static inline bool harp_experiment_is_under_way(const struct harp_experiment *e) {
  return e->phase != HARP_EXPERIMENT_NONE;
}
/* Returns whether the session is to do what is tried. */
static inline bool harp_experiment_tries(const struct harp_experiment *e) {
  return e->phase == HARP_EXPERIMENT_ADAPT || e->phase == HARP_EXPERIMENT_WITH;
}
/* Returns whether the phase is measured. */
static inline bool harp_experiment_measures(const struct harp_experiment *e) {
  return e->phase == HARP_EXPERIMENT_BEFORE || e->phase == HARP_EXPERIMENT_WITH ||
         e->phase == HARP_EXPERIMENT_AFTER;
}

/* The evidence of the experiments of one question since the last change. */
struct harp_evidence {
  unsigned points; /* the points of the wins in a row */
  unsigned losses; /* the number of experiments that were lost; bounded */
  harp_ns next_ns; /* no experiment begins before this time */
  harp_ns cost_ns; /* the cost of the last experiment */
};

/* Adds the verdict of an experiment that has ended. Returns whether what was tried is to be in use from now
 * on. */
bool harp_evidence_add(struct harp_evidence *v, const struct harp_experiment *e, harp_ns now) HARP_MUST_CHECK;

#endif
