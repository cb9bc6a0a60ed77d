/* The default: delay first, loss only when there is much of it.
 *
 * Idea (after TIMELY/Swift, and BBR's tolerance of random loss): once per round trip compare the round's
 * *lowest* RTT with the path's base RTT. A queue in the network lifts every sample of a round, a host that
 * was descheduled only some, so the lowest one tells them apart. Below the target the window grows, above it
 * shrinks in proportion. Clouds lose packets at random and police bursts, so a loss counts only when the
 * smoothed share of lost bytes passes LOSS_TOLERATED_PERMILLE; then the window shrinks by a quarter, at most
 * every other round. Where threads wait for cores every sample shows that wait and no queue at all, so delay
 * shrinks the window to DELAY_FLOOR_BYTES and no further; what is below is left to loss. No timers. */
#include "proto/cc.h"

/* Queueing delay that is aimed at, on top of the base RTT: enough that a software receiver is never idle. */
#define TARGET_QUEUE_NS HARP_US(100)
enum {
  LOSS_TOLERATED_PERMILLE = 40,
  DELAY_FLOOR_BYTES = 256 * 1024, /* four superframes */
  GROWTH_SHARE = 8,               /* a round grows the window by 1/8 of itself at most */
  MAX_DECREASE_DIV = 2,           /* and a round never takes more than half */
};

static void delay_init(struct harp_cc *cc) {
  (void)cc;
}

/* Smooths the share of lost bytes over about eight rounds. */
static void loss_update(struct harp_cc *cc) {
  uint64_t total = (uint64_t)cc->round_acked_bytes + cc->round_lost_bytes;
  if (!total) return;
  uint32_t now_q4 = (uint32_t)((uint64_t)cc->round_lost_bytes * 16000 / total);
  cc->loss_permille_q4 = (uint32_t)(((uint64_t)cc->loss_permille_q4 * 7 + now_q4) / 8);
}

static void delay_on_ack(struct harp_cc *cc, const struct harp_cc_sample *s) {
  if (!harp_cc_round(cc, s)) return;
  loss_update(cc);
  if (cc->decrease_hold) cc->decrease_hold--;

  harp_ns target_ns =
      s->rtt_min_ns == HARP_NEVER ? HARP_NEVER : s->rtt_min_ns + s->rtt_min_ns / 4 + TARGET_QUEUE_NS;
  bool slow = cc->round_rtt_min_ns != HARP_NEVER && cc->round_rtt_min_ns > target_ns;
  bool lossy = cc->loss_permille_q4 > LOSS_TOLERATED_PERMILLE * 16;

  if (slow && cc->window_bytes >= DELAY_FLOOR_BYTES) {
    /* window * (1 - (rtt - target) / rtt), but not less than half */
    uint64_t shrunk = (uint64_t)cc->window_bytes * target_ns / cc->round_rtt_min_ns;
    shrunk = HARP_MAX(shrunk, (uint64_t)cc->window_bytes / MAX_DECREASE_DIV);
    harp_cc_set_window(cc, HARP_MAX(shrunk, (uint64_t)DELAY_FLOOR_BYTES));
    cc->slow_start = false;
  } else if (lossy && !cc->decrease_hold) {
    harp_cc_set_window(cc, (uint64_t)cc->window_bytes * 3 / 4);
    cc->slow_start = false;
    cc->decrease_hold = 2;
  } else if (cc->round_limited && !lossy) {
    uint64_t step =
        cc->slow_start ? cc->window_bytes : HARP_MAX(cc->window_bytes / GROWTH_SHARE, cc->packet_bytes);
    harp_cc_set_window(cc, cc->window_bytes + step);
  }
  harp_cc_round_restart(cc);
}

static void delay_on_timeout(struct harp_cc *cc) {
  harp_cc_set_window(cc, cc->window_bytes / 2);
  cc->slow_start = false;
}

const struct harp_cc_ops harp_cc_delay = {"delay", delay_init, delay_on_ack, delay_on_timeout};
