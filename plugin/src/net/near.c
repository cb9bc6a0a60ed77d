/* SPDX-License-Identifier: Apache-2.0 */
#include "net/near.h"

#include "base/log.h"

static bool is_before(const struct harp_instance *a, const struct harp_instance *b, int family,
                      bool is_mixed) {
  bool has_family_a = a->addr.ss_family == family, has_family_b = b->addr.ss_family == family;
  if (a->is_absent != b->is_absent) return b->is_absent;
  return is_mixed ? has_family_a && !has_family_b : a->gpu_nearness > b->gpu_nearness;
}

void harp_near_first(struct harp_engine_enis *enis) {
  const struct harp_instance *first = enis->at[0];
  int family = first->addr.ss_family;
  bool is_mixed = false;
  for (unsigned i = 1; i < enis->count; i++) is_mixed |= enis->at[i]->addr.ss_family != family;
  for (unsigned i = 1; i < enis->count; i++) {
    const struct harp_instance *moved = enis->at[i];
    unsigned at = i;
    for (; at && is_before(moved, enis->at[at - 1], family, is_mixed); at--) enis->at[at] = enis->at[at - 1];
    enis->at[at] = moved;
  }
  if (enis->at[0] != first && !first->is_absent)
    HARP_INFO("%s: it is nearer to the GPU of this process than %s, and goes first of %u interfaces",
              enis->at[0]->ifname, first->ifname, enis->count);
}
