/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tcp_speed.h"

/* A proof takes so long and so much: a kernel hands on 64 KiB at a time, which is an eighth of the latter. */
#define PIECE_NS HARP_MS(1)
enum { PIECE_BYTES = 512 * 1024 };
/* How long a proof holds, and the steps in which it is forgotten then. */
#define HOLD_NS HARP_MS(100)
#define STEP_NS HARP_MS(32)
enum { PROVEN_STEP = 8, FASTEST_STEP = 16 };
/* So much must be in flight for a round trip to tell a rate, and over how many it is averaged. */
enum { FLIGHT_MIN_BYTES = 16384, FLIGHT_SAMPLES = 4, QUEUED_SAMPLES = 16 };
/* A record that took so long has waited for others. */
#define QUEUED_NS HARP_US(500)

void harp_tcp_speeds_init(struct harp_tcp_speeds *all, harp_ns now) {
  *all = (struct harp_tcp_speeds){
      .fastest_q16 = HARP_TCP_DRAIN_Q16, .queued_q16 = HARP_TCP_DRAIN_Q16, .step_ns = now};
}

void harp_tcp_speed_init(struct harp_tcp_speed *v) {
  *v = (struct harp_tcp_speed){.drain_q16 = HARP_TCP_DRAIN_Q16, .stripe_q16 = HARP_TCP_DRAIN_Q16};
}

static void begin_piece(struct harp_tcp_speed *v, uint64_t left_bytes, harp_ns now) {
  v->from_ns = now;
  v->from_bytes = left_bytes;
}

static void on_proof(struct harp_tcp_speed *v, uint64_t bytes, harp_ns took_ns, harp_ns now) {
  uint64_t piece_q16 = HARP_MAX((took_ns << 16) / bytes, 1u);
  v->drain_q16 = v->is_proven ? HARP_MAX((v->drain_q16 + piece_q16) / 2, 1u) : piece_q16;
  v->stripe_q16 = v->drain_q16;
  v->is_proven = true;
  v->proven_ns = now;
}

void harp_tcp_speed_on_look(struct harp_tcp_speed *v, uint64_t left_bytes, uint32_t unsent_bytes,
                            harp_ns now) {
  bool stood = v->is_standing;
  v->is_standing = unsent_bytes;
  if (!unsent_bytes) return;
  if (!stood || left_bytes < v->from_bytes) {
    begin_piece(v, left_bytes, now);
    return;
  }
  uint64_t bytes = left_bytes - v->from_bytes;
  harp_ns took_ns = now - v->from_ns;
  if (took_ns < PIECE_NS || bytes < PIECE_BYTES) return;
  on_proof(v, bytes, took_ns, now);
  begin_piece(v, left_bytes, now);
}

void harp_tcp_speeds_on_flight(struct harp_tcp_speeds *all, uint32_t flight_bytes, harp_ns rtt_ns) {
  if (flight_bytes < FLIGHT_MIN_BYTES || !rtt_ns) return;
  uint64_t sample_q16 = HARP_MAX((rtt_ns << 16) / flight_bytes, 1u);
  if (rtt_ns >= QUEUED_NS) all->queued_q16 += sample_q16 / QUEUED_SAMPLES - all->queued_q16 / QUEUED_SAMPLES;
  if (sample_q16 < all->fastest_q16) all->fastest_q16 -= (all->fastest_q16 - sample_q16) / FLIGHT_SAMPLES;
}

void harp_tcp_speeds_add(struct harp_tcp_speeds *all, const struct harp_tcp_speed *v) {
  all->fastest_q16 = HARP_MIN(all->fastest_q16, v->drain_q16);
  if (v->is_proven) all->queued_q16 = HARP_MIN(all->queued_q16, v->drain_q16);
}

void harp_tcp_speeds_on_time(struct harp_tcp_speeds *all, harp_ns now) {
  if (now - all->step_ns < STEP_NS) return;
  all->step_ns = now;
  all->fastest_q16 += all->fastest_q16 / FASTEST_STEP;
}

void harp_tcp_speed_follow(struct harp_tcp_speed *v, const struct harp_tcp_speeds *all, harp_ns now) {
  if (!v->is_proven) v->drain_q16 = all->fastest_q16;
  v->stripe_q16 = v->is_proven ? v->drain_q16 : HARP_MAX(all->queued_q16, all->fastest_q16);
  if (!v->is_proven || now - v->proven_ns < HOLD_NS) return;
  v->proven_ns += STEP_NS;
  if (now - v->proven_ns >= HOLD_NS) v->proven_ns = now - HOLD_NS + STEP_NS; /* after a pause one step only */
  v->drain_q16 =
      HARP_MAX(v->drain_q16 - v->drain_q16 / PROVEN_STEP, HARP_MIN(all->fastest_q16, v->drain_q16));
}
