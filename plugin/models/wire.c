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

harp_ns wire_pass(struct wire *w, uint32_t bytes, harp_ns now) {
  w->packets++;
  w->bytes += bytes;
  if (!w->ps_per_byte) return now;
  uint64_t backlog = backlog_ps(w, now), cost = bytes * w->ps_per_byte;
  uint64_t room = (w->bucket_bytes ? w->bucket_bytes : w->queue_bytes) * w->ps_per_byte;
  if (backlog + cost > room) {
    w->drops++;
    return HARP_NEVER;
  }
  w->busy_ps = now * PS_PER_NS + backlog + cost;
  if (w->bucket_bytes) return now;
  w->queue_max_ns = HARP_MAX(w->queue_max_ns, (backlog + cost) / PS_PER_NS);
  return (w->busy_ps + PS_PER_NS - 1) / PS_PER_NS;
}

void wire_hold(struct wire *w, harp_ns for_ns, harp_ns now) {
  w->busy_ps = now * PS_PER_NS + backlog_ps(w, now) + for_ns * PS_PER_NS;
}

void wire_clear(struct wire *w) {
  w->busy_ps = 0;
}

harp_ns wire_queue_ns(const struct wire *w, harp_ns now) {
  return w->bucket_bytes ? 0 : backlog_ps(w, now) / PS_PER_NS;
}

bool wire_marks(const struct wire *w, harp_ns now) {
  return w->mark_ns && wire_queue_ns(w, now) > w->mark_ns;
}
