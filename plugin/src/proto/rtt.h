/* SPDX-License-Identifier: Apache-2.0 */
/* The round-trip time of one path, from echoed time stamps; integers only.
 *
 * Owns and alone writes struct harp_rtt, a part of struct harp_path. Called by send.c. Rules:
 *
 *   1. RTT and variation are smoothed as in RFC 6298.
 *   2. An RTT that is HARP_RTT_PAST_TIMES as long as the latest is of the past: a host was stopped. The pace
 *      follows the smoothed RTT, and samples become rare with it: smoothing alone would take seconds.
 *   3. The base RTT is the lowest of the current and the previous interval. An interval lasts
 *      HARP_RTT_MIN_INTERVAL_MORE_NS longer than the period of drains (cc_target.c), so that each holds a
 *      drain, and a longer route is known within two intervals.
 *   4. One-way delays of acknowledgements show how much of a sample their own way's queue has added. */
#ifndef HARP_RTT_H
#define HARP_RTT_H

#include "base/base.h"

struct harp_rtt {
  harp_ns latest_ns, smoothed_ns, variation_ns;
  harp_ns min_ns;       /* the base RTT: the lowest RTT of the current and the previous interval (rule 3) */
  harp_ns min_next_ns;  /* the lowest RTT of the current interval */
  harp_ns min_since_ns; /* the start of the current interval */
  /* The lowest one-way delays of acknowledgements of the same intervals, in ticks, with the difference of the
   * clocks, modulo 2^32. */
  uint32_t back_min, back_min_next;
  harp_ns back_queue_ns; /* the last delay above the lowest: the queue on the acknowledgements' way */
};

/* An interval of the base RTT lasts longer than a period of drains by this (rule 3). */
#define HARP_RTT_MIN_INTERVAL_MORE_NS HARP_MS(2)
/* The RTT that is assumed until the first sample. */
#define HARP_RTT_INITIAL_NS HARP_MS(5)

/* A smoothed RTT is at most so many times as long as the latest (rule 2). */
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

static inline bool harp_rtt_is_known(const struct harp_rtt *r) {
  return r->latest_ns != 0;
}

#endif
