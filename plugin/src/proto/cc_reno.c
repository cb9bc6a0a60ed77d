/* SPDX-License-Identifier: Apache-2.0 */
/* Additive increase, multiplicative decrease (after RFC 5681), as the reference beside `target`. It shares a
 * link with kernel TCP as an equal, and random loss slows it as it slows TCP.
 *
 * Writes the window of its path, and no state of its own. No timers. Rules:
 *
 *   1. A round in which the window was in use adds a packet; in slow start it doubles the window.
 *   2. A round with a loss halves the window and ends slow start.
 *   3. Two probe timeouts in a row set the least window, and begin slow start. */
#include "proto/cc.h"

static void reno_init(struct harp_cc *cc) {
  (void)cc;
}

static void reno_on_ack(struct harp_cc *cc, const struct harp_cc_sample *s) {
  if (!harp_cc_round(cc, s)) return;
  if (cc->round_lost_bytes) {
    harp_cc_set_window(cc, cc->window_bytes / 2);
    cc->slow_start = false;
  } else if (cc->round_limited) {
    harp_cc_set_window(cc,
                       (uint64_t)cc->window_bytes + (cc->slow_start ? cc->window_bytes : cc->packet_bytes));
  }
  harp_cc_round_restart(cc);
}

static void reno_on_timeout(struct harp_cc *cc) {
  harp_cc_set_window(cc, 0);
  cc->slow_start = true;
}

static void reno_on_busy(struct harp_cc *cc, harp_ns idle_ns) {
  (void)cc, (void)idle_ns; /* its windows are never so small that it would matter */
}

const struct harp_cc_ops harp_cc_reno = {"reno", reno_init, reno_on_ack, reno_on_timeout, reno_on_busy};
