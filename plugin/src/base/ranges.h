/* SPDX-License-Identifier: Apache-2.0 */
/* An ordered, bounded set of 64-bit numbers kept as disjoint ranges [begin, end), newest (highest) first.
 *
 * Used for the packet numbers a receiver has seen. When full, the oldest range is forgotten: its packets are
 * then neither reported nor recognised as duplicates here, which costs a retransmission and never
 * correctness. */
#ifndef HARP_RANGES_H
#define HARP_RANGES_H

#include "base/base.h"

enum { HARP_RANGES_MAX = 32 };

struct harp_range {
  uint64_t begin, end;
  uint32_t reported; /* times reported since it last grew */
};
struct harp_ranges {
  uint32_t count;
  struct harp_range at[HARP_RANGES_MAX];
};

/* Adds a number that does not continue the newest range: harp_ranges_add. */
bool harp_ranges_insert(struct harp_ranges *r, uint64_t number);

/* Adds one number. Returns false when it was there already, or lies below a full set. */
static inline bool harp_ranges_add(struct harp_ranges *r, uint64_t number) {
  if (harp_unlikely(!r->count || number != r->at[0].end)) return harp_ranges_insert(r, number);
  r->at[0].end++;
  r->at[0].reported = 0;
  return true;
}

/* Notes that all ranges were reported once more, and forgets those (but never the newest) that were reported
 * `enough` times: gaps between packet numbers stay for good, since a lost packet is resent under a new
 * number. */
void harp_ranges_on_reported(struct harp_ranges *r, uint32_t enough);

#endif
