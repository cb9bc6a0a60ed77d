/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_pace.h"

#include "proto/path.h"

/* Returns what so many bytes take at the pace: 0 while the RTT is unknown. */
static harp_ns pace_ns(const struct harp_path *p, uint64_t bytes) {
  if (!harp_rtt_known(&p->rtt)) return 0;
  uint64_t per_rtt = (uint64_t)p->cc.window_bytes * (p->cc.slow_start ? 8 : 5) / 4;
  return bytes * p->rtt.smoothed_ns / per_rtt;
}

void harp_path_pace_on_sent(struct harp_path *p, uint64_t bytes, harp_ns now) {
  if (!p->is_tcp) p->pace.next_ns = HARP_MAX(p->pace.next_ns, now) + pace_ns(p, bytes);
}
