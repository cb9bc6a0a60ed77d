/* SPDX-License-Identifier: Apache-2.0 */
#include "latency.h"

#include <math.h>
#include <string.h>

enum { SUB = 1 << HARP_LATENCY_SUB_BITS };

static unsigned bucket_of(harp_ns ns) {
  if (ns < SUB) return (unsigned)ns;
  unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - HARP_LATENCY_SUB_BITS;
  uint64_t index = (uint64_t)(shift + 1) * SUB + (ns >> shift) - SUB;
  return (unsigned)HARP_MIN(index, (uint64_t)HARP_LATENCY_BUCKETS - 1);
}

/* Returns the middle of a bucket. */
static harp_ns bucket_ns(unsigned bucket) {
  if (bucket < SUB) return bucket;
  unsigned shift = bucket / SUB - 1;
  return (((harp_ns)(bucket % SUB) + SUB) << shift) + ((harp_ns)1 << shift) / 2;
}

void harp_latency_init(struct harp_latency *latency) {
  memset(latency, 0, sizeof *latency);
  latency->min_ns = HARP_NEVER;
}

void harp_latency_add(struct harp_latency *latency, harp_ns ns) {
  latency->count++;
  latency->sum_ns += ns;
  latency->min_ns = HARP_MIN(latency->min_ns, ns);
  latency->max_ns = HARP_MAX(latency->max_ns, ns);
  latency->buckets[bucket_of(ns)]++;
}

void harp_latency_merge(struct harp_latency *latency, const struct harp_latency *from) {
  latency->count += from->count;
  latency->sum_ns += from->sum_ns;
  latency->min_ns = HARP_MIN(latency->min_ns, from->min_ns);
  latency->max_ns = HARP_MAX(latency->max_ns, from->max_ns);
  for (unsigned i = 0; i < HARP_LATENCY_BUCKETS; i++) latency->buckets[i] += from->buckets[i];
}

harp_ns harp_latency_percentile(const struct harp_latency *latency, double share) {
  if (!latency->count) return 0;
  uint64_t rank = (uint64_t)ceil(share * (double)latency->count), seen = 0;
  if (!rank) rank = 1;
  for (unsigned i = 0; i < HARP_LATENCY_BUCKETS; i++) {
    seen += latency->buckets[i];
    if (seen >= rank) return HARP_MAX(HARP_MIN(bucket_ns(i), latency->max_ns), latency->min_ns);
  }
  return latency->max_ns;
}
