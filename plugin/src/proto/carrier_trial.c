/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/carrier_trial.h"

enum { PERCENT_MAX = 10000 };

void harp_carrier_trial_init(struct harp_carrier_trial *t) {
  *t = (struct harp_carrier_trial){.slice_bytes = HARP_CARRIER_TRIAL_SLICE_BYTES};
}

static void note_loss(struct harp_carrier_trial *t) {
  t->wins = 0;
  t->losses = HARP_MIN(t->losses + 1, HARP_CARRIER_TRIAL_DOUBLINGS + 0u);
}

void harp_carrier_trial_give_up(struct harp_carrier_trial *t) {
  if (t->phase == HARP_CARRIER_IN_USE) return;
  if (harp_carrier_trial_takes_other(t)) note_loss(t);
  t->phase = HARP_CARRIER_IN_USE;
  t->now = (struct harp_carrier_slice){0};
}

/* How many slices go by until the next trial. */
static unsigned gap(const struct harp_carrier_trial *t) {
  return t->wins ? HARP_CARRIER_TRIAL_GAP_AGAIN : HARP_CARRIER_TRIAL_GAP << t->losses;
}

static bool has(const struct harp_carrier_slice *c, uint64_t bytes, harp_ns busy_ns) {
  return c->bytes >= bytes || c->busy_ns >= busy_ns;
}

/* Whether the phase has brought what it is for. Those of the other carrier may take twice as long. */
static bool is_over(const struct harp_carrier_trial *t) {
  const struct harp_carrier_slice *c = &t->now, *b = &t->before;
  switch (t->phase) {
  case HARP_CARRIER_IN_USE:
    return has(c, gap(t) * t->slice_bytes, gap(t) * HARP_CARRIER_TRIAL_SLICE_NS);
  case HARP_CARRIER_SETTLE:
  case HARP_CARRIER_RETURN:
    return has(c, 2 * b->bytes, 4 * b->busy_ns);
  case HARP_CARRIER_OTHER:
    return has(c, b->bytes, 2 * b->busy_ns);
  default:
    return has(c, t->slice_bytes, HARP_CARRIER_TRIAL_SLICE_NS);
  }
}

static uint32_t percent(uint64_t ns, uint64_t bytes, uint64_t of_ns, uint64_t of_bytes) {
  double in_use = (double)of_ns * (double)bytes, other = (double)ns * (double)of_bytes;
  if (in_use <= 0) return other > 0 ? PERCENT_MAX : 100;
  return (uint32_t)HARP_MIN(100 * other / in_use, (double)PERCENT_MAX);
}

static uint32_t time_percent(const struct harp_carrier_slice *other, const struct harp_carrier_slice *used) {
  return percent(other->busy_ns, other->bytes, used->busy_ns, used->bytes);
}

static uint32_t cpu_percent(const struct harp_carrier_slice *other, const struct harp_carrier_slice *used) {
  return percent(other->sender_ns, other->bytes, used->sender_ns, used->bytes);
}

static enum harp_carrier_verdict judge(const struct harp_carrier_trial *t) {
  if (t->time_percent <= 100 - HARP_CARRIER_TRIAL_GAIN_PERCENT) return HARP_CARRIER_QUICKER;
  if (t->time_percent <= HARP_CARRIER_TRIAL_SAME_PERCENT &&
      t->cpu_percent <= 100 - HARP_CARRIER_TRIAL_CPU_PERCENT)
    return HARP_CARRIER_CHEAPER;
  return HARP_CARRIER_KEPT;
}

/* Ends a trial. `used`: a slice of the carrier in use, beside that before the trial. */
static void conclude(struct harp_carrier_trial *t, const struct harp_carrier_slice *used) {
  t->time_percent = HARP_MAX(time_percent(&t->other, &t->before), time_percent(&t->other, used));
  t->cpu_percent = HARP_MAX(cpu_percent(&t->other, &t->before), cpu_percent(&t->other, used));
  t->verdict = judge(t);
  t->count++;
  if (t->verdict == HARP_CARRIER_KEPT) {
    note_loss(t);
  } else if (++t->wins == HARP_CARRIER_TRIAL_WINS) {
    t->datagrams = !t->datagrams;
    t->wins = t->losses = 0;
  }
  t->phase = HARP_CARRIER_IN_USE;
}

static bool is_slow(const struct harp_carrier_trial *t) {
  return t->now.bytes < t->before.bytes;
}

static void advance(struct harp_carrier_trial *t) {
  switch (t->phase++) {
  case HARP_CARRIER_BEFORE:
    t->before = t->now;
    break;
  case HARP_CARRIER_OTHER:
    t->other = t->now;
    if (is_slow(t)) conclude(t, &t->before);
    break;
  case HARP_CARRIER_AFTER:
    conclude(t, &t->now);
    break;
  default:
    break;
  }
  t->now = (struct harp_carrier_slice){0};
}

bool harp_carrier_trial_feed(struct harp_carrier_trial *t, const struct harp_carrier_slice *more) {
  t->now.bytes += more->bytes;
  t->now.busy_ns += more->busy_ns;
  t->now.sender_ns += more->sender_ns;
  if (!is_over(t)) return false;
  advance(t);
  return true;
}
