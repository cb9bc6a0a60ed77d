/* SPDX-License-Identifier: Apache-2.0 */
/* Round-trip time of one path, from echoed time stamps, as RFC 6298 smooths it; integers only. */
#ifndef HARP_RTT_H
#define HARP_RTT_H

#include "base/base.h"

struct harp_rtt {
  harp_ns latest_ns, smoothed_ns, variation_ns;
  harp_ns min_ns;       /* lowest of the current and the previous HARP_RTT_MIN_WINDOW_NS */
  harp_ns min_next_ns;  /* lowest since min_since_ns */
  harp_ns min_since_ns; /* start of the current window */
  /* One-way delays of packets and what the clocks differ by, in ticks; they wrap. Lowest of the same times,
   * and how much the last was above that: what waited on the way of the packets. */
  uint32_t there_min, there_min_next;
  harp_ns there_queue_ns;
};

/* The base RTT is the lowest of the current and the previous window of so long: each holds a drain of the
 * congestion control (cc_target.c), and a longer route is known within two. */
#define HARP_RTT_MIN_WINDOW_NS HARP_MS(130)
/* Assumed until the first sample. */
#define HARP_RTT_INITIAL_NS HARP_MS(5)

void harp_rtt_init(struct harp_rtt *r, harp_ns now);
/* Makes the next sample count as the first; the minimum stays. */
void harp_rtt_forget(struct harp_rtt *r);
/* `there_ticks` is when the packet arrived by the peer's clock, less when it was sent by ours. */
void harp_rtt_on_sample(struct harp_rtt *r, harp_ns sample_ns, uint32_t there_ticks, harp_ns now);

/* Returns the last sample without what waited on the way of the acknowledgement. Clocks that drift apart make
 * it longer, by less than 0.1 ms a second, and no longer than the sample. */
static inline harp_ns harp_rtt_there_ns(const struct harp_rtt *r) {
  return HARP_MIN(r->latest_ns, r->min_ns + r->there_queue_ns);
}

static inline bool harp_rtt_known(const struct harp_rtt *r) {
  return r->latest_ns != 0;
}

#endif
