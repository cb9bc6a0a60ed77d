/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_report.h"

#include "base/assert.h"

struct harp_path_report harp_path_report_of(const struct harp_session *c, unsigned path) {
  HARP_ASSERT(path < c->path_count && c->sender && c->receiver);
  const struct harp_path *p = &c->sender->paths[path];
  bool has_rtt = harp_rtt_is_known(&p->rtt);
  return (struct harp_path_report){
      .local_eni = p->local_eni,
      .remote_eni = p->remote_eni,
      .is_tcp = p->is_tcp,
      .is_standby = p->standby,
      .state = p->state,
      .is_silent = harp_path_is_silent(p),
      .packet_bytes = p->size.lines * HARP_LINE_BYTES,
      .packet_max_bytes = p->size.lines_max * HARP_LINE_BYTES,
      .is_size_limited = p->size.is_limited,
      .rtt_ns = has_rtt ? p->rtt.smoothed_ns : 0,
      .rtt_min_ns = p->rtt.min_ns == HARP_NEVER ? 0 : p->rtt.min_ns,
      .window_bytes = p->cc.window_bytes,
      .inflight_bytes = p->inflight_bytes,
      .first_number = p->stats.first_number,
      .sent_packets = p->next_number - p->stats.first_number - p->skip.skipped,
      .sent_bytes = p->stats.sent_bytes,
      .ce_bytes = p->ecn.ce_bytes,
      .received_bytes = c->receiver->paths[path].received_bytes,
      .lost_packets = p->stats.lost_packets,
      .resent_packets = p->stats.resent_packets,
      .probe_timeouts = p->stats.probe_timeouts,
  };
}
