/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base_loss.h"

#include <string.h>

#include "base/assert.h"

/* Constant                value           effect, and reason. The values are our own, set by the model
 * networks of docs/reference/networks.md. */
#define PRESUME_WAIT_NS     HARP_SEC(10) /* the first wait after drains contradict a presumption; it doubles */
#define PRESUME_WAIT_MAX_NS HARP_SEC(640) /* the longest wait */
#define PRESUME_FOR_NS      HARP_MS(600)  /* a presumption ends that no drain has confirmed for so long; */
#define TRIAL_FOR_NS        HARP_MS(2500) /* the same of a trial with two packets or more, whose drains are slow */
enum {
  KNOWN_Q16 = 328,           /* 0.5 %: a smaller loss counts as none, */
  KEPT_Q16 = 164,            /* 0.25 %: but once known it is kept down to this, since the estimate is rough */
  FEW_MAX_Q16 = 2621,        /* 4 %: a larger loss of few packets is congestion (rule 4) */
  STARVED_MAX_Q16 = 39322,   /* 60 %: the most that is presumed of a starved window (rule 3) */
  INTERVAL_PACKETS = 1024,   /* the most packets of an interval of drains */
  INTERVAL_MIN_PACKETS = 32, /* the least, unless it confirms a presumption by twice INTERVAL_LOST */
  INTERVAL_LOST = 3,         /* an interval ends when so many were lost, or twice as many should have been */
  QUIET_LOST = 8,            /* an interval outside of drains ends when so many packets were lost */
  QUIET_PACKETS = 8,         /* congestion loses less than KNOWN_Q16 of a window of so many */
  TRIAL_LOST = 16,           /* a trial is judged by its own loss after so many lost packets: */
  TRIAL_TIMES = 2,           /* it is congestion if it loses so many times what was presumed */
  PART_TIMES = 2,   /* a part of drains is the least if it loses less than the whole by this factor, */
  PART_LOST = 4,    /* and by so many packets beside (least_part_q16) */
  PART_MEMORY = 16, /* the intervals that the parts remember */
};

static void forget_drains(struct harp_base_loss *b) {
  memset(b->drained, 0, sizeof b->drained);
  b->interval = (struct harp_loss_count){0};
}

void harp_base_loss_restart(struct harp_base_loss *b) {
  b->is_presumed = harp_base_loss_is_known(b);
  b->presumed_ns = 0;
  b->presume_wait_ns = HARP_MAX(b->presume_wait_ns, PRESUME_WAIT_NS);
  b->is_starved = b->is_trial = false;
  b->starved = b->quiet = b->few = (struct harp_loss_count){0};
  forget_drains(b);
}

static void set_share(struct harp_base_loss *b, uint32_t share_q16) {
  b->share_q16 = share_q16;
  b->is_known = share_q16 >= (b->is_known ? KEPT_Q16 : KNOWN_Q16);
}

bool harp_base_loss_is_known(const struct harp_base_loss *b) {
  return b->is_known;
}

bool harp_base_loss_is_believed(const struct harp_base_loss *b) {
  return harp_base_loss_is_known(b) && !b->is_trial;
}

static void add_to_count(struct harp_loss_count *c, uint32_t acked_bytes, uint32_t lost_bytes) {
  c->bytes += acked_bytes + lost_bytes;
  c->lost_bytes += lost_bytes;
}

static uint32_t share_q16_of(uint64_t lost_bytes, uint64_t bytes) {
  return lost_bytes >= bytes ? 1u << 16 : (uint32_t)((lost_bytes << 16) / bytes);
}

/* Returns whether an interval has ended: enough was lost to know how much, or less than expected. */
static bool is_over(const struct harp_base_loss *b, const struct harp_loss_count *c, uint32_t packet_bytes) {
  uint32_t packets = c->bytes / packet_bytes, lost = c->lost_bytes / packet_bytes;
  uint64_t expected_q16 = (uint64_t)packets * b->share_q16;
  if (b->is_presumed && lost >= 2 * INTERVAL_LOST) return true;
  if (packets < INTERVAL_MIN_PACKETS) return false;
  return packets >= INTERVAL_PACKETS || lost >= INTERVAL_LOST || expected_q16 >= 2 * INTERVAL_LOST << 16;
}

static bool begin_presumption(struct harp_base_loss *b, struct harp_loss_count *c, harp_ns now) {
  set_share(b, share_q16_of(c->lost_bytes, c->bytes));
  *c = (struct harp_loss_count){0};
  if (!harp_base_loss_is_known(b)) return false;
  forget_drains(b);
  b->is_presumed = true;
  b->presumed_ns = now;
  return true;
}

static void postpone_presumptions(struct harp_base_loss *b, harp_ns now) {
  b->is_presumed = b->is_trial = false;
  b->few = (struct harp_loss_count){0};
  b->presume_from_ns = now + b->presume_wait_ns;
  b->presume_wait_ns = HARP_MIN(2 * b->presume_wait_ns, PRESUME_WAIT_MAX_NS);
}

void harp_base_loss_on_drained(struct harp_base_loss *b, unsigned part, uint32_t acked_bytes,
                               uint32_t lost_bytes) {
  HARP_ASSERT(part < HARP_BASE_LOSS_PARTS);
  add_to_count(&b->interval, acked_bytes, lost_bytes);
  add_to_count(&b->drained[part], acked_bytes, lost_bytes);
}

/* Returns the loss of the part of the drains that lost least, if it is less than that of all by more than
 * chance (PART_TIMES of its own loss and PART_LOST packets, beyond two standard deviations): other flows then
 * did not drain at the same time, and in this part most of them did. 1: all parts are alike. */
static uint32_t least_part_q16(const struct harp_base_loss *b, uint32_t packet_bytes) {
  struct harp_loss_count all = {0};
  for (unsigned i = 0; i < HARP_BASE_LOSS_PARTS; i++)
    add_to_count(&all, b->drained[i].bytes - b->drained[i].lost_bytes, b->drained[i].lost_bytes);
  uint32_t least_q16 = 1u << 16, all_q16 = share_q16_of(all.lost_bytes, all.bytes + 1ull);
  for (unsigned i = 0; i < HARP_BASE_LOSS_PARTS; i++) {
    uint64_t lost_bytes = b->drained[i].lost_bytes, bytes = b->drained[i].bytes + 1ull;
    if (share_q16_of(lost_bytes * PART_TIMES + (uint64_t)PART_LOST * packet_bytes, bytes) < all_q16)
      least_q16 = HARP_MIN(least_q16, share_q16_of(lost_bytes, bytes));
  }
  return least_q16;
}

/* Begins the next interval; the parts remember PART_MEMORY of them. */
static void end_interval(struct harp_base_loss *b) {
  b->interval = (struct harp_loss_count){0};
  for (unsigned i = 0; i < HARP_BASE_LOSS_PARTS; i++) {
    b->drained[i].bytes -= b->drained[i].bytes / PART_MEMORY;
    b->drained[i].lost_bytes -= b->drained[i].lost_bytes / PART_MEMORY;
  }
}

bool harp_base_loss_judge_drains(struct harp_base_loss *b, uint32_t packet_bytes, harp_ns now) {
  if (!is_over(b, &b->interval, packet_bytes)) return false;
  uint32_t was_q16 = b->share_q16, least_q16 = least_part_q16(b, packet_bytes);
  uint32_t share_q16 = share_q16_of(b->interval.lost_bytes, b->interval.bytes);
  bool is_uneven = least_q16 < share_q16;
  share_q16 = HARP_MIN(share_q16, least_q16);
  end_interval(b);
  if (share_q16 < KEPT_Q16) b->clean_ns = now;
  if (b->is_presumed || is_uneven) {
    if (share_q16 < was_q16 / 4) postpone_presumptions(b, now);
    b->is_presumed = b->is_trial = false;
    set_share(b, share_q16);
    return true;
  }
  set_share(b, (was_q16 + share_q16) / 2);
  return true;
}

/* Returns whether enough was settled outside of drains to know its loss. */
static bool is_known_enough(const struct harp_loss_count *c, uint32_t packet_bytes) {
  return c->bytes >= INTERVAL_PACKETS * packet_bytes || c->lost_bytes >= QUIET_LOST * packet_bytes;
}

/* A trial: see rule 4. */
static bool presume_of_few(struct harp_base_loss *b, harp_ns now) {
  bool is_little = share_q16_of(b->few.lost_bytes, b->few.bytes) <= FEW_MAX_Q16;
  b->is_trial = is_little && begin_presumption(b, &b->few, now);
  b->few = (struct harp_loss_count){0};
  return b->is_trial;
}

/* Ends a presumption that turned out wrong. */
static void give_up(struct harp_base_loss *b, harp_ns now) {
  postpone_presumptions(b, now);
  set_share(b, 0);
}

/* Ends a trial whose larger window loses more, which it does not where the loss is random. */
static void watch_trial(struct harp_base_loss *b, const struct harp_base_loss_sample *s) {
  add_to_count(&b->few, s->acked_bytes, s->lost_bytes);
  if (b->few.lost_bytes < TRIAL_LOST * s->packet_bytes) return;
  bool is_more = share_q16_of(b->few.lost_bytes, b->few.bytes) > TRIAL_TIMES * b->share_q16;
  b->few = (struct harp_loss_count){0};
  if (is_more) give_up(b, s->now);
}

bool harp_base_loss_on_settled(struct harp_base_loss *b, const struct harp_base_loss_sample *s) {
  uint64_t packet_q8 = (uint64_t)s->packet_bytes << 8;
  if (s->window_q8 >= 2 * packet_q8 || (s->lost_bytes && !s->is_lossy_alone)) b->is_starved = false;
  if (!b->presumed_ns) b->presumed_ns = s->now; /* after a restart */
  if (b->is_trial) watch_trial(b, s);
  harp_ns presume_for_ns = b->is_trial && s->window_q8 >= 2 * packet_q8 ? TRIAL_FOR_NS : PRESUME_FOR_NS;
  if (b->is_presumed && s->now - b->presumed_ns > presume_for_ns) give_up(b, s->now);
  if (harp_base_loss_is_known(b) || s->now < b->presume_from_ns) return false;
  if (s->is_below_ceiling && s->window_q8 >= QUIET_PACKETS * packet_q8) {
    add_to_count(&b->quiet, s->acked_bytes, s->lost_bytes);
    if (is_known_enough(&b->quiet, s->packet_bytes)) return begin_presumption(b, &b->quiet, s->now);
  }
  if (s->is_cut_by_loss && s->window_q8 < QUIET_PACKETS * packet_q8) {
    add_to_count(&b->few, s->acked_bytes, s->lost_bytes);
    if (is_known_enough(&b->few, s->packet_bytes)) return presume_of_few(b, s->now);
  }
  if (!b->is_starved) return false;
  add_to_count(&b->starved, s->acked_bytes, s->lost_bytes);
  if (s->window_q8 >= packet_q8 / 2 || b->starved.lost_bytes < INTERVAL_LOST * s->packet_bytes) return false;
  if (!begin_presumption(b, &b->starved, s->now)) return false;
  set_share(b, HARP_MIN(2 * b->share_q16, STARVED_MAX_Q16 + 0u)); /* few packets give a rough value */
  return true;
}

void harp_base_loss_on_drain_end(struct harp_base_loss *b) {
  b->is_starved = true;
  b->starved = (struct harp_loss_count){0};
}

void harp_base_loss_on_queue(struct harp_base_loss *b) {
  b->is_starved = false;
}
