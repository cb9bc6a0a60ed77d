/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rtt.h"

#include "wire/packet.h"

void harp_rtt_init(struct harp_rtt *r, harp_ns now) {
  *r = (struct harp_rtt){
      .smoothed_ns = HARP_RTT_INITIAL_NS,
      .variation_ns = HARP_RTT_INITIAL_NS / 2,
      .min_ns = HARP_NEVER,
      .min_next_ns = HARP_NEVER,
      .min_since_ns = now,
  };
}

void harp_rtt_forget(struct harp_rtt *r) {
  r->latest_ns = 0;
}

static uint32_t lower_ticks(uint32_t a, uint32_t b) {
  return (int32_t)(a - b) < 0 ? a : b;
}

void harp_rtt_on_sample(struct harp_rtt *r, harp_ns sample_ns) {
  if (!sample_ns) sample_ns = 1;
  if (!harp_rtt_is_known(r)) {
    r->smoothed_ns = sample_ns;
    r->variation_ns = sample_ns / 2;
  } else {
    harp_ns error = sample_ns > r->smoothed_ns ? sample_ns - r->smoothed_ns : r->smoothed_ns - sample_ns;
    r->variation_ns += error / 4 - r->variation_ns / 4;
    r->smoothed_ns += sample_ns / 8 - r->smoothed_ns / 8;
    r->smoothed_ns = HARP_MIN(r->smoothed_ns, HARP_RTT_PAST_TIMES * sample_ns);
    r->variation_ns = HARP_MIN(r->variation_ns, HARP_RTT_PAST_TIMES * sample_ns);
  }
  r->latest_ns = sample_ns;
}

void harp_rtt_on_base(struct harp_rtt *r, harp_ns sample_ns, uint32_t back_ticks, harp_ns drain_every_ns,
                      harp_ns now) {
  if (now - r->min_since_ns > drain_every_ns + HARP_RTT_MIN_INTERVAL_MORE_NS) {
    r->min_ns = r->min_next_ns;
    r->back_min = r->back_min_next;
    r->min_next_ns = HARP_NEVER;
    r->min_since_ns = now;
  }
  r->back_min_next = r->min_next_ns == HARP_NEVER ? back_ticks : lower_ticks(r->back_min_next, back_ticks);
  r->back_min = r->min_ns == HARP_NEVER ? back_ticks : lower_ticks(r->back_min, back_ticks);
  r->back_queue_ns = (harp_ns)(back_ticks - r->back_min) * HARP_TICK_NS;
  r->min_next_ns = HARP_MIN(r->min_next_ns, sample_ns);
  r->min_ns = HARP_MIN(r->min_ns, sample_ns);
}

harp_ns harp_rtt_there_ns(const struct harp_rtt *r, harp_ns sample_ns) {
  harp_ns above_ns = sample_ns - HARP_MIN(r->min_ns, sample_ns);
  return sample_ns - HARP_MIN(r->back_queue_ns, above_ns / 4 * 3);
}
