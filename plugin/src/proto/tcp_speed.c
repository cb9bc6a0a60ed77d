/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tcp_speed.h"

/* The time and the bytes of a proof: a kernel hands on 64 KiB at a time, which is an eighth of the latter. */
#define PIECE_NS HARP_MS(1)
enum { PIECE_BYTES = 512 * 1024, PROOFS = 8 };
/* The time for which a proof holds, and the steps in which it is forgotten then. */
#define HOLD_NS HARP_MS(100)
#define STEP_NS HARP_MS(32)
enum { PROVEN_STEP = 8, FASTEST_STEP = 16 };
/* A proof that differs by less than such a part is the usual speed. */
enum { USUAL_PART = 4 };
/* The bytes in flight from which on a round trip tells a rate, and the samples that it is averaged over. */
enum { FLIGHT_MIN_BYTES = 16384, FLIGHT_SAMPLES = 4, QUEUED_SAMPLES = 16 };
/* A record that took so long has waited for others. */
#define QUEUED_NS HARP_US(500)

void harp_tcp_speeds_init(struct harp_tcp_speeds *all, harp_ns now) {
  *all = (struct harp_tcp_speeds){
      .usual_q16 = HARP_TCP_NS_PER_BYTE_Q16, .fastest_q16 = HARP_TCP_NS_PER_BYTE_Q16, .step_ns = now};
}

void harp_tcp_speed_init(struct harp_tcp_speed *v) {
  *v = (struct harp_tcp_speed){.ns_per_byte_q16 = HARP_TCP_NS_PER_BYTE_Q16};
}

/* Takes a sample into the mean of the last `count`, or as the first one. */
static void add_to_mean(uint64_t *mean_q16, uint64_t sample_q16, unsigned count) {
  *mean_q16 = *mean_q16 ? HARP_MAX((*mean_q16 * (count - 1) + sample_q16) / count, 1u) : sample_q16;
}

static void begin_piece(struct harp_tcp_speed *v, uint64_t left_bytes, harp_ns now) {
  v->from_ns = now;
  v->from_bytes = left_bytes;
}

void harp_tcp_speed_on_look(struct harp_tcp_speed *v, uint64_t left_bytes, uint32_t unsent_bytes,
                            harp_ns now) {
  if (!v->is_standing) v->stood_ns = now;
  v->is_standing = unsent_bytes;
  if (v->from_ns < v->stood_ns + PIECE_NS || left_bytes < v->from_bytes) begin_piece(v, left_bytes, now);
  uint64_t bytes = left_bytes - v->from_bytes;
  harp_ns took_ns = now - v->from_ns;
  if (!v->is_standing || took_ns < PIECE_NS || bytes < PIECE_BYTES) return;
  add_to_mean(&v->proven_q16, HARP_MAX((took_ns << 16) / bytes, 1u), PROOFS);
  v->proven_ns = now;
  begin_piece(v, left_bytes, now);
}

void harp_tcp_speeds_on_flight(struct harp_tcp_speeds *all, uint32_t flight_bytes, harp_ns rtt_ns) {
  if (flight_bytes < FLIGHT_MIN_BYTES || !rtt_ns) return;
  uint64_t sample_q16 = HARP_MAX((rtt_ns << 16) / flight_bytes, 1u);
  if (rtt_ns >= QUEUED_NS) add_to_mean(&all->queued_q16, sample_q16, QUEUED_SAMPLES);
  if (sample_q16 < all->fastest_q16) all->fastest_q16 -= (all->fastest_q16 - sample_q16) / FLIGHT_SAMPLES;
}

void harp_tcp_proofs_add(struct harp_tcp_proofs *proofs, const struct harp_tcp_speed *v) {
  proofs->sum_q16 += v->proven_q16;
  proofs->count += v->proven_q16 > 0;
}

void harp_tcp_speeds_follow(struct harp_tcp_speeds *all, const struct harp_tcp_proofs *proofs, harp_ns now) {
  if (now - all->step_ns >= STEP_NS) {
    all->step_ns = now;
    all->fastest_q16 += all->fastest_q16 / FASTEST_STEP;
  }
  if (proofs->count)
    all->usual_q16 = proofs->sum_q16 / proofs->count;
  else
    all->usual_q16 = all->queued_q16 ? all->queued_q16 : all->fastest_q16;
}

/* Forgets a proof a little. */
static void forget_proof(struct harp_tcp_speed *v, const struct harp_tcp_speeds *all, harp_ns now) {
  v->proven_ns += STEP_NS;
  if (now - v->proven_ns >= HOLD_NS) v->proven_ns = now - HOLD_NS + STEP_NS; /* after a pause one step only */
  v->proven_q16 -= v->proven_q16 / PROVEN_STEP;
  if (v->proven_q16 <= all->usual_q16) v->proven_q16 = 0;
}

void harp_tcp_speed_follow(struct harp_tcp_speed *v, const struct harp_tcp_speeds *all, harp_ns now) {
  if (v->proven_q16 && now - v->proven_ns >= HOLD_NS) forget_proof(v, all, now);
  uint64_t band_q16 = all->usual_q16 / USUAL_PART;
  bool is_usual = !v->proven_q16 ||
                  (v->proven_q16 + band_q16 >= all->usual_q16 && v->proven_q16 <= all->usual_q16 + band_q16);
  v->ns_per_byte_q16 = is_usual ? all->usual_q16 : v->proven_q16;
}
