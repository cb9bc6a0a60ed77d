/* SPDX-License-Identifier: Apache-2.0 */
#include "models/cubic.h"

#include <math.h>

enum {
  INITIAL_WINDOW = 10, /* segments, RFC 6928 */
  LEAST_WINDOW = 2,
};
/* RFC 9438, sections 4.2, 4.6 and 4.7 */
static const double C = 0.4, BETA = 0.7;

void cubic_window_init(struct cubic_window *w, bool is_reno) {
  *w = (struct cubic_window){.is_reno = is_reno, .cwnd = INITIAL_WINDOW, .ssthresh = HUGE_VAL};
}

static void start_epoch(struct cubic_window *w, harp_ns now) {
  w->epoch_ns = now;
  w->epoch_cwnd = w->cwnd;
  if (w->cwnd < w->w_max) {
    w->k_s = cbrt((w->w_max - w->cwnd) / C);
  } else {
    w->k_s = 0;
    w->w_max = w->cwnd;
  }
}

/* RFC 9438, 4.2 to 4.5: the cubic function one RTT ahead, or what Reno would have, whichever is larger. */
static void avoid_congestion(struct cubic_window *w, harp_ns now) {
  if (w->is_reno) {
    w->cwnd += 1 / w->cwnd;
    return;
  }
  if (!w->epoch_ns) start_epoch(w, now);
  double srtt_s = (double)w->srtt_ns / 1e9, t = (double)(now - w->epoch_ns) / 1e9;
  double target = C * pow(t + srtt_s - w->k_s, 3) + w->w_max;
  double reno = w->epoch_cwnd + 3 * (1 - BETA) / (1 + BETA) * t / srtt_s;
  target = fmin(fmax(target, w->cwnd), 1.5 * w->cwnd);
  w->cwnd += (target - w->cwnd) / w->cwnd;
  w->cwnd = fmax(w->cwnd, fmin(reno, w->cwnd + 1));
}

void cubic_window_on_ack(struct cubic_window *w, harp_ns rtt_ns, bool is_in_use, harp_ns now) {
  w->srtt_ns = w->srtt_ns ? w->srtt_ns - w->srtt_ns / 8 + rtt_ns / 8 : rtt_ns;
  if (!is_in_use) return;
  if (w->cwnd < w->ssthresh)
    w->cwnd += 1;
  else
    avoid_congestion(w, now);
}

void cubic_window_on_loss(struct cubic_window *w, harp_ns sent_ns, harp_ns now) {
  if (sent_ns < w->decreased_ns) return;
  double beta = w->is_reno ? 0.5 : BETA;
  bool is_lower = !w->is_reno && w->cwnd < w->w_max;
  w->w_max = is_lower ? w->cwnd * (1 + BETA) / 2 : w->cwnd; /* fast convergence */
  w->cwnd = fmax(w->cwnd * beta, LEAST_WINDOW);
  w->ssthresh = w->cwnd;
  w->epoch_ns = 0;
  w->decreased_ns = now;
}

static void send_segments(struct cubic *c, harp_ns now) {
  while ((double)(c->inflight + 1) <= c->window.cwnd) {
    harp_ns at = wire_pass(c->wire, c->segment_bytes + CUBIC_HEADERS_BYTES, now);
    struct parcel p = {.sent_ns = now};
    c->inflight++;
    c->sent_segments++;
    if (at == HARP_NEVER) {
      c->lost_segments++;
      p.at_ns = now + HARP_MAX(c->window.srtt_ns, 2 * c->delay_ns);
      lane_push(&c->losses, &p);
    } else {
      p.at_ns = at + 2 * c->delay_ns;
      lane_push(&c->acks, &p);
    }
  }
}

static void on_acks(struct source *s, harp_ns now) {
  struct cubic *c = HARP_CONTAINER_OF(s, struct cubic, acks.source);
  for (struct parcel p; lane_take(&c->acks, &p, now);) {
    c->inflight--;
    c->acked_bytes += c->segment_bytes;
    cubic_window_on_ack(&c->window, now - p.sent_ns, true, now);
    send_segments(c, now);
  }
}

static void on_losses(struct source *s, harp_ns now) {
  struct cubic *c = HARP_CONTAINER_OF(s, struct cubic, losses.source);
  for (struct parcel p; lane_take(&c->losses, &p, now);) {
    c->inflight--;
    cubic_window_on_loss(&c->window, p.sent_ns, now);
    send_segments(c, now);
  }
}

static void on_start(struct source *s, harp_ns now) {
  send_segments(HARP_CONTAINER_OF(s, struct cubic, start), now);
}

void cubic_init(struct cubic *c, struct agenda *a, struct wire *w, harp_ns delay_ns, uint32_t segment_bytes,
                bool is_reno, harp_ns start_ns) {
  *c = (struct cubic){.wire = w, .delay_ns = delay_ns, .segment_bytes = segment_bytes};
  cubic_window_init(&c->window, is_reno);
  lane_init(&c->acks, a, on_acks);
  lane_init(&c->losses, a, on_losses);
  source_init(&c->start, on_start);
  agenda_set(a, &c->start, start_ns);
}

void cubic_fini(struct cubic *c) {
  lane_fini(&c->acks);
  lane_fini(&c->losses);
}
