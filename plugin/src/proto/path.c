/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path.h"

#include "proto/loss.h"
#include "wire/record.h"

void harp_path_init(struct harp_path *p, unsigned index, uint64_t first_number,
                    const struct harp_path_config *config, const struct harp_cc_ops *cc,
                    struct harp_receive_window *to, struct harp_burst *ring, uint32_t records, harp_ns now) {
  uint32_t lines_max = config->lines_max;
  HARP_ASSERT(lines_max >= HARP_PACKET_MIN_LINES &&
              lines_max <= (config->is_tcp ? (uint32_t)HARP_RECORD_MAX_LINES : HARP_PACKET_MAX_LINES + 0u));
  *p = (struct harp_path){
      .index = (uint8_t)index,
      .local_eni = config->local_eni,
      .remote_eni = config->remote_eni,
      .standby = config->standby,
      .is_tcp = config->is_tcp,
      .blocked = config->is_tcp,
      .state = HARP_PATH_NEW,
      .ack_next = first_number,
      .next_number = first_number,
      .to = to,
  };
  harp_path_skip_init(&p->skip, first_number, config->skip_seed);
  harp_flight_init(&p->flight, ring, records);
  harp_path_size_init(&p->size, lines_max);
  harp_ack_request_init(&p->ack_request, first_number);
  harp_rtt_init(&p->rtt, now);
  harp_cc_init(&p->cc, p->is_tcp ? &harp_cc_fixed : cc, HARP_DATA_HEADER_BYTES + lines_max * HARP_LINE_BYTES,
               p->is_tcp ? HARP_PATH_TCP_WINDOW_BYTES : to->bytes, 1);
  harp_path_speed_restart(p);
  harp_loss_init(&p->loss, first_number);
  harp_path_probe_init(&p->probe, first_number, now);
  harp_path_ecn_init(&p->ecn, config->ecn && !config->is_tcp);
  harp_path_stats_init(&p->stats, first_number);
}

uint32_t harp_path_allowance(const struct harp_path *p, harp_ns now) {
  if (harp_path_is_silent(p) || p->blocked) return 0;
  if (!harp_path_pace_is_open(&p->pace, now)) return 0;
  return HARP_MIN(harp_path_room(p), harp_receive_window_packets(p->to, p->cc.packet_bytes));
}

harp_ns harp_path_allowance_ns(const struct harp_path *p, harp_ns now) {
  if (harp_path_is_silent(p)) return HARP_NEVER;
  if (!harp_path_has_room(p) || harp_flight_is_full(&p->flight)) return HARP_NEVER; /* blocked paths, too */
  return harp_path_pace_open_ns(&p->pace, now);
}

uint64_t harp_path_on_sent(struct harp_path *p, struct harp_burst *burst, harp_ns now) {
  HARP_ASSERT(p->state == HARP_PATH_UP || !burst->lines_per_packet);
  uint64_t bytes = (uint64_t)burst->packet_bytes * burst->count;
  burst->number = p->next_number;
  burst->sent_ns = now;
  burst->acked = burst->lost = 0;
  burst->is_duplicated = false;
  burst->is_outside_window = p->state != HARP_PATH_UP;
  burst->flight_bytes = p->inflight_bytes + (uint32_t)bytes;
  harp_flight_push(&p->flight, burst);
  p->next_number += burst->count;
  if (!harp_path_awaits_answer(p)) harp_path_probe_restart_pto(&p->probe, now);
  p->inflight_bytes += (uint32_t)bytes;
  if (burst->is_padding) p->padding_bytes += (uint32_t)bytes;
  p->to->inflight_bytes += harp_burst_cost_bytes(burst, burst->count);
  harp_path_stats_on_sent(&p->stats, bytes);
  harp_ack_request_on_sent(&p->ack_request, (uint32_t)bytes);
  if (!p->is_tcp && harp_rtt_is_known(&p->rtt))
    harp_path_pace_on_sent(&p->pace, &p->cc, p->speed.ns_per_byte_q16, bytes, now);
  return burst->number;
}
