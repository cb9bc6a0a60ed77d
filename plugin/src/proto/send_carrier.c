/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_carrier.h"

#include "proto/send.h"

bool harp_send_carriers_choose(struct harp_sender *s) {
  uint64_t *by_class = s->carriers.by_class, tcp = harp_path_set_tcp(s->paths, s->set.eligible);
  bool datagrams = harp_experiments_take_datagrams(&s->experiments), has_choice = false;
  by_class[HARP_TX_SMALL] = by_class[HARP_TX_LARGE] = s->set.eligible;
  HARP_EACH_BIT (i, tcp) {
    const struct harp_path *p = &s->paths[i];
    HARP_EACH_BIT (k, s->set.eligible & ~tcp) {
      const struct harp_path *q = &s->paths[k];
      if (q->local_eni != p->local_eni || q->remote_eni != p->remote_eni) continue;
      has_choice = true;
      by_class[HARP_TX_SMALL] &= ~(1ull << i);
      by_class[HARP_TX_LARGE] &= ~(1ull << (datagrams ? i : k));
    }
  }
  return has_choice;
}
