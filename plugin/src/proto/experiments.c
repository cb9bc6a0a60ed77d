/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/experiments.h"

#include "base/assert.h"

void harp_experiments_init(struct harp_experiments *x) {
  *x = (struct harp_experiments){.hurry = 1, .large_since_ns = HARP_NEVER};
}

/* Stops the trial, whose network is another one from now on. */
static void forget_carriers(struct harp_experiments *x) {
  harp_experiment_stop(&x->trial);
  x->large_since_ns = HARP_NEVER;
  x->lately = x->other = (struct harp_slice){0};
}

bool harp_experiments_on_pairs(struct harp_experiments *x, uint64_t pairs, uint64_t silent, bool has_choice) {
  bool ends_trial = (x->pairs | x->silent) != (pairs | silent), ends_search = ends_trial || x->pairs != pairs;
  bool stops = (ends_trial && harp_experiment_is_under_way(&x->trial)) ||
               (ends_search && harp_experiment_is_under_way(&x->search));
  x->has_choice = has_choice;
  x->pairs = pairs;
  x->silent = silent;
  if (ends_search) harp_experiment_stop(&x->search);
  if (ends_trial) forget_carriers(x);
  return stops;
}

bool harp_experiments_on_trouble(struct harp_experiments *x, harp_ns now) {
  if (!x->has_choice || harp_experiments_take_datagrams(x))
    return false; /* it is of what is still in flight */
  bool is_new = !x->trouble_ns || now - x->trouble_ns >= HARP_EXPERIMENTS_CALM_NS;
  x->trouble_ns = now;
  if (!is_new) return false;
  x->has_begun = true; /* the first trial need not wait for flows */
  x->carrier.next_ns = now;
  x->carrier.losses = 0;
  return true;
}

/* ---- search for flows ---- */

bool harp_experiments_allow_search(const struct harp_experiments *x, bool is_tcp) {
  if (harp_experiment_is_under_way(&x->search)) return false;
  if (!harp_experiment_is_under_way(&x->trial)) return true;
  return x->trial.phase == HARP_EXPERIMENT_ADAPT && is_tcp != harp_experiments_take_datagrams(x);
}

void harp_experiments_begin_search(struct harp_experiments *x, const struct harp_experiment *plan,
                                   harp_ns now) {
  harp_experiment_begin(&x->search, plan);
  x->search_busy = true;
  x->search_seen_ns = x->search_began_ns = now;
}

bool harp_experiments_feed_search(struct harp_experiments *x, uint32_t bytes, bool busy, harp_ns now) {
  struct harp_slice more = {.bytes = bytes, .busy_ns = x->search_busy ? now - x->search_seen_ns : 0};
  x->search_seen_ns = now;
  x->search_busy = busy;
  if (!harp_experiment_feed(&x->search, &more, HARP_LESSON_NONE)) return false;
  x->search_began_ns = now; /* the phase */
  return true;
}

/* ---- trials ---- */

/* Earns what trials may cost. */
static void earn_cost(struct harp_experiments *x, harp_ns busy_ns) {
  int64_t most = (int64_t)HARP_EXPERIMENTS_EARNED_MAX_S * (int64_t)HARP_SEC(1) * HARP_EXPERIMENTS_COST_PARTS;
  x->earned_ns = HARP_MIN(x->earned_ns + (int64_t)busy_ns, most);
}

/* More than is kept is never required. A win is followed up at once. */
static bool can_pay(const struct harp_experiments *x, unsigned times) {
  harp_ns cost_ns = HARP_MIN(times * x->carrier.cost_ns, HARP_SEC(HARP_EXPERIMENTS_EARNED_MAX_S));
  return x->carrier.points || x->earned_ns >= (int64_t)(cost_ns * HARP_EXPERIMENTS_COST_PARTS);
}

static bool is_urgent(const struct harp_experiments *x, harp_ns now) {
  return x->trouble_ns && now - x->trouble_ns < HARP_EXPERIMENTS_URGENT_NS;
}

/* Returns what may be lost by waiting until datagrams know their paths (rule 5), or TCP is silent no more
 * (rule 6). */
static harp_ns patience_ns(const struct harp_experiments *x, bool has_faded, harp_ns now) {
  if (x->datagrams) return has_faded ? HARP_EXPERIMENTS_PATIENCE_LOSSY_NS : 0;
  bool is_lossy = x->trouble_ns && now - x->trouble_ns < HARP_EXPERIMENTS_CALM_NS;
  return is_lossy ? HARP_EXPERIMENTS_PATIENCE_LOSSY_NS : HARP_EXPERIMENTS_PATIENCE_NS;
}

/* Adds to the mean of a carrier, which forgets a half of what is old. */
static void add_to_mean(const struct harp_experiments *x, struct harp_slice *mean,
                        const struct harp_slice *more) {
  mean->bytes += more->bytes;
  mean->busy_ns += more->busy_ns;
  if (mean->busy_ns * x->hurry < 2 * HARP_EXPERIMENTS_LATELY_NS) return;
  mean->bytes /= 2;
  mean->busy_ns /= 2;
}

static bool is_lately_known(const struct harp_experiments *x) {
  return x->lately.busy_ns * x->hurry >= HARP_EXPERIMENTS_LATELY_NS;
}

/* Returns whether the carrier in use moves far less than the other one has (rule 6). */
static bool has_faded(const struct harp_experiments *x, harp_ns now) {
  return now >= x->fade_next_ns && is_lately_known(x) &&
         harp_slice_is_slower(&x->lately, &x->other, HARP_EXPERIMENTS_FADED_PARTS);
}

/* Begins the trial that is due, if one is. */
static void begin_trial(struct harp_experiments *x, bool searches, harp_ns now) {
  if (!x->has_choice) return;
  bool faded = has_faded(x, now), urgent = faded || (!x->datagrams && is_urgent(x, now));
  if (harp_experiment_is_under_way(&x->search) || (searches && !urgent)) return;
  if (!faded && (now < x->carrier.next_ns || !can_pay(x, urgent ? 1 : 2))) return;
  struct harp_experiment plan = {.question = HARP_QUESTION_CARRIER,
                                 .is_urgent = urgent,
                                 .hurry = x->hurry,
                                 .patience_ns = patience_ns(x, faded, now) / x->hurry};
  if (is_lately_known(x)) plan.lately = x->lately;
  harp_experiment_begin(&x->trial, &plan);
  x->trial_began_ns = now;
  x->is_by_fade = faded;
}

/* Returns what it will cost to try again what was in use before the change that an experiment has made. */
static harp_ns cost_of_return(const struct harp_experiment *e) {
  if (e->time_percent >= 100) return 0;
  harp_ns slice_ns = e->with.busy_ns;
  if (e->time_percent * HARP_EXPERIMENT_HOPELESS_PARTS <= 100)
    return HARP_MAX(slice_ns, HARP_EXPERIMENT_HOPELESS_NS / e->hurry);
  return 3 * slice_ns * (100 - e->time_percent) / e->time_percent;
}

/* Acts on the verdict of a trial. */
static void end_trial(struct harp_experiments *x, harp_ns now) {
  const struct harp_experiment *e = &x->trial;
  struct harp_evidence *v = &x->carrier;
  struct harp_trial_report *r = &x->carrier_report;
  *r = (struct harp_trial_report){r->count + 1, e->verdict, e->time_percent, e->cpu_percent};
  x->earned_ns -= (int64_t)(e->cost_ns * HARP_EXPERIMENTS_COST_PARTS);
  add_to_mean(x, &x->other, &e->with);
  bool changes = harp_evidence_add(v, e, now);
  if (x->is_by_fade) x->fade_next_ns = v->next_ns;
  if (!changes) return;
  x->datagrams ^= true;
  x->other = x->lately;
  x->lately = (struct harp_slice){0};
  if (x->datagrams) x->fade_next_ns = now + HARP_EXPERIMENT_LEARN_NS / x->hurry;
  v->cost_ns = cost_of_return(e);
  v->next_ns = now + HARP_EXPERIMENTS_CHANGE_NS / x->hurry;
}

bool harp_experiments_feed_large(struct harp_experiments *x, uint32_t bytes, bool under_way,
                                 enum harp_lesson lesson, bool *ended, harp_ns now) {
  harp_ns since_ns = x->large_since_ns;
  x->large_since_ns = under_way ? now : HARP_NEVER;
  if (since_ns == HARP_NEVER || !(x->has_choice || x->silent)) return false;
  if (harp_unlikely(!x->has_begun)) {
    x->has_begun = true;
    x->carrier.next_ns = now + HARP_EXPERIMENTS_CARRIER_NS / x->hurry;
  }
  struct harp_slice more = {.bytes = bytes, .busy_ns = now - since_ns, .cpu_ns = x->cpu_ns};
  x->cpu_ns = 0;
  earn_cost(x, more.busy_ns);
  if (!harp_experiment_tries(&x->trial)) add_to_mean(x, &x->lately, &more);
  if (!harp_experiment_is_under_way(&x->trial)) {
    begin_trial(x, lesson == HARP_LESSON_FLOWS, now);
    return false;
  }
  if (!harp_experiment_feed(&x->trial, &more, lesson)) return false;
  *ended = !harp_experiment_is_under_way(&x->trial);
  if (*ended) end_trial(x, now);
  return true;
}
