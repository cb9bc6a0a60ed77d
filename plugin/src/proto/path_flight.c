/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_flight.h"

#include "proto/loss.h"
#include "proto/send.h"

void harp_path_flight_give_up(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  struct harp_loss_result r = {0};
  harp_loss_give_up(p, &r, s->trace, now);
  if (p->state != HARP_PATH_UP && p->state != HARP_PATH_DORMANT) return;
  s->counters->lost_packets += r.lost_packets;
  harp_path_stats_on_lost(&p->stats, r.lost_packets);
}
