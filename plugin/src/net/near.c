/* SPDX-License-Identifier: Apache-2.0 */
#include "net/near.h"

#include "base/log.h"

/* Returns whether an ENI belongs before another; `first` has the family of the others' first. */
static bool is_before(const struct harp_instance *a, const struct harp_instance *b,
                      const struct harp_instance *first, bool is_mixed) {
  int family = first->addr.ss_family;
  if (a->is_absent != b->is_absent) return b->is_absent;
  if (is_mixed) return a->addr.ss_family == family && b->addr.ss_family != family;
  return a->gpu_nearness > b->gpu_nearness;
}

static void sort_enis(struct harp_engine_enis *enis, bool is_mixed) {
  const struct harp_instance *first = enis->at[0];
  for (unsigned i = 1; i < enis->count; i++) {
    const struct harp_instance *moved = enis->at[i];
    unsigned at = i;
    for (; at && is_before(moved, enis->at[at - 1], first, is_mixed); at--) enis->at[at] = enis->at[at - 1];
    enis->at[at] = moved;
  }
}

/* Turns each run of equal ENIs by the process's rank. */
static void turn_equal_enis(struct harp_engine_enis *enis, unsigned rank) {
  const struct harp_engine_enis sorted = *enis;
  for (unsigned from = 0, to; from < enis->count; from = to) {
    for (to = from + 1; to < enis->count && !is_before(sorted.at[from], sorted.at[to], sorted.at[0], false);)
      to++;
    for (unsigned i = from; i < to; i++) enis->at[i] = sorted.at[from + (i - from + rank) % (to - from)];
  }
}

void harp_near_first(struct harp_engine_enis *enis) {
  const struct harp_instance *first = enis->at[0];
  bool is_mixed = false;
  for (unsigned i = 1; i < enis->count; i++) is_mixed |= enis->at[i]->addr.ss_family != first->addr.ss_family;
  sort_enis(enis, is_mixed);
  if (!is_mixed && first->local.has_rank) turn_equal_enis(enis, first->local.rank);
  if (enis->at[0] == first || first->is_absent) return;
  if (enis->at[0]->gpu_nearness > first->gpu_nearness)
    HARP_INFO("%s: it is nearer to the GPU of this process than %s, and goes first of %u interfaces",
              enis->at[0]->ifname, first->ifname, enis->count);
  else
    HARP_INFO("%s: it goes first of %u interfaces in the process with local rank %u", enis->at[0]->ifname,
              enis->count, first->local.rank);
}
