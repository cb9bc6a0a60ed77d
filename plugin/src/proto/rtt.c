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

static uint32_t lower(uint32_t a, uint32_t b) {
  return (int32_t)(a - b) < 0 ? a : b;
}

void harp_rtt_on_sample(struct harp_rtt *r, harp_ns sample_ns, uint32_t there_ticks, harp_ns now) {
  if (!sample_ns) sample_ns = 1;
  if (!harp_rtt_known(r)) {
    r->smoothed_ns = sample_ns;
    r->variation_ns = sample_ns / 2;
  } else {
    harp_ns error = sample_ns > r->smoothed_ns ? sample_ns - r->smoothed_ns : r->smoothed_ns - sample_ns;
    r->variation_ns += error / 4 - r->variation_ns / 4;
    r->smoothed_ns += sample_ns / 8 - r->smoothed_ns / 8;
  }
  r->latest_ns = sample_ns;
  if (now - r->min_since_ns > HARP_RTT_MIN_WINDOW_NS) {
    r->min_ns = r->min_next_ns;
    r->there_min = r->there_min_next;
    r->min_next_ns = HARP_NEVER;
    r->min_since_ns = now;
  }
  r->there_min_next = r->min_next_ns == HARP_NEVER ? there_ticks : lower(r->there_min_next, there_ticks);
  r->there_min = r->min_ns == HARP_NEVER ? there_ticks : lower(r->there_min, there_ticks);
  r->there_queue_ns = (harp_ns)(there_ticks - r->there_min) * HARP_TICK_NS;
  r->min_next_ns = HARP_MIN(r->min_next_ns, sample_ns);
  r->min_ns = HARP_MIN(r->min_ns, sample_ns);
}
