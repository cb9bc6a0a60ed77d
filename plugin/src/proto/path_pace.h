/* SPDX-License-Identifier: Apache-2.0 */
/* The pace of one path: when its next superframe may leave.
 *
 * Owns and alone writes struct harp_path_pace, a part of struct harp_path. Called by path.c. Rules:
 *
 *   1. What is sent moves the time of the next superframe on by what it takes at the pace: 17/16 of the
 *      window per RTT, twice the window in slow start, and exactly the window where it holds less than
 *      HARP_PACE_EXACT_PACKETS packets. So window and pace limit alike.
 *   2. A window of less than a packet takes HARP_CC_LEAST_NS for a packet at most. The smoothed RTT does not
 *      tell: after a few late acknowledgements it is a hundred times that by which the window was set.
 *   3. A superframe may leave half a burst early, HARP_PACE_EARLY_NS at most, since passes take time.
 *   4. Time in which the caller was late is made up, half a burst of it.
 *   5. The kernel paces tcp paths. */
#ifndef HARP_PATH_PACE_H
#define HARP_PATH_PACE_H

#include "proto/cc.h"
#include "proto/rtt.h"

#define HARP_PACE_EARLY_NS HARP_US(20)
enum { HARP_PACE_EXACT_PACKETS = 4 };

struct harp_path_pace {
  harp_ns next_ns;  /* the next superframe leaves early_ns before this time at the earliest */
  harp_ns early_ns; /* rule 3 */
};

/* Returns whether the pace lets a superframe leave now. */
static inline bool harp_path_pace_is_open(const struct harp_path_pace *pace, harp_ns now) {
  return now + pace->early_ns >= pace->next_ns;
}

/* Returns when the pace lets a superframe leave. */
static inline harp_ns harp_path_pace_open_ns(const struct harp_path_pace *pace, harp_ns now) {
  return HARP_MAX(now, pace->next_ns > pace->early_ns ? pace->next_ns - pace->early_ns : 0);
}

/* Takes over the window, which has changed; a byte takes `ns_per_byte_q16` ns, times 2^16, at its rate. */
static inline void harp_path_pace_update(struct harp_path_pace *pace, const struct harp_cc *cc,
                                         uint64_t ns_per_byte_q16) {
  pace->early_ns = HARP_MIN((harp_cc_burst_bytes(cc) * ns_per_byte_q16 >> 16) / 2, HARP_PACE_EARLY_NS);
}

/* Learns that so many bytes are sent. */
static inline void harp_path_pace_on_sent(struct harp_path_pace *pace, const struct harp_cc *cc,
                                          uint64_t ns_per_byte_q16, uint64_t bytes, harp_ns now) {
  bool is_exact = cc->window_bytes < HARP_PACE_EXACT_PACKETS * cc->packet_bytes;
  harp_ns took_ns = bytes * ns_per_byte_q16 >> 16;
  harp_ns late_ns = is_exact ? 0 : (harp_cc_burst_bytes(cc) * ns_per_byte_q16 >> 16) / 2;
  if (cc->slow_start)
    took_ns /= 2;
  else if (!is_exact)
    took_ns -= took_ns / 17;
  if (cc->window_bytes < cc->packet_bytes)
    took_ns = HARP_MIN(took_ns, bytes * HARP_CC_LEAST_NS / cc->packet_bytes);
  pace->next_ns = HARP_MAX(pace->next_ns, now - HARP_MIN(late_ns, now)) + took_ns;
}

#endif
