/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_carrier.h"

#include "proto/send.h"

/* The factor by which the window of a path in slow start counts, since it grows. */
enum { SLOW_START_TIMES = 8 };

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

void harp_send_carriers_update_windows(struct harp_sender *s, uint32_t bytes) {
  uint64_t bytes_max = 0;
  if (bytes <= HARP_SMALL_MAX_BYTES || bytes > HARP_SMALL_QUEUED_MAX_BYTES) return;
  uint64_t enis = 0;
  s->load.window_lines = UINT32_MAX;
  HARP_EACH_BIT (i, s->carriers.by_class[HARP_TX_SMALL]) {
    const struct harp_cc *cc = &s->paths[i].cc;
    enis |= 1ull << s->paths[i].local_eni;
    bytes_max += (uint64_t)cc->window_bytes * (cc->slow_start ? SLOW_START_TIMES : 1);
  }
  if (enis & (enis - 1)) s->load.window_lines = (uint32_t)(bytes_max / HARP_LINE_BYTES);
}
