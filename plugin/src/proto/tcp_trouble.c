/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tcp_trouble.h"

/* Counts are of the last few of these: older ones are stale. */
#define PERIOD_NS HARP_MS(100)
/* A queue that was seen before such a pause is not the same. */
#define PAUSE_NS HARP_MS(20)

void harp_tcp_trouble_init(struct harp_tcp_trouble *t, harp_ns now) {
  *t = (struct harp_tcp_trouble){.period_ns = now, .queue_ns = HARP_NEVER};
}

/* Adds what was counted since the last look, and forgets half of what is older than a period. */
static void count_segments(struct harp_tcp_trouble *t, uint32_t segments, uint32_t retransmitted,
                           harp_ns now) {
  if (now - t->period_ns >= PERIOD_NS) {
    t->segments /= 2, t->retransmitted /= 2;
    t->period_ns = now;
  }
  t->segments += segments;
  t->retransmitted += retransmitted;
}

static bool is_lossy(const struct harp_tcp_trouble *t) {
  return t->retransmitted >= HARP_TCP_LOSS_MIN &&
         (uint64_t)t->retransmitted * HARP_TCP_LOSS_PARTS >= t->segments;
}

/* Returns whether round trips have been too long for a while. */
static bool is_queued(struct harp_tcp_trouble *t, const struct harp_tcp_sample *s, harp_ns now) {
  bool is_long = s->rtt_min_ns && s->rtt_ns > s->rtt_min_ns + HARP_TCP_QUEUE_NS;
  if (now - t->looked_ns > PAUSE_NS) t->queue_ns = HARP_NEVER;
  t->queue_ns = is_long ? HARP_MIN(t->queue_ns, now) : HARP_NEVER;
  t->looked_ns = now;
  return is_long && now - t->queue_ns >= HARP_TCP_QUEUE_FOR_NS;
}

enum harp_tcp_sign harp_tcp_trouble_on_look(struct harp_tcp_trouble *t, const struct harp_tcp_sample *sample,
                                            harp_ns now) {
  int32_t more = (int32_t)(sample->segments - t->known.segments); /* less where it was worked out otherwise */
  uint32_t segments = more > 0 ? (uint32_t)more : 0;
  uint32_t retransmitted = sample->retransmitted - t->known.retransmitted;
  t->known = *sample;
  count_segments(t, segments, retransmitted, now);
  bool queued = segments && is_queued(t, sample, now);
  if (is_lossy(t)) {
    t->sign_segments = t->segments, t->sign_retransmitted = t->retransmitted;
    t->segments = t->retransmitted = 0;
    return HARP_TCP_SIGN_LOSS;
  }
  if (!queued) return HARP_TCP_SIGN_NONE;
  t->queue_ns = HARP_NEVER;
  return HARP_TCP_SIGN_QUEUE;
}
