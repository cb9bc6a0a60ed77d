/* SPDX-License-Identifier: Apache-2.0 */
/* The default: by delay first; how much loss is tolerated depends on the delay.
 *
 * Idea (after TIMELY/Swift, and BBR's tolerance of random loss): once per round trip compare the round's
 * *lowest* RTT with the path's base RTT. A queue in the network lifts every sample of a round, a host that
 * was descheduled only some, so the lowest one distinguishes them. Below the target the window grows by an
 * eighth, above it shrinks in proportion. Where threads wait for cores every sample shows
 * that wait and no queue at all, so delay alone shrinks the window to DELAY_FLOOR_BYTES and no further; to
 * the path's share of them where several of the connection run between the same ENIs.
 *
 * Clouds lose packets at random and police bursts, so without a queue a loss counts only when the smoothed
 * share of lost bytes passes LOSS_TOLERATED_PERMILLE, and not even then if shrinking does not cure it. With a
 * queue less is tolerated, with a long one nothing: then somebody's packets overflow it. A loss that counts
 * takes a quarter of the window, or three eighths beside a queue, at most every other round; and then
 * the window grows with care, beside a queue by a packet a round. So flows that share a bottleneck come to
 * equal shares, and leave loss-based ones theirs. No timers. */
#include "proto/cc.h"

/* Longer than a host delays every packet of a round: a queue in the network. */
#define LONG_QUEUE_NS HARP_MS(1)
enum {
  LOSS_TOLERATED_PERMILLE = 40,
  LOSS_QUEUE_PERMILLE = 20,        /* where the RTT shows a queue */
  LOSS_EXCUSED_MAX_PERMILLE = 300, /* that shrinking the window did not cure */
  EXCUSE_ROUNDS = 16,
  GROWTH_BYTES = 4096,
  GROWTH_ROUNDS = 256,            /* after a loss that counted; then as if there had been none */
  DELAY_FLOOR_BYTES = 256 * 1024, /* four superframes, of all paths between two ENIs */
  GROWTH_SHARE = 8,               /* a round grows the window by 1/8 of itself at most */
  MAX_DECREASE_DIV = 2,           /* and a round never takes more than half */
};

/* Returns the window below which delay does not shrink it: the path's share, so that a connection gets as
 * much with many paths as with one. */
static uint32_t floor_bytes(const struct harp_cc *cc) {
  return HARP_MAX((uint32_t)DELAY_FLOOR_BYTES / cc->sharers, harp_cc_min_bytes(cc));
}

static void delay_init(struct harp_cc *cc) {
  cc->good_rounds = GROWTH_ROUNDS;
}

/* Smooths the share of lost bytes over about eight rounds. */
static void loss_update(struct harp_cc *cc) {
  uint64_t total = (uint64_t)cc->round_acked_bytes + cc->round_lost_bytes;
  if (!total) return;
  uint32_t now_q4 = (uint32_t)((uint64_t)cc->round_lost_bytes * 16000 / total);
  cc->loss_permille_q4 = (uint32_t)(((uint64_t)cc->loss_permille_q4 * 7 + now_q4) / 8);
}

/* Returns the share of loss that is ignored: little where the RTT shows a queue, none where it shows a long
 * one. */
static uint32_t tolerated_q4(const struct harp_cc *cc, harp_ns queue_ns) {
  if (queue_ns > LONG_QUEUE_NS) return 0;
  if (queue_ns > HARP_CC_QUEUE_NS) return LOSS_QUEUE_PERMILLE * 16;
  return HARP_MAX(LOSS_TOLERATED_PERMILLE * 16u, cc->loss_excused_q4);
}

/* If cutting the window does not reduce the loss, it is not congestion: from then on only more loss
 * counts. */
static void maybe_excuse(struct harp_cc *cc) {
  if (!cc->cut_level_q4) cc->cut_level_q4 = cc->loss_permille_q4, cc->cut_rounds = 0;
  if (++cc->cut_rounds < EXCUSE_ROUNDS || cc->loss_permille_q4 < cc->cut_level_q4 * 3 / 4) return;
  cc->loss_excused_q4 = HARP_MIN(cc->loss_permille_q4 * 3 / 2, LOSS_EXCUSED_MAX_PERMILLE * 16u);
  cc->cut_level_q4 = 0;
}

/* An eighth; after a loss that counted a packet while there is a queue, as other flows do, else the more
 * the longer neither delay nor loss is seen. */
static uint64_t growth_bytes(const struct harp_cc *cc, bool slow) {
  if (cc->slow_start) return cc->window_bytes;
  if (cc->good_rounds >= GROWTH_ROUNDS) return HARP_MAX(cc->window_bytes / GROWTH_SHARE, cc->packet_bytes);
  uint64_t step = slow ? 0 : GROWTH_BYTES * (16 + (uint64_t)cc->good_rounds * cc->good_rounds) / 16;
  return HARP_MAX(HARP_MIN(step, (uint64_t)cc->window_bytes / GROWTH_SHARE), cc->packet_bytes);
}

static void delay_on_ack(struct harp_cc *cc, const struct harp_cc_sample *s) {
  if (!harp_cc_round(cc, s)) return;
  loss_update(cc);
  if (cc->decrease_hold) cc->decrease_hold--;

  bool known = cc->round_rtt_min_ns != HARP_NEVER && s->rtt_min_ns != HARP_NEVER;
  harp_ns base_ns = known ? s->rtt_min_ns + s->rtt_min_ns / 4 : HARP_NEVER;
  harp_ns queue_ns = known && cc->round_rtt_min_ns > base_ns ? cc->round_rtt_min_ns - base_ns : 0;
  bool slow = queue_ns > HARP_CC_QUEUE_NS, lossy = cc->loss_permille_q4 > tolerated_q4(cc, queue_ns);
  bool shrink = slow && cc->window_bytes >= floor_bytes(cc);
  bool cut = lossy && cc->round_lost_bytes && !cc->decrease_hold;

  if (lossy && !slow)
    maybe_excuse(cc);
  else
    cc->cut_level_q4 = 0;
  if (shrink) {
    /* window * (1 - (rtt - target) / rtt), but not less than half */
    uint64_t shrunk = (uint64_t)cc->window_bytes * (base_ns + HARP_CC_QUEUE_NS) / cc->round_rtt_min_ns;
    shrunk = HARP_MAX(shrunk, (uint64_t)cc->window_bytes / MAX_DECREASE_DIV);
    harp_cc_set_window(cc, HARP_MAX(shrunk, (uint64_t)floor_bytes(cc)));
  }
  if (cut) {
    harp_cc_set_window(cc, slow ? (uint64_t)cc->window_bytes * 5 / 8 : (uint64_t)cc->window_bytes * 3 / 4);
    cc->decrease_hold = 2;
  }
  if (cut) cc->good_rounds = 0;
  if (shrink || cut) {
    cc->slow_start = false;
  } else if (cc->round_limited && (!lossy || !cc->round_lost_bytes)) {
    harp_cc_set_window(cc, cc->window_bytes + growth_bytes(cc, slow));
    cc->good_rounds++;
  }
  harp_cc_round_restart(cc);
}

static void delay_on_timeout(struct harp_cc *cc) {
  harp_cc_set_window(cc, cc->window_bytes / 2);
  cc->slow_start = false;
}

const struct harp_cc_ops harp_cc_delay = {"delay", delay_init, delay_on_ack, delay_on_timeout};
