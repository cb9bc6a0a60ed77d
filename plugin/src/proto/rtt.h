/* SPDX-License-Identifier: Apache-2.0 */
/* Round-trip time of one path, from echoed time stamps, as RFC 6298 smooths it; integers only. */
#ifndef HARP_RTT_H
#define HARP_RTT_H

#include "base/base.h"

struct harp_rtt {
  harp_ns latest_ns, smoothed_ns, variation_ns;
  harp_ns min_ns;       /* lowest of the current and the previous window */
  harp_ns min_next_ns;  /* lowest since min_since_ns */
  harp_ns min_since_ns; /* start of the current window */
  /* One-way delays of acknowledgements and what the clocks differ by, in ticks; they wrap. Lowest of the same
   * times, and how much the last was above that: what waited on their way. */
  uint32_t back_min, back_min_next;
  harp_ns back_queue_ns;
};

/* The base RTT is the lowest of the current and the previous window. A window is longer than the period of
 * drains of the congestion control (cc_target.c) by so much, so that each holds a drain, and a longer route
 * is known within two. */
#define HARP_RTT_MIN_WINDOW_MORE_NS HARP_MS(2)
/* Assumed until the first sample. */
#define HARP_RTT_INITIAL_NS HARP_MS(5)

/* An RTT so many times as long as the latest is of the past: a host was stopped. The pace follows the
 * smoothed RTT, and samples become rare with it: smoothing alone would take seconds. */
enum { HARP_RTT_PAST_TIMES = 16 };

void harp_rtt_init(struct harp_rtt *r, harp_ns now);
/* Makes the next sample count as the first; the minimum stays. */
void harp_rtt_forget(struct harp_rtt *r);
/* Smooths the RTT. */
void harp_rtt_on_sample(struct harp_rtt *r, harp_ns sample_ns);
/* Takes a sample for the base RTT. `back_ticks` is when the acknowledgement arrived by our clock, less when
 * it was made by the peer's. `drain_every_ns` is the congestion control's period of drains. */
void harp_rtt_on_base(struct harp_rtt *r, harp_ns sample_ns, uint32_t back_ticks, harp_ns drain_every_ns,
                      harp_ns now);

/* Returns the sample of the last harp_rtt_on_base without what waited on the way of the acknowledgement. That
 * is the peer's word: it takes three quarters of what is above the base at most. Clocks that drift apart look
 * as a queue of less than 0.1 ms for each second. */
harp_ns harp_rtt_there_ns(const struct harp_rtt *r, harp_ns sample_ns);

static inline bool harp_rtt_known(const struct harp_rtt *r) {
  return r->latest_ns != 0;
}

#endif
