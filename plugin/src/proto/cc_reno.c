/* SPDX-License-Identifier: Apache-2.0 */
/* Additive increase, multiplicative decrease (RFC 5681 in spirit): a packet more each round trip, half upon
 * any loss in the round, back to the minimum after timeouts. It shares a link with kernel TCP as an equal,
 * and suffers as TCP does from random loss; kept as the plain reference next to `target`. No timers. */
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
