/* SPDX-License-Identifier: Apache-2.0 */
/* An ordered, bounded set of 64-bit numbers kept as disjoint ranges [begin, end), newest (highest) first.
 *
 * A receiver keeps the packet numbers of each path in one. When full, the oldest range is dropped: its
 * packets are then neither reported nor recognised as duplicates here, which may cause a retransmission but
 * no error. Used by the thread that runs the engine's pass. */
#ifndef HARP_RANGES_H
#define HARP_RANGES_H

#include "base/base.h"

enum { HARP_RANGES_MAX = 32 };

struct harp_range {
  uint64_t begin, end;
};
struct harp_ranges {
  uint32_t count;
  struct harp_range at[HARP_RANGES_MAX];
};

/* Adds a number that does not extend the newest range; harp_ranges_add alone calls it. */
bool harp_ranges_insert(struct harp_ranges *r, uint64_t number);

/* Adds one number. Returns false when it is in the set already, or below a full set. */
static inline bool harp_ranges_add(struct harp_ranges *r, uint64_t number) {
  if (harp_unlikely(!r->count || number != r->at[0].end)) return harp_ranges_insert(r, number);
  r->at[0].end++;
  return true;
}

/* Returns whether a number is in the set. */
bool harp_ranges_has(const struct harp_ranges *r, uint64_t number);

/* Removes the ranges that end at or below a number, except the newest: gaps never close, since a lost packet
 * is resent under a new number. */
void harp_ranges_forget_below(struct harp_ranges *r, uint64_t number);

#endif
