/* SPDX-License-Identifier: Apache-2.0 */
#include "models/wire.h"

enum { PS_PER_NS = 1000, PS_PER_BYTE_AT_GBIT = 8000 };

uint64_t wire_ps_per_byte(double gbit_s) {
  return gbit_s > 0 ? (uint64_t)(PS_PER_BYTE_AT_GBIT / gbit_s + 0.5) : 0;
}

static uint64_t backlog_ps(const struct wire *w, harp_ns now) {
  uint64_t now_ps = now * PS_PER_NS;
  return w->busy_ps > now_ps ? w->busy_ps - now_ps : 0;
}

/* Returns what of a backlog the bucket does not cover. */
static uint64_t uncovered_ps(const struct wire *w, uint64_t backlog) {
  uint64_t bucket = w->bucket_bytes * w->ps_per_byte;
  return backlog > bucket ? backlog - bucket : 0;
}

harp_ns wire_pass(struct wire *w, uint32_t bytes, harp_ns now) {
  w->packets++;
  w->bytes += bytes;
  if (!w->ps_per_byte) return now;
  uint64_t backlog = backlog_ps(w, now) + bytes * w->ps_per_byte, waits = uncovered_ps(w, backlog);
  if (waits > w->queue_bytes * w->ps_per_byte) {
    w->drops++;
    return HARP_NEVER;
  }
  w->busy_ps = now * PS_PER_NS + backlog;
  w->queue_max_ns = HARP_MAX(w->queue_max_ns, waits / PS_PER_NS);
  return now + (waits + PS_PER_NS - 1) / PS_PER_NS;
}

void wire_hold(struct wire *w, harp_ns for_ns, harp_ns now) {
  w->busy_ps = now * PS_PER_NS + backlog_ps(w, now) + for_ns * PS_PER_NS;
}

void wire_clear(struct wire *w) {
  w->busy_ps = 0;
}

harp_ns wire_queue_ns(const struct wire *w, harp_ns now) {
  return uncovered_ps(w, backlog_ps(w, now)) / PS_PER_NS;
}

bool wire_marks(const struct wire *w, harp_ns now) {
  return w->mark_ns && wire_queue_ns(w, now) > w->mark_ns;
}
