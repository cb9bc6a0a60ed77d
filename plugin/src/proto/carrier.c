/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/carrier.h"

/* Counts are of the last few of these: what was long ago says nothing. */
#define PERIOD_NS HARP_MS(100)

void harp_carrier_init(struct harp_carrier *c, harp_ns now) {
  *c = (struct harp_carrier){.rest_ns = HARP_CARRIER_REST_NS, .since_ns = now, .period_ns = now};
}

static void forget(struct harp_carrier *c, harp_ns now) {
  c->segments = c->retransmitted = 0;
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

static void avoid(struct harp_carrier *c, harp_ns now) {
  if (now - c->since_ns >= HARP_CARRIER_GOOD_NS) c->rest_ns = HARP_CARRIER_REST_NS;
  c->avoided = true;
  c->until_ns = now + c->rest_ns;
  c->rest_ns = HARP_MIN(2 * c->rest_ns, HARP_CARRIER_REST_MAX_NS);
}

bool harp_carrier_on_look(struct harp_carrier *c, const struct harp_carrier_sample *sample, harp_ns now) {
  int32_t more = (int32_t)(sample->segments - c->known.segments); /* less where it was worked out otherwise */
  uint32_t segments = more > 0 ? (uint32_t)more : 0;
  uint32_t retransmitted = sample->retransmitted - c->known.retransmitted;
  c->known = *sample;
  if (c->avoided) return false; /* what is in flight yet says nothing new */
  if (now - c->period_ns >= PERIOD_NS) {
    c->segments /= 2, c->retransmitted /= 2;
    c->period_ns = now;
  }
  c->segments += segments;
  c->retransmitted += retransmitted;
  if (!is_lossy(c)) return false;
  avoid(c, now);
  return true;
}

bool harp_carrier_on_time(struct harp_carrier *c, harp_ns now) {
  if (!c->avoided || now < c->until_ns) return false;
  c->avoided = false;
  c->since_ns = now;
  forget(c, now);
  return true;
}
