/* SPDX-License-Identifier: Apache-2.0 */
/* The counts of one path since it was made; path_report.h shows it to other layers. A part of struct
 * harp_path, written by these functions alone; nothing decides by it. */
#ifndef HARP_PATH_STATS_H
#define HARP_PATH_STATS_H

#include "base/base.h"

struct harp_path_stats {
  uint64_t first_number;
  uint64_t sent_bytes; /* the bytes of packets, with headers */
  uint64_t lost_packets, resent_packets, probe_timeouts;
};

static inline void harp_path_stats_init(struct harp_path_stats *t, uint64_t first_number) {
  *t = (struct harp_path_stats){.first_number = first_number};
}
static inline void harp_path_stats_on_sent(struct harp_path_stats *t, uint64_t bytes) {
  t->sent_bytes += bytes;
}
static inline void harp_path_stats_on_lost(struct harp_path_stats *t, uint32_t packets) {
  t->lost_packets += packets;
}
static inline void harp_path_stats_on_resent(struct harp_path_stats *t, uint32_t packets) {
  t->resent_packets += packets;
}
static inline void harp_path_stats_on_pto(struct harp_path_stats *t) {
  t->probe_timeouts++;
}

#endif
