/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path.h"

#include "wire/record.h"

/* Sizes that the search steps through, in lines: IPv6 minimum, Ethernet, single-buffer XDP, jumbo. */
static const uint32_t sizes[] = {HARP_PACKET_MIN_LINES, 11, 26, HARP_PACKET_MAX_LINES};

/* Probe timeout: never shorter than this above the smoothed RTT, since peers share cores with other work. */
#define PTO_MARGIN_NS HARP_MS(1)
/* The kernel of a tcp path repeats what was lost by itself: time for that before others take over. */
#define PTO_MARGIN_TCP_NS HARP_MS(10)
#define PTO_MAX_NS        HARP_MS(100)
/* A network's RTT is at most the first, or twice the least that was seen, up to the second. */
#define RTT_TCP_MIN_NS HARP_MS(20)
#define RTT_TCP_MAX_NS HARP_MS(250)
#define REORDER_MIN_NS HARP_US(5)
enum { REORDER_MEMORY_ROUNDS = 64 };
#define SIZE_PROBE_FIRST_NS HARP_MS(100)

void harp_path_init(struct harp_path *p, unsigned index, uint64_t first_number,
                    const struct harp_path_config *config, const struct harp_cc_ops *cc,
                    struct harp_window *to, struct harp_burst *ring, uint32_t records, harp_ns now) {
  uint32_t lines_max = config->lines_max;
  HARP_ASSERT(lines_max >= HARP_PACKET_MIN_LINES &&
              lines_max <= (config->is_tcp ? (uint32_t)HARP_RECORD_MAX_LINES : HARP_PACKET_MAX_LINES + 0u));
  p->index = (uint8_t)index;
  p->local_eni = config->local_eni;
  p->remote_eni = config->remote_eni;
  p->pair = 0;
  p->standby = config->standby;
  p->is_tcp = p->blocked = config->is_tcp;
  p->state = HARP_PATH_NEW;
  p->first_number = p->next_number = p->ack_next = p->round_end_number = first_number;
  p->largest_acked = first_number - 1;
  p->any_acked = p->detour = false;
  p->lines = p->lines_max = lines_max;
  p->inflight_bytes = p->padding_bytes = 0;
  p->sent_bytes = p->lost_packets = p->resent_packets = p->probe_timeouts = 0;
  p->to = to;
  p->unrequested_bytes = p->unrequested_bursts = 0;
  p->ack_request_number = first_number - 1;
  p->pace_next_ns = 0;
  p->rack_sent_ns = 0;
  p->loss_deadline_ns = HARP_NEVER;
  p->reorder_ns = REORDER_MIN_NS;
  p->last_ack_ns = p->pto_from_ns = p->probed_ns = p->silent_ns = now;
  p->pto_count = p->probe_count = 0;
  p->drained = p->probe_due = p->size_try_max = false;
  p->proof_number = first_number;
  p->size_probe_ns = HARP_NEVER;
  p->size_probe_lines = 0;
  harp_flight_init(&p->flight, ring, records);
  harp_rtt_init(&p->rtt, now);
  harp_cc_init(&p->cc, p->is_tcp ? &harp_cc_fixed : cc, HARP_DATA_HEADER_BYTES + lines_max * HARP_LINE_BYTES,
               p->is_tcp ? HARP_PATH_TCP_WINDOW_BYTES : to->bytes, 1);
  harp_path_restart_speed(p);
}

void harp_path_restart_speed(struct harp_path *p) {
  harp_tcp_speed_init(&p->tcp);
  harp_path_note_speed(p);
}

void harp_path_note_speed(struct harp_path *p) {
  p->travel_ns = HARP_MIN(p->rtt.smoothed_ns, p->rtt.min_ns) / 2;
  p->drain_q16 = p->is_tcp ? p->tcp.drain_q16 : HARP_MAX((p->rtt.smoothed_ns << 16) / p->cc.window_bytes, 1u);
}

uint32_t harp_path_allowance(const struct harp_path *p, harp_ns now) {
  if (harp_path_silent(p) || p->blocked) return 0;
  if (now + HARP_PACE_BURST_NS < p->pace_next_ns) return 0;
  if (p->cc.window_bytes <= p->inflight_bytes) return 0;
  uint32_t packets = (p->cc.window_bytes - p->inflight_bytes) / p->cc.packet_bytes;
  return HARP_MIN(packets, harp_window_packets(p->to, p->cc.packet_bytes));
}

harp_ns harp_path_allowance_ns(const struct harp_path *p, harp_ns now) {
  if (harp_path_silent(p)) return HARP_NEVER;
  if (!harp_path_has_room(p) || harp_flight_full(&p->flight)) return HARP_NEVER; /* blocked paths, too */
  return HARP_MAX(now, p->pace_next_ns > HARP_PACE_BURST_NS ? p->pace_next_ns - HARP_PACE_BURST_NS : 0);
}

/* Twice the window per RTT while it is still growing fast, 5/4 of it later: the window, not the pace, is the
 * limit. */
static harp_ns pace_ns(const struct harp_path *p, uint64_t bytes) {
  if (!harp_rtt_known(&p->rtt)) return 0;
  uint64_t per_rtt = (uint64_t)p->cc.window_bytes * (p->cc.slow_start ? 8 : 5) / 4;
  return bytes * p->rtt.smoothed_ns / per_rtt;
}

uint64_t harp_path_on_sent(struct harp_path *p, struct harp_burst *burst, harp_ns now) {
  HARP_ASSERT(p->state == HARP_PATH_UP || !burst->lines_per_packet);
  uint64_t bytes = (uint64_t)burst->packet_bytes * burst->count;
  burst->number = p->next_number;
  burst->sent_ns = now;
  burst->acked = burst->lost = 0;
  burst->copied = false;
  burst->outside_window = p->state != HARP_PATH_UP;
  burst->flight_bytes = p->inflight_bytes + (uint32_t)bytes;
  harp_flight_push(&p->flight, burst);
  p->next_number += burst->count;
  p->sent_bytes += bytes;
  if (!harp_path_awaits_answer(p)) p->pto_from_ns = now;
  p->inflight_bytes += (uint32_t)bytes;
  if (burst->is_padding) p->padding_bytes += (uint32_t)bytes;
  p->unrequested_bytes += (uint32_t)bytes;
  p->unrequested_bursts++;
  p->to->inflight_bytes += harp_burst_cost_bytes(burst, burst->count);
  if (!p->is_tcp) p->pace_next_ns = HARP_MAX(p->pace_next_ns, now) + pace_ns(p, bytes);
  return burst->number;
}

/* Returns the RTT that a tcp path may have at most. What it measures contains the repetitions of the kernel,
 * and how long records wait in the kernel; but whatever the kernel gets acknowledged starts the timeout
 * over, so that each round trip of the network alone has to take less. */
static harp_ns rtt_max_of_tcp(const struct harp_path *p) {
  harp_ns most_ns = HARP_MIN(p->rtt.min_ns, RTT_TCP_MAX_NS / 2) * 2;
  return HARP_MAX(most_ns, RTT_TCP_MIN_NS);
}

/* Returns how long an answer may take before it is late: RTT, its variation, and a margin. */
static harp_ns patience_of(const struct harp_path *p) {
  harp_ns usual_ns = p->rtt.smoothed_ns + 4 * p->rtt.variation_ns;
  if (!p->is_tcp) return usual_ns + PTO_MARGIN_NS;
  return HARP_MIN(usual_ns, rtt_max_of_tcp(p)) + PTO_MARGIN_TCP_NS;
}

harp_ns harp_path_pto_ns(const struct harp_path *p) {
  if (!harp_path_owes(p)) return HARP_NEVER;
  unsigned shift = HARP_MIN(p->pto_count, 10u);
  harp_ns patience_ns = patience_of(p);
  harp_ns at = p->pto_from_ns + HARP_MAX(HARP_MIN(patience_ns << shift, PTO_MAX_NS), patience_ns);
  return p->inflight_bytes && !harp_path_awaits_answer(p) ? HARP_MAX(at, p->loss_deadline_ns) : at;
}

void harp_path_on_round(struct harp_path *p) {
  p->round_end_number = p->next_number;
  p->reorder_ns = HARP_MAX(p->reorder_ns - p->reorder_ns / REORDER_MEMORY_ROUNDS, REORDER_MIN_NS);
}

void harp_path_restart_size(struct harp_path *p) {
  if (p->is_tcp || (p->lines == HARP_PACKET_MIN_LINES && p->size_try_max)) return;
  p->lines = HARP_MIN(p->lines_max, (uint32_t)HARP_PACKET_MIN_LINES);
  p->size_probe_lines = 0;
  p->size_try_max = p->lines < p->lines_max;
  p->size_probe_ns = p->size_try_max ? 0 : HARP_NEVER;
}

bool harp_path_shrink(struct harp_path *p, harp_ns now) {
  if (p->is_tcp) return false;
  for (size_t i = HARP_ARRAY_COUNT(sizes); i-- > 0;) {
    if (sizes[i] < p->lines) {
      p->lines = sizes[i];
      p->size_probe_lines = 0;
      p->size_probe_ns = now + SIZE_PROBE_FIRST_NS;
      return true;
    }
  }
  return false;
}

uint32_t harp_path_next_size(const struct harp_path *p) {
  if (p->size_try_max) return p->lines_max;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(sizes); i++) {
    if (sizes[i] > p->lines) return HARP_MIN(sizes[i], p->lines_max);
  }
  return p->lines_max;
}
