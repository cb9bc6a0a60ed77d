/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base_loss.h"

/* After a presumption that drains contradicted: the first wait, and the longest. */
#define PRESUME_WAIT_NS     HARP_SEC(10)
#define PRESUME_WAIT_MAX_NS HARP_SEC(640)
/* A presumption that no drain has confirmed for so long ends: the flow sends too rarely to know. */
#define PRESUME_FOR_NS HARP_MS(600)
enum {
  KNOWN_Q16 = 328,           /* 0.5 %: less is none */
  STARVED_MAX_Q16 = 39322,   /* 60 % */
  INTERVAL_PACKETS = 1024,   /* an interval has so many at most, */
  INTERVAL_MIN_PACKETS = 32, /* and at least, */
  INTERVAL_LOST = 3,         /* and ends when so many were lost, or twice as many should have been */
  QUIET_LOST = 8,            /* packets: an interval outside of drains ends */
  QUIET_PACKETS = 8,         /* congestion loses less than KNOWN_Q16 of such a window */
};

void harp_base_loss_restart(struct harp_base_loss *b) {
  b->is_presumed = harp_base_loss_is_known(b);
  b->presumed_ns = 0;
  b->presume_wait_ns = HARP_MAX(b->presume_wait_ns, PRESUME_WAIT_NS);
  b->is_starved = false;
  b->drained = b->starved = b->quiet = (struct harp_loss_count){0};
}

bool harp_base_loss_is_known(const struct harp_base_loss *b) {
  return b->share_q16 >= KNOWN_Q16;
}

static void count(struct harp_loss_count *c, uint32_t acked_bytes, uint32_t lost_bytes) {
  c->bytes += acked_bytes + lost_bytes;
  c->lost_bytes += lost_bytes;
}

static uint32_t take_share_q16(struct harp_loss_count *c) {
  uint32_t share_q16 = (uint32_t)(((uint64_t)c->lost_bytes << 16) / c->bytes);
  *c = (struct harp_loss_count){0};
  return share_q16;
}

/* Whether an interval has ended: enough was lost to know how much, or less than expected. */
static bool is_over(const struct harp_base_loss *b, const struct harp_loss_count *c, uint32_t packet_bytes) {
  uint32_t packets = c->bytes / packet_bytes, lost = c->lost_bytes / packet_bytes;
  uint64_t expected_q16 = (uint64_t)packets * b->share_q16;
  if (packets < INTERVAL_MIN_PACKETS) return false;
  return packets >= INTERVAL_PACKETS || lost >= INTERVAL_LOST || expected_q16 >= 2 * INTERVAL_LOST << 16;
}

static bool presume(struct harp_base_loss *b, struct harp_loss_count *c, harp_ns now) {
  b->share_q16 = take_share_q16(c);
  if (!harp_base_loss_is_known(b)) return false;
  b->drained = (struct harp_loss_count){0};
  b->is_presumed = true;
  b->presumed_ns = now;
  return true;
}

static void contradict(struct harp_base_loss *b, harp_ns now) {
  b->is_presumed = false;
  b->presume_from_ns = now + b->presume_wait_ns;
  b->presume_wait_ns = HARP_MIN(2 * b->presume_wait_ns, PRESUME_WAIT_MAX_NS);
}

bool harp_base_loss_on_drained(struct harp_base_loss *b, uint32_t packet_bytes, uint32_t acked_bytes,
                               uint32_t lost_bytes, harp_ns now) {
  count(&b->drained, acked_bytes, lost_bytes);
  if (!is_over(b, &b->drained, packet_bytes)) return false;
  uint32_t share_q16 = take_share_q16(&b->drained), was_q16 = b->share_q16;
  if (share_q16 < KNOWN_Q16 / 2) b->clean_ns = now;
  if (b->is_presumed) {
    b->is_presumed = false;
    b->share_q16 = share_q16;
    if (share_q16 < was_q16 / 4) contradict(b, now);
    return true;
  }
  b->share_q16 = share_q16 > was_q16 ? (was_q16 + share_q16) / 2 : (was_q16 * 3 + share_q16) / 4;
  return true;
}

bool harp_base_loss_on_settled(struct harp_base_loss *b, const struct harp_base_loss_sample *s) {
  uint64_t packet_q8 = (uint64_t)s->packet_bytes << 8;
  if (s->window_q8 >= 2 * packet_q8 || (s->lost_bytes && !s->is_lossy_alone)) b->is_starved = false;
  if (!b->presumed_ns) b->presumed_ns = s->now; /* after a restart */
  if (b->is_presumed && s->now - b->presumed_ns > PRESUME_FOR_NS) {
    contradict(b, s->now);
    b->share_q16 = 0;
  }
  if (harp_base_loss_is_known(b) || s->now < b->presume_from_ns) return false;
  if (s->is_below_ceiling && s->window_q8 >= QUIET_PACKETS * packet_q8) {
    count(&b->quiet, s->acked_bytes, s->lost_bytes);
    if (b->quiet.bytes >= INTERVAL_PACKETS * s->packet_bytes ||
        b->quiet.lost_bytes >= QUIET_LOST * s->packet_bytes)
      return presume(b, &b->quiet, s->now);
  }
  if (!b->is_starved) return false;
  count(&b->starved, s->acked_bytes, s->lost_bytes);
  if (s->window_q8 >= packet_q8 / 2 || b->starved.lost_bytes < INTERVAL_LOST * s->packet_bytes) return false;
  if (!presume(b, &b->starved, s->now)) return false;
  b->share_q16 = HARP_MIN(2 * b->share_q16, STARVED_MAX_Q16 + 0u); /* of few packets: a rough value */
  return true;
}

void harp_base_loss_on_drain_end(struct harp_base_loss *b) {
  b->is_starved = true;
  b->starved = (struct harp_loss_count){0};
}

void harp_base_loss_on_queue(struct harp_base_loss *b) {
  b->is_starved = false;
}
