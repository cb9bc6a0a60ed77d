/* SPDX-License-Identifier: Apache-2.0 */
#include "networks/cubic.h"

#include <math.h>

enum {
  HEADER_BYTES = 52,   /* IPv4, TCP with time stamps */
  INITIAL_WINDOW = 10, /* segments, RFC 6928 */
  LEAST_WINDOW = 2,
};
/* RFC 9438, sections 4.2, 4.6 and 4.7 */
static const double C = 0.4, BETA = 0.7;

static void send_segments(struct cubic *c, harp_ns now) {
  while ((double)(c->inflight + 1) <= c->cwnd) {
    harp_ns at = wire_pass(c->wire, c->segment_bytes + HEADER_BYTES, now);
    struct parcel p = {.sent_ns = now};
    c->inflight++;
    c->sent_segments++;
    if (at == HARP_NEVER) {
      c->lost_segments++;
      p.at_ns = now + HARP_MAX(c->srtt_ns, 2 * c->delay_ns);
      lane_push(&c->losses, &p);
    } else {
      p.at_ns = at + 2 * c->delay_ns;
      lane_push(&c->acks, &p);
    }
  }
}

static void start_epoch(struct cubic *c, harp_ns now) {
  c->epoch_ns = now;
  c->epoch_cwnd = c->cwnd;
  if (c->cwnd < c->w_max) {
    c->k_s = cbrt((c->w_max - c->cwnd) / C);
  } else {
    c->k_s = 0;
    c->w_max = c->cwnd;
  }
}

/* RFC 9438, 4.2 to 4.5: the cubic function one RTT ahead, or what Reno would have, whichever is larger. */
static void avoid_congestion(struct cubic *c, harp_ns now) {
  if (c->is_reno) {
    c->cwnd += 1 / c->cwnd;
    return;
  }
  if (!c->epoch_ns) start_epoch(c, now);
  double srtt_s = (double)c->srtt_ns / 1e9, t = (double)(now - c->epoch_ns) / 1e9;
  double target = C * pow(t + srtt_s - c->k_s, 3) + c->w_max;
  double reno = c->epoch_cwnd + 3 * (1 - BETA) / (1 + BETA) * t / srtt_s;
  target = fmin(fmax(target, c->cwnd), 1.5 * c->cwnd);
  c->cwnd += (target - c->cwnd) / c->cwnd;
  c->cwnd = fmax(c->cwnd, fmin(reno, c->cwnd + 1));
}

static void on_acks(struct source *s, harp_ns now) {
  struct cubic *c = HARP_CONTAINER_OF(s, struct cubic, acks.source);
  for (struct parcel p; lane_take(&c->acks, &p, now);) {
    harp_ns rtt = now - p.sent_ns;
    c->inflight--;
    c->acked_bytes += c->segment_bytes;
    c->srtt_ns = c->srtt_ns ? c->srtt_ns - c->srtt_ns / 8 + rtt / 8 : rtt;
    if (c->cwnd < c->ssthresh)
      c->cwnd += 1;
    else
      avoid_congestion(c, now);
    send_segments(c, now);
  }
}

static void on_losses(struct source *s, harp_ns now) {
  struct cubic *c = HARP_CONTAINER_OF(s, struct cubic, losses.source);
  for (struct parcel p; lane_take(&c->losses, &p, now);) {
    c->inflight--;
    if (p.sent_ns >= c->decreased_ns) {
      double beta = c->is_reno ? 0.5 : BETA;
      c->w_max =
          !c->is_reno && c->cwnd < c->w_max ? c->cwnd * (1 + BETA) / 2 : c->cwnd; /* fast convergence */
      c->cwnd = fmax(c->cwnd * beta, LEAST_WINDOW);
      c->ssthresh = c->cwnd;
      c->epoch_ns = 0;
      c->decreased_ns = now;
    }
    send_segments(c, now);
  }
}

static void on_start(struct source *s, harp_ns now) {
  send_segments(HARP_CONTAINER_OF(s, struct cubic, start), now);
}

void cubic_init(struct cubic *c, struct agenda *a, struct wire *w, harp_ns delay_ns, uint32_t segment_bytes,
                bool is_reno, harp_ns start_ns) {
  *c = (struct cubic){.wire = w,
                      .delay_ns = delay_ns,
                      .segment_bytes = segment_bytes,
                      .is_reno = is_reno,
                      .cwnd = INITIAL_WINDOW,
                      .ssthresh = HUGE_VAL};
  lane_init(&c->acks, a, on_acks);
  lane_init(&c->losses, a, on_losses);
  source_init(&c->start, on_start);
  agenda_set(a, &c->start, start_ns);
}

void cubic_fini(struct cubic *c) {
  lane_fini(&c->acks);
  lane_fini(&c->losses);
}
