/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_speed.h"

#include "base/assert.h"
#include "proto/path.h"
#include "wire/record.h"

/* Of a tcp path: what a byte takes until that is measured (1 Gbit/s, so that records go over all paths), how
 * much must be in flight for a measurement, and over how many it is averaged. */
#define TCP_DRAIN_Q16 (8ull << 16)
enum { TCP_FLIGHT_MIN_BYTES = 16384, DRAIN_SAMPLES = 4 };

void harp_path_speed_restart(struct harp_path *p) {
  p->speed.drain_q16 = TCP_DRAIN_Q16;
  harp_path_speed_update(p);
}

void harp_path_speed_update(struct harp_path *p) {
  p->speed.travel_ns = HARP_MIN(p->rtt.smoothed_ns, p->rtt.min_ns) / 2;
  if (!p->is_tcp) p->speed.drain_q16 = HARP_MAX((p->rtt.smoothed_ns << 16) / p->cc.window_bytes, 1u);
}

void harp_path_speed_on_flight(struct harp_path *p, uint32_t flight_bytes, harp_ns rtt_ns) {
  uint64_t drain_q16 = p->speed.drain_q16;
  HARP_ASSERT(p->is_tcp);
  if (flight_bytes <= HARP_RECORD_HEAD_BYTES) /* a probe of a path that carries nothing else */
    drain_q16 = HARP_MAX(drain_q16 / 2, HARP_MIN(drain_q16, TCP_DRAIN_Q16));
  if (flight_bytes >= TCP_FLIGHT_MIN_BYTES && rtt_ns) {
    uint64_t sample_q16 = HARP_MAX((rtt_ns << 16) / flight_bytes, 1u);
    drain_q16 = HARP_MAX(drain_q16 - drain_q16 / DRAIN_SAMPLES + sample_q16 / DRAIN_SAMPLES, 1u);
  }
  p->speed.drain_q16 = drain_q16;
}
