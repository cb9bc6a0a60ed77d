/* SPDX-License-Identifier: Apache-2.0 */
/* The pace of one path: when its next superframe may leave.
 *
 * Owns and alone writes struct harp_path_pace, a part of struct harp_path. Called by path.c. Rules:
 *
 *   1. What is sent moves the time of the next superframe on by what it takes at the pace: 5/4 of the window
 *      per RTT, twice the window in slow start. So the window is the limit, not the pace.
 *   2. HARP_PACE_BURST_NS may be sent ahead of the pace.
 *   3. The kernel paces tcp paths. */
#ifndef HARP_PATH_PACE_H
#define HARP_PATH_PACE_H

#include "proto/cc.h"
#include "proto/rtt.h"

/* A superframe or two may leave at once; the pace holds over any longer time. */
#define HARP_PACE_BURST_NS HARP_US(20)

struct harp_path_pace {
  harp_ns next_ns; /* the next superframe leaves no earlier, less HARP_PACE_BURST_NS */
};

/* Returns whether the pace lets a superframe leave now. */
static inline bool harp_path_pace_is_open(const struct harp_path_pace *pace, harp_ns now) {
  return now + HARP_PACE_BURST_NS >= pace->next_ns;
}

/* Returns when the pace lets a superframe leave. */
static inline harp_ns harp_path_pace_open_ns(const struct harp_path_pace *pace, harp_ns now) {
  return HARP_MAX(now, pace->next_ns > HARP_PACE_BURST_NS ? pace->next_ns - HARP_PACE_BURST_NS : 0);
}

/* Returns what so many bytes take at the pace: 0 while the RTT is unknown. */
static inline harp_ns harp_path_pace_bytes_ns(const struct harp_rtt *rtt, const struct harp_cc *cc,
                                              uint64_t bytes) {
  if (!harp_rtt_known(rtt)) return 0;
  uint64_t per_rtt = (uint64_t)cc->window_bytes * (cc->slow_start ? 8 : 5) / 4;
  return bytes * rtt->smoothed_ns / per_rtt;
}

/* Notes that what takes so long at the pace is sent. */
static inline void harp_path_pace_on_sent(struct harp_path_pace *pace, harp_ns ns, harp_ns now) {
  pace->next_ns = HARP_MAX(pace->next_ns, now) + ns;
}

#endif
