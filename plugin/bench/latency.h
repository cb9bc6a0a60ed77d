/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of times with bounded memory: exact minimum, maximum and mean, percentiles to within 1/128. */
#ifndef HARP_BENCH_LATENCY_H
#define HARP_BENCH_LATENCY_H

#include "base/base.h"

enum { HARP_LATENCY_SUB_BITS = 7, HARP_LATENCY_OCTAVES = 40 };
enum { HARP_LATENCY_BUCKETS = HARP_LATENCY_OCTAVES << HARP_LATENCY_SUB_BITS };

struct harp_latency {
  uint64_t count;
  harp_ns min_ns, max_ns, sum_ns;
  uint32_t buckets[HARP_LATENCY_BUCKETS]; /* linear below 2^SUB_BITS ns, then 2^SUB_BITS per octave */
};

void harp_latency_init(struct harp_latency *latency);
void harp_latency_add(struct harp_latency *latency, harp_ns ns);

/* Adds all of `from` to `latency`. */
void harp_latency_merge(struct harp_latency *latency, const struct harp_latency *from);

/* Returns the time that `share` (0 to 1) of the samples do not exceed; 0 when there are none. */
harp_ns harp_latency_percentile(const struct harp_latency *latency, double share);

#endif
