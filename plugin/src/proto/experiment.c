/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/experiment.h"

#include "base/assert.h"

enum {
  PERCENT_MAX = 10000,
  POINTS = 4, /* the points that a change needs */
  CLEAR_POINTS = 2,
  LOSSES_PER_POINT = 2, /* lost experiments that make one point more necessary */
};

/* The rules that differ between the questions. */
static const struct rule {
  unsigned adapt;      /* slices of ADAPT and of RETURN */
  unsigned doubts_max; /* points that losses add to what is needed, at most */
  unsigned head_start; /* points that a change leaves for the next one */
  harp_ns again_ns;    /* wait after a win */
  harp_ns wait_ns;     /* after a loss; each further one doubles it */
  unsigned doublings;  /* at most */
} rules[HARP_QUESTIONS] = {
    [HARP_QUESTION_FLOWS] = {1, 4, 2, 0, HARP_MS(100), 8},
    [HARP_QUESTION_CARRIER] = {2, 2, 0, HARP_MS(20), HARP_SEC(2), 2},
};

void harp_experiment_begin(struct harp_experiment *e, const struct harp_experiment *plan) {
  HARP_ASSERT(!harp_experiment_is_under_way(e) && plan->question < HARP_QUESTIONS && plan->hurry);
  HARP_ASSERT(plan->question != HARP_QUESTION_FLOWS || (plan->from && plan->to > plan->from));
  struct harp_experiment begun = *plan;
  begun.phase = HARP_EXPERIMENT_BEFORE;
  begun.now = begun.before = begun.with = begun.tried = (struct harp_slice){0};
  begun.was_learning = false;
  begun.verdict = HARP_VERDICT_NONE;
  begun.time_percent = begun.cpu_percent = 0;
  begun.cost_ns = 0;
  *e = begun;
}

void harp_experiment_stop(struct harp_experiment *e) {
  e->phase = HARP_EXPERIMENT_NONE;
}

static void add_slice(struct harp_slice *sum, const struct harp_slice *more) {
  sum->bytes += more->bytes;
  sum->busy_ns += more->busy_ns;
  sum->cpu_ns += more->cpu_ns;
}

static bool slice_has(const struct harp_slice *s, uint64_t bytes, harp_ns busy_ns) {
  return s->bytes >= bytes || s->busy_ns >= busy_ns;
}

/* Returns whether what is tried is so slow that it needs no slice of its own (rule 6). */
static bool is_hopeless(const struct harp_experiment *e) {
  const struct harp_slice *now = &e->now, *before = &e->before;
  harp_ns least_ns = HARP_MAX(before->busy_ns, HARP_EXPERIMENT_HOPELESS_NS / e->hurry);
  return e->phase == HARP_EXPERIMENT_ADAPT && !e->was_learning && now->busy_ns >= least_ns &&
         harp_slice_is_slower(now, before, HARP_EXPERIMENT_HOPELESS_PARTS);
}

/* Returns whether the phase has lasted as long as rules 2, 5 and 6 want. */
static bool phase_is_over(const struct harp_experiment *e, enum harp_lesson lesson) {
  const struct harp_slice *now = &e->now, *before = &e->before;
  unsigned adapt = rules[e->question].adapt, most = HARP_EXPERIMENT_ADAPT_MAX;
  if (e->question == HARP_QUESTION_FLOWS) {
    harp_ns least_ns = e->phase == HARP_EXPERIMENT_ADAPT ? e->adapt_ns : e->flows_ns;
    return now->busy_ns >= least_ns && slice_has(now, HARP_EXPERIMENT_FLOWS_BYTES / e->hurry,
                                                 HARP_EXPERIMENT_FLOWS_TIMES * e->flows_ns / e->hurry);
  }
  switch (e->phase) {
  case HARP_EXPERIMENT_ADAPT:
    if (lesson == HARP_LESSON_FLOWS && !slice_has(now, most * before->bytes, most * before->busy_ns))
      return false;
    return slice_has(now, adapt * before->bytes, 2 * adapt * before->busy_ns) || is_hopeless(e);
  case HARP_EXPERIMENT_RETURN:
    return slice_has(now, adapt * before->bytes, 2 * adapt * before->busy_ns);
  case HARP_EXPERIMENT_WITH:
    return slice_has(now, before->bytes, 2 * before->busy_ns);
  default:
    return slice_has(now, HARP_EXPERIMENT_SLICE_BYTES / e->hurry, HARP_EXPERIMENT_SLICE_NS / e->hurry);
  }
}

static uint32_t percent_of(uint64_t ns, uint64_t bytes, uint64_t of_ns, uint64_t of_bytes) {
  double in_use = (double)of_ns * (double)bytes, tried = (double)ns * (double)of_bytes;
  if (in_use <= 0) return tried > 0 ? PERCENT_MAX : 100;
  return (uint32_t)HARP_MIN(100 * tried / in_use, (double)PERCENT_MAX);
}

/* Returns the percentage of the time for a byte that flows take which bring so much of what as many capped
 * ones would. */
static uint32_t flows_percent(const struct harp_experiment *e, uint32_t percent) {
  uint32_t capped = 100 * (e->to - e->from) / e->from;
  uint32_t gain = HARP_MAX(capped * percent / 100, HARP_EXPERIMENT_FLOWS_LEAST + 0u);
  return 100 * 100 / (100 + gain);
}

static enum harp_verdict verdict_of(const struct harp_experiment *e) {
  uint32_t quick = e->question == HARP_QUESTION_FLOWS ? flows_percent(e, HARP_EXPERIMENT_FLOWS_PERCENT)
                                                      : 100 - HARP_EXPERIMENT_GAIN_PERCENT;
  uint32_t cpu = e->question == HARP_QUESTION_CARRIER ? HARP_EXPERIMENT_CARRIER_CPU : 0;
  if (e->time_percent <= quick) return HARP_VERDICT_QUICKER;
  if (e->time_percent <= HARP_EXPERIMENT_SAME_PERCENT && cpu && e->cpu_percent <= cpu)
    return HARP_VERDICT_CHEAPER;
  return HARP_VERDICT_LOST;
}

/* Compares what was tried with a slice of what is in use; the worse comparison counts (rule 3). */
static void compare_with(struct harp_experiment *e, const struct harp_slice *used) {
  uint32_t time = percent_of(e->with.busy_ns, e->with.bytes, used->busy_ns, used->bytes);
  uint32_t cpu = percent_of(e->with.cpu_ns, e->with.bytes, used->cpu_ns, used->bytes);
  e->time_percent = HARP_MAX(e->time_percent, time);
  e->cpu_percent = HARP_MAX(e->cpu_percent, cpu);
  e->verdict = verdict_of(e);
}

/* Compares it with what the carrier in use moved lately, of which the CPU is not known. */
static void compare_with_lately(struct harp_experiment *e) {
  const struct harp_slice *used = &e->lately;
  if (!used->busy_ns) return;
  uint32_t time = percent_of(e->with.busy_ns, e->with.bytes, used->busy_ns, used->bytes);
  e->time_percent = HARP_MAX(e->time_percent, time);
  e->verdict = verdict_of(e);
}

/* Returns the time that what was moved meanwhile took longer than before. */
static harp_ns cost_of(const struct harp_experiment *e) {
  double usual_ns =
      (double)e->before.busy_ns * (double)e->tried.bytes / (double)HARP_MAX(e->before.bytes, 1u);
  return (double)e->tried.busy_ns > usual_ns ? e->tried.busy_ns - (harp_ns)usual_ns : 0;
}

static void end_experiment(struct harp_experiment *e) {
  e->cost_ns = cost_of(e);
  e->phase = HARP_EXPERIMENT_NONE;
}

/* Returns whether what has not won may still win when it has learned more (rule 4). */
static bool may_learn(const struct harp_experiment *e) {
  return e->phase == HARP_EXPERIMENT_RETURN && e->was_learning && cost_of(e) < e->patience_ns &&
         e->tried.busy_ns < HARP_EXPERIMENT_LEARN_NS / e->hurry;
}

/* Forgets the comparison and tries once more. */
static void try_again(struct harp_experiment *e) {
  e->phase = HARP_EXPERIMENT_ADAPT;
  e->was_learning = false;
  e->verdict = HARP_VERDICT_NONE;
  e->time_percent = e->cpu_percent = 0;
}

/* Returns whether the network carries what the interface can: more flows cannot bring anything. */
static bool is_full(const struct harp_experiment *e) {
  return e->full_bytes &&
         e->before.bytes * HARP_MS(1) / HARP_MAX(e->before.busy_ns / 1000, 1u) >= e->full_bytes;
}

static void advance_phase(struct harp_experiment *e) {
  bool hopeless = is_hopeless(e);
  enum harp_experiment_phase ended = e->phase++;
  if (ended == HARP_EXPERIMENT_BEFORE) {
    e->before = e->now;
    if (is_full(e)) e->verdict = HARP_VERDICT_LOST;
  } else if (ended == HARP_EXPERIMENT_WITH || hopeless) {
    e->with = e->now;
    compare_with(e, &e->before);
    compare_with_lately(e);
  } else if (ended == HARP_EXPERIMENT_AFTER) {
    compare_with(e, &e->now);
    end_experiment(e);
  }
  if (e->verdict == HARP_VERDICT_LOST) { /* rule 4 */
    if (may_learn(e))
      try_again(e);
    else
      end_experiment(e);
  }
  e->now = (struct harp_slice){0};
}

bool harp_experiment_feed(struct harp_experiment *e, const struct harp_slice *more, enum harp_lesson lesson) {
  HARP_ASSERT(harp_experiment_is_under_way(e));
  add_slice(&e->now, more);
  if (harp_experiment_tries(e) || e->phase == HARP_EXPERIMENT_RETURN) add_slice(&e->tried, more);
  e->was_learning |= lesson == HARP_LESSON_PATHS && harp_experiment_tries(e);
  if (!phase_is_over(e, lesson)) return false;
  advance_phase(e);
  return true;
}

/* Doubles the wait until the next experiment. */
static void count_loss(struct harp_evidence *v, const struct harp_experiment *e, harp_ns now) {
  const struct rule *r = &rules[e->question];
  v->next_ns = now + (r->wait_ns << HARP_MIN(v->losses, r->doublings)) / e->hurry;
  v->points = 0;
  v->losses = HARP_MIN(v->losses + 1, r->doublings);
}

static bool is_clear(const struct harp_experiment *e) {
  uint32_t clear = e->question == HARP_QUESTION_FLOWS ? flows_percent(e, HARP_EXPERIMENT_FLOWS_CLEAR)
                                                      : HARP_EXPERIMENT_CARRIER_CLEAR;
  return e->verdict == HARP_VERDICT_QUICKER && e->time_percent <= clear;
}

bool harp_evidence_add(struct harp_evidence *v, const struct harp_experiment *e, harp_ns now) {
  const struct rule *r = &rules[e->question];
  HARP_ASSERT(!harp_experiment_is_under_way(e) && e->verdict != HARP_VERDICT_NONE);
  v->cost_ns = e->cost_ns;
  if (e->verdict == HARP_VERDICT_LOST) {
    count_loss(v, e, now);
    return false;
  }
  bool clear = is_clear(e);
  v->points += clear ? CLEAR_POINTS : 1;
  v->next_ns = now + r->again_ns / e->hurry;
  unsigned needed = POINTS + HARP_MIN(v->losses / LOSSES_PER_POINT, r->doubts_max);
  if (v->points < needed && !(clear && e->is_urgent)) return false;
  v->points = r->head_start;
  v->losses = 0;
  return true;
}
