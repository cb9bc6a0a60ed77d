/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/cc.h"

#include <string.h>

#include "base/assert.h"

const struct harp_cc_ops *harp_cc_find(const char *name) {
  static const struct harp_cc_ops *const all[] = {&harp_cc_target, &harp_cc_reno};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(all); i++) {
    size_t n = 0;
    while (name[n] && name[n] == all[i]->name[n]) n++;
    if (name[n] == all[i]->name[n]) return all[i];
  }
  return NULL;
}

void harp_cc_init(struct harp_cc *cc, const struct harp_cc_ops *ops, uint32_t packet_bytes,
                  uint32_t window_max_bytes, uint32_t sharers) {
  HARP_ASSERT(sharers);
  struct harp_cc_clock clock = cc->target.clock;
  struct harp_base_loss base_loss = cc->target.base_loss;
  *cc = (struct harp_cc){.ops = ops,
                         .packet_bytes = packet_bytes,
                         .window_max_bytes = window_max_bytes,
                         .bursts = HARP_CC_BURSTS_MIN,
                         .drain_every_ns = HARP_DRAIN_EVERY_NS,
                         .queue_ns = HARP_CC_QUEUE_NS,
                         .sharers = sharers,
                         .slow_start = true,
                         .target = {.clock = clock, .base_loss = base_loss}};
  harp_cc_set_window(cc, HARP_CC_INITIAL_BYTES / sharers);
  harp_cc_round_restart(cc);
  ops->init(cc);
}

static void fixed_init(struct harp_cc *cc) {
  cc->slow_start = false;
  harp_cc_set_window(cc, cc->window_max_bytes);
}

static void fixed_on_ack(struct harp_cc *cc, const struct harp_cc_sample *s) {
  if (harp_cc_round(cc, s)) harp_cc_round_restart(cc);
}

static void fixed_on_timeout(struct harp_cc *cc) {
  (void)cc;
}

static void fixed_on_busy(struct harp_cc *cc, harp_ns idle_ns) {
  (void)cc, (void)idle_ns;
}

const struct harp_cc_ops harp_cc_fixed = {"fixed", fixed_init, fixed_on_ack, fixed_on_timeout, fixed_on_busy};

void harp_cc_set_window(struct harp_cc *cc, uint64_t bytes) {
  bytes = HARP_MIN(bytes, cc->window_max_bytes);
  cc->window_bytes = (uint32_t)HARP_MAX(bytes, (uint64_t)HARP_CC_MIN_PACKETS * cc->packet_bytes);
  cc->window_q8 = (uint64_t)cc->window_bytes << 8;
}

bool harp_cc_round(struct harp_cc *cc, const struct harp_cc_sample *s) {
  cc->round_acked_bytes += s->acked_bytes;
  cc->round_lost_bytes += s->lost_bytes;
  if (s->rtt_ns) cc->round_rtt_min_ns = HARP_MIN(cc->round_rtt_min_ns, s->rtt_ns);
  if (s->inflight_bytes >= cc->window_bytes / 2) cc->round_limited = true;
  return s->round_end;
}

bool harp_cc_is_held_back(const struct harp_cc *cc, const struct harp_cc_sample *s) {
  harp_ns rtt_ns = s->rtt_ns ? HARP_MIN(cc->round_rtt_min_ns, s->rtt_ns) : cc->round_rtt_min_ns;
  bool limited = cc->round_limited || s->peer_limited || s->inflight_bytes >= cc->window_bytes / 2;
  bool queued =
      rtt_ns != HARP_NEVER && s->rtt_min_ns != HARP_NEVER && rtt_ns > s->rtt_min_ns + cc->queue_ns * 2 / 3;
  return limited && (queued || cc->round_lost_bytes || s->lost_bytes || !harp_cc_is_clean(cc, s->now));
}

void harp_cc_round_restart(struct harp_cc *cc) {
  cc->round_rtt_min_ns = HARP_NEVER;
  cc->round_acked_bytes = cc->round_lost_bytes = 0;
  cc->round_limited = false;
}
