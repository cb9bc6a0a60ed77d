/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_probe.h"

#include "proto/path.h"

void harp_path_probe_init(struct harp_path_probe *b, uint64_t first_number, harp_ns now) {
  *b = (struct harp_path_probe){.last_ack_ns = now,
                                .pto_from_ns = now,
                                .silent_ns = now,
                                .proof_number = first_number,
                                .probed_ns = now};
}

/* Returns the RTT that a tcp path may have at most. What it measures contains the repetitions of the kernel,
 * and how long records wait in the kernel; but whatever the kernel gets acknowledged starts the timeout
 * over, so that each round trip of the network alone has to take less. */
static harp_ns rtt_max_of_tcp(const struct harp_path *p) {
  harp_ns most_ns = HARP_MIN(p->rtt.min_ns, HARP_PTO_TCP_MAX_NS / 2) * 2;
  return HARP_MAX(most_ns, HARP_PTO_TCP_MIN_NS);
}

/* Returns how long an answer may take before it is late: RTT, its variation, and a margin. */
static harp_ns patience_of(const struct harp_path *p) {
  harp_ns usual_ns = p->rtt.smoothed_ns + 4 * p->rtt.variation_ns;
  if (!p->is_tcp) return usual_ns + HARP_PTO_MARGIN_NS;
  return HARP_MIN(usual_ns, rtt_max_of_tcp(p)) + HARP_PTO_MARGIN_TCP_NS;
}

unsigned harp_path_probe_doublings(uint32_t count) {
  if (count <= HARP_PROBE_DOUBLINGS_FIRST + HARP_PROBE_STEADY)
    return HARP_MIN(count, HARP_PROBE_DOUBLINGS_FIRST + 0u);
  return HARP_MIN(count - HARP_PROBE_STEADY, HARP_PROBE_DOUBLINGS_MAX + 0u);
}

harp_ns harp_path_pto_ns(const struct harp_path *p) {
  if (!harp_path_owes(p)) return HARP_NEVER;
  unsigned shift = harp_path_probe_doublings(p->probe.pto_count);
  harp_ns patience_ns = patience_of(p);
  harp_ns at = p->probe.pto_from_ns + HARP_MAX(HARP_MIN(patience_ns << shift, HARP_PTO_MAX_NS), patience_ns);
  return p->inflight_bytes && !harp_path_awaits_answer(p) ? HARP_MAX(at, p->loss.deadline_ns) : at;
}

void harp_path_probe_begin(struct harp_path_probe *b, uint64_t next_number, harp_ns now) {
  b->proof_number = next_number;
  b->count = 0;
  b->probed_ns = now;
}

void harp_path_probe_on_pto(struct harp_path_probe *b, harp_ns now) {
  if (!b->pto_count) b->silent_ns = b->pto_from_ns;
  b->pto_count++;
  b->pto_from_ns = now;
}

void harp_path_probe_forget_ptos(struct harp_path_probe *b) {
  b->pto_count = 0;
  b->has_moved_flight = false;
}

void harp_path_probe_on_flight_moved(struct harp_path_probe *b) {
  b->has_moved_flight = true;
}
