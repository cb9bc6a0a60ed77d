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
 *  2. BEFORE and AFTER measure a slice of what is in use, WITH measures one of what is tried. SETTLE and
 *     RETURN are not measured: windows and queues adapt in them.
 *  3. What is tried wins when it wins against the slice before and against the slice after. So a job or a
 *     neighbour that changes its pace is not taken for a difference. A carrier has to win against what the
 *     other one moved lately, too: a slice of TCP may be one of its silences.
 *  4. What is tried and does not win against the slice before has lost: RETURN and AFTER are left out. But
 *     while the network still teaches it something, it is tried again from SETTLE on, until that has cost
 *     patience_ns, or has lasted HARP_EXPERIMENT_LEARN_NS.
 *  5. SETTLE and WITH are bounded by the time that the slice before took, so that what does not get through
 *     costs a known time.
 *  6. SETTLE of the other carrier lasts until its flows are found, with a bound. What moves less than a
 *     quarter in it, and learns nothing, has lost at once.
 *  7. An experiment that is stopped proves nothing: it is neither won nor lost.
 *  8. Evidence makes a change after wins in a row that are worth four points: a clear win two, another one.
 *     For each two experiments that were lost since the last change one point more is needed, up to a
 *     bound. A lost one doubles the wait until the next one. Where flows have paid, half as many points
 *     make them pay again. */
#ifndef HARP_EXPERIMENT_H
#define HARP_EXPERIMENT_H

#include "base/base.h"

enum harp_question {
  HARP_QUESTION_FLOWS,   /* more flows between two interfaces */
  HARP_QUESTION_CARRIER, /* the other carrier of large messages */
  HARP_QUESTIONS,
};

enum harp_experiment_phase {
  HARP_EXPERIMENT_NONE, /* none is under way */
  HARP_EXPERIMENT_BEFORE,
  HARP_EXPERIMENT_SETTLE,
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

/* What the network still teaches that what is tried needs to know. */
enum harp_lesson {
  HARP_LESSON_NONE,  /* it moves what it can */
  HARP_LESSON_PATHS, /* its congestion control does not know yet whether loss is random, or TCP is silent */
  HARP_LESSON_FLOWS, /* more flows of it are searched for */
};

/* What a part of an experiment took. */
struct harp_slice {
  uint64_t bytes;  /* acknowledged */
  harp_ns busy_ns; /* while something was under way */
  harp_ns cpu_ns;  /* of the sender's core, to send */
};

/* Length of a slice. FLOWS: this and four round trips at least; and while it holds fewer bytes than
 * HARP_EXPERIMENT_FLOWS_BYTES, of which single messages and pauses of the hosts are too large a part, up to
 * HARP_EXPERIMENT_FLOWS_TIMES as long. */
#define HARP_EXPERIMENT_FLOWS_NS HARP_MS(8)
#define HARP_EXPERIMENT_SLICE_NS HARP_MS(50) /* CARRIER, if fewer bytes have come through by then */
enum {
  HARP_EXPERIMENT_FLOWS_ROUNDS = 4,
  HARP_EXPERIMENT_FLOWS_SETTLE_ROUNDS = 64, /* of SETTLE, without a queue: a window doubles in 45, */
  HARP_EXPERIMENT_FLOWS_FEW_ROUNDS = 128,   /* and one of few packets in 100 */
  HARP_EXPERIMENT_FLOWS_FEW_PACKETS = 32,   /* a window of fewer, which two flows share in SETTLE */
  HARP_EXPERIMENT_FLOWS_BYTES = 4 << 20,
  HARP_EXPERIMENT_FLOWS_TIMES = 4,
  HARP_EXPERIMENT_SLICE_BYTES = 8 << 20,
  HARP_EXPERIMENT_SETTLE_MAX = 128,   /* slices of SETTLE while flows are searched for, at most */
  HARP_EXPERIMENT_HOPELESS_PARTS = 4, /* what moves less than one part of them is given no more time */
};
#define HARP_EXPERIMENT_HOPELESS_NS HARP_MS(20) /* but so much at least: windows open within it */
#define HARP_EXPERIMENT_LEARN_NS    HARP_SEC(3) /* of SETTLE and WITH together, at most, to learn of paths */

/* What a win is. */
enum {
  HARP_EXPERIMENT_FLOWS_PERCENT = 25, /* FLOWS: of what the flows would bring if each were capped, at least */
  HARP_EXPERIMENT_FLOWS_LEAST = 12,   /* FLOWS: percent more of the rate, at least */
  HARP_EXPERIMENT_FLOWS_CLEAR = 75,   /* FLOWS: percent of what capped flows would bring: a clear win */
  HARP_EXPERIMENT_GAIN_PERCENT = 5,   /* CARRIER: less time for a byte */
  HARP_EXPERIMENT_CARRIER_CLEAR = 50, /* CARRIER: of the time: a clear win; if it is urgent one is enough */
  HARP_EXPERIMENT_SAME_PERCENT = 103, /* of the time: as much, within what is measured */
  HARP_EXPERIMENT_CARRIER_CPU = 75,   /* CARRIER: at most so much of the CPU, for as much time */
};

struct harp_experiment {
  enum harp_question question;
  enum harp_experiment_phase phase;
  /* given when it begins */
  unsigned pair;            /* FLOWS: of interfaces */
  unsigned from, to;        /* FLOWS: in use, and tried */
  harp_ns flows_ns;         /* FLOWS: length of a slice, */
  harp_ns settle_ns;        /* and of SETTLE */
  bool is_urgent;           /* CARRIER: TCP shows loss or a queue, or the other carrier has moved far more */
  unsigned hurry;           /* lengths and waits are divided by it: 1, but in tests */
  uint64_t full_bytes;      /* FLOWS: bytes a second at which nothing is to be gained; 0: unknown */
  harp_ns patience_ns;      /* CARRIER: what may be lost by waiting until it has learned of its paths */
  struct harp_slice lately; /* CARRIER: what the one in use has moved; no busy_ns: unknown */
  /* measured; `tried` is of SETTLE, WITH and RETURN */
  struct harp_slice now, before, with, tried;
  bool was_learning; /* since SETTLE began */
  /* of the last one that ended */
  enum harp_verdict verdict;
  uint32_t time_percent,
      cpu_percent; /* for a byte, with what is tried: of what it takes with what is in use */
  harp_ns cost_ns; /* lost by trying */
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
  return e->phase == HARP_EXPERIMENT_SETTLE || e->phase == HARP_EXPERIMENT_WITH;
}
/* Returns whether the phase is measured. */
static inline bool harp_experiment_measures(const struct harp_experiment *e) {
  return e->phase == HARP_EXPERIMENT_BEFORE || e->phase == HARP_EXPERIMENT_WITH ||
         e->phase == HARP_EXPERIMENT_AFTER;
}

/* What the experiments of one question have shown since the last change. */
struct harp_evidence {
  unsigned points; /* of wins in a row */
  unsigned losses; /* bounded */
  harp_ns next_ns; /* no experiment before */
  harp_ns cost_ns; /* of the last experiment */
};

/* Adds the verdict of an experiment that has ended. Returns whether what was tried is to be in use from now
 * on. */
bool harp_evidence_add(struct harp_evidence *v, const struct harp_experiment *e, harp_ns now) HARP_MUST_CHECK;

#endif
