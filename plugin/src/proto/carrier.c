/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/carrier.h"

#include "base/assert.h"

/* Counts are of the last few of these: older ones are stale. */
#define PERIOD_NS HARP_MS(100)
/* A queue that was seen before such a pause is not the same. */
#define PAUSE_NS HARP_MS(20)

void harp_carrier_init(struct harp_carrier *c, harp_ns now) {
  *c = (struct harp_carrier){
      .avoid_ns = HARP_CARRIER_AVOID_NS, .since_ns = now, .period_ns = now, .queue_ns = HARP_NEVER};
}

static void forget(struct harp_carrier *c, harp_ns now) {
  c->segments = c->retransmitted = 0;
  c->queue_ns = HARP_NEVER;
  c->period_ns = now;
}

void harp_carrier_restart(struct harp_carrier *c, harp_ns now) {
  c->known = (struct harp_carrier_sample){0};
  forget(c, now);
}

static bool is_lossy(const struct harp_carrier *c) {
  return c->retransmitted >= HARP_CARRIER_LOSS_MIN &&
         (uint64_t)c->retransmitted * HARP_CARRIER_LOSS_PARTS >= c->segments;
}

/* Whether round trips have been too long for a while. */
static bool is_queued(struct harp_carrier *c, const struct harp_carrier_sample *s, harp_ns now) {
  bool is_long = s->rtt_min_ns && s->rtt_ns > s->rtt_min_ns + HARP_CARRIER_QUEUE_NS;
  if (now - c->looked_ns > PAUSE_NS) c->queue_ns = HARP_NEVER;
  c->queue_ns = is_long ? HARP_MIN(c->queue_ns, now) : HARP_NEVER;
  c->looked_ns = now;
  return is_long && now - c->queue_ns >= HARP_CARRIER_QUEUE_FOR_NS;
}

static void avoid(struct harp_carrier *c, enum harp_carrier_why why, harp_ns now) {
  HARP_ASSERT(!c->avoided && c->avoid_ns);
  if (now - c->since_ns >= HARP_CARRIER_GOOD_NS) c->avoid_ns = HARP_CARRIER_AVOID_NS;
  c->avoided = true;
  c->why = why;
  c->until_ns = now + c->avoid_ns;
  c->avoid_ns = HARP_MIN(2 * c->avoid_ns, HARP_CARRIER_AVOID_MAX_NS);
}

bool harp_carrier_on_look(struct harp_carrier *c, const struct harp_carrier_sample *sample, harp_ns now) {
  int32_t more = (int32_t)(sample->segments - c->known.segments); /* less where it was worked out otherwise */
  uint32_t segments = more > 0 ? (uint32_t)more : 0;
  uint32_t retransmitted = sample->retransmitted - c->known.retransmitted;
  c->known = *sample;
  if (c->avoided) return false; /* what is still in flight brings no new information */
  if (now - c->period_ns >= PERIOD_NS) {
    c->segments /= 2, c->retransmitted /= 2;
    c->period_ns = now;
  }
  c->segments += segments;
  c->retransmitted += retransmitted;
  bool queued = segments && is_queued(c, sample, now), lossy = is_lossy(c);
  if (lossy || queued) avoid(c, lossy ? HARP_CARRIER_LOSS : HARP_CARRIER_QUEUE, now);
  return c->avoided;
}

bool harp_carrier_on_time(struct harp_carrier *c, harp_ns now) {
  if (!c->avoided || now < c->until_ns) return false;
  c->avoided = false;
  c->since_ns = now;
  forget(c, now);
  return true;
}
