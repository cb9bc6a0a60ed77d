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
};

/* The base RTT is the lowest of the current and the previous window of so long: each holds a drain of the
 * congestion control (cc_target.c), and a longer route is known within two. */
#define HARP_RTT_MIN_WINDOW_NS HARP_MS(130)
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
/* Takes a sample for the base RTT. */
void harp_rtt_on_base(struct harp_rtt *r, harp_ns sample_ns, harp_ns now);

static inline bool harp_rtt_known(const struct harp_rtt *r) {
  return r->latest_ns != 0;
}

#endif
