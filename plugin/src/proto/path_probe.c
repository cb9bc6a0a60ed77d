/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_probe.h"

#include "proto/path.h"

/* Probe timeout: never shorter than this above the smoothed RTT, since peers share cores with other work. */
#define PTO_MARGIN_NS HARP_MS(1)
/* The kernel of a tcp path repeats what was lost by itself: time for that before others take over. */
#define PTO_MARGIN_TCP_NS HARP_MS(10)
#define PTO_MAX_NS        HARP_MS(100)
/* Intervals of probes double so often at first, stay for the next PROBES_OFTEN, then double on. Where 30 %
 * are lost both ways half of all probes get no answer, and six in a row are common; RFC 9002 doubles on,
 * which takes a third of a second then. One probe each 8 ms or so is less than what any path may send
 * (HARP_CC_LEAST_NS). */
enum { DOUBLINGS_FIRST = 3, PROBES_OFTEN = 16, DOUBLINGS_MAX = 10 };
/* A network's RTT is at most the first, or twice the least that was seen, up to the second. */
#define RTT_TCP_MIN_NS HARP_MS(20)
#define RTT_TCP_MAX_NS HARP_MS(250)

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
  harp_ns most_ns = HARP_MIN(p->rtt.min_ns, RTT_TCP_MAX_NS / 2) * 2;
  return HARP_MAX(most_ns, RTT_TCP_MIN_NS);
}

/* Returns how long an answer may take before it is late: RTT, its variation, and a margin. */
static harp_ns patience_of(const struct harp_path *p) {
  harp_ns usual_ns = p->rtt.smoothed_ns + 4 * p->rtt.variation_ns;
  if (!p->is_tcp) return usual_ns + PTO_MARGIN_NS;
  return HARP_MIN(usual_ns, rtt_max_of_tcp(p)) + PTO_MARGIN_TCP_NS;
}

unsigned harp_path_probe_doublings(uint32_t count) {
  if (count <= DOUBLINGS_FIRST + PROBES_OFTEN) return HARP_MIN(count, DOUBLINGS_FIRST + 0u);
  return HARP_MIN(count - PROBES_OFTEN, DOUBLINGS_MAX + 0u);
}

harp_ns harp_path_pto_ns(const struct harp_path *p) {
  if (!harp_path_owes(p)) return HARP_NEVER;
  unsigned shift = harp_path_probe_doublings(p->probe.pto_count);
  harp_ns patience_ns = patience_of(p);
  harp_ns at = p->probe.pto_from_ns + HARP_MAX(HARP_MIN(patience_ns << shift, PTO_MAX_NS), patience_ns);
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
  b->drained = false;
}

void harp_path_probe_on_drained(struct harp_path_probe *b) {
  b->drained = true;
}
