/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_speed.h"

#include "proto/path.h"
#include "wire/record.h"

/* The time that a record on one of several paths takes: the others take a part of a longer message. A
 * shorter record than RECORD_MIN_BYTES costs more of a processor than it gains. */
#define RECORD_NS HARP_US(500)
enum { RECORD_MIN_BYTES = 64 << 10 };

void harp_path_speed_restart(struct harp_path *p) {
  harp_tcp_speed_init(&p->speed.tcp);
  harp_path_speed_update(p);
}

void harp_path_speed_update(struct harp_path *p) {
  p->speed.travel_ns = HARP_MIN(p->rtt.smoothed_ns, p->rtt.min_ns) / 2;
  if (p->is_tcp) {
    p->speed.ns_per_byte_q16 = p->speed.tcp.ns_per_byte_q16;
    return;
  }
  p->speed.ns_per_byte_q16 = HARP_MAX((p->rtt.smoothed_ns << 24) / p->cc.window_q8, 1u);
  harp_path_pace_update(&p->pace, &p->cc, p->speed.ns_per_byte_q16);
}

void harp_path_speed_follow(struct harp_path *p, const struct harp_tcp_speeds *all, harp_ns now) {
  harp_tcp_speed_follow(&p->speed.tcp, all, now);
  harp_path_speed_update(p);
}

uint64_t harp_path_speed_bytes_in(const struct harp_path_speed *v, harp_ns ns) {
  return (ns << 16) / v->tcp.ns_per_byte_q16;
}

uint32_t harp_path_speed_record_lines(const struct harp_path_speed *v) {
  uint64_t bytes = HARP_MAX(harp_path_speed_bytes_in(v, RECORD_NS), (uint64_t)RECORD_MIN_BYTES);
  return (uint32_t)HARP_MIN(bytes / HARP_LINE_BYTES, (uint64_t)HARP_RECORD_MAX_LINES);
}
