/* SPDX-License-Identifier: Apache-2.0 */
#include "models/liar.h"

/* Makes one range of all, up to `ahead` numbers beyond the newest. */
static void hide_gaps(struct harp_packet *ack, uint32_t ahead) {
  if (!ack->ack.range_count) return;
  ack->ack.ranges[0].begin = ack->ack.ranges[ack->ack.range_count - 1].begin;
  ack->ack.ranges[0].end += ahead;
  ack->ack.range_count = 1;
}

void liar_falsify(enum lie lie, struct harp_packet *ack, harp_ns round_trip_ns) {
  switch (lie) {
  case LIE_LOSS:
    hide_gaps(ack, 0);
    break;
  case LIE_OPTIMISTIC:
    hide_gaps(ack, LIAR_AHEAD_PACKETS);
    break;
  case LIE_WINDOW:
    ack->ack.window_bytes = HARP_WINDOW_MAX_BYTES;
    break;
  case LIE_DELAY:
    if (round_trip_ns > LIAR_RTT_NS) ack->ack.echo_delay += harp_ticks_from_ns(round_trip_ns - LIAR_RTT_NS);
    break;
  case LIE_WAY:
    if (round_trip_ns > LIAR_RTT_NS) ack->ack.time -= harp_ticks_from_ns(round_trip_ns - LIAR_RTT_NS);
    break;
  case LIE_MARKS:
    ack->ack.ce_bytes = 0;
    break;
  default:
    break;
  }
}
