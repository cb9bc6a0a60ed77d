/* SPDX-License-Identifier: Apache-2.0 */
#include "net/near.h"

#include "base/log.h"

void harp_near_first(struct harp_engine_enis *enis) {
  const struct harp_instance *first = enis->at[0];
  for (unsigned i = 1; i < enis->count; i++)
    if (enis->at[i]->addr.ss_family != first->addr.ss_family) return;
  for (unsigned i = 1; i < enis->count; i++) {
    const struct harp_instance *moved = enis->at[i];
    unsigned at = i;
    for (; at && enis->at[at - 1]->gpu_nearness < moved->gpu_nearness; at--) enis->at[at] = enis->at[at - 1];
    enis->at[at] = moved;
  }
  if (enis->at[0] != first)
    HARP_INFO("%s: it is nearer to the GPU of this process than %s, and goes first of %u interfaces",
              enis->at[0]->ifname, first->ifname, enis->count);
}
