/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_probing.h"

#include "base/assert.h"
#include "proto/send.h"

void harp_path_probing_begin(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  HARP_ASSERT(p->state == HARP_PATH_NEW || p->state == HARP_PATH_DOWN);
  harp_path_probe_begin(&p->probe, p->next_number, now);
  harp_path_set_request_probe(s, p);
  harp_path_timers_on_changed(s, p);
}

void harp_path_probing_on_down(struct harp_sender *s, const struct harp_path *p) {
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *q = &s->paths[i];
    bool shares_eni = q->local_eni == p->local_eni || q->remote_eni == p->remote_eni;
    bool carries = s->set.eligible & harp_path_bit(q) || q->inflight_bytes;
    if (shares_eni && q->state == HARP_PATH_UP && !carries && !q->standby) harp_path_set_request_probe(s, q);
  }
}

void harp_path_probing_on_pto(struct harp_sender *s, const struct harp_path *p) {
  uint64_t among = p->probe.pto_count < HARP_PATH_DOUBTFUL_PTOS ? s->set.eligible : ~0ull;
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *q = &s->paths[i];
    bool is_few = q->standby && !(s->set.eligible & harp_path_bit(q)); /* path_pairs.h chooses among them */
    if (q == p || q->state != HARP_PATH_UP || harp_path_owes(q) || !(among & harp_path_bit(q)) || is_few)
      continue;
    if (!harp_flight_is_full(&q->flight)) harp_path_set_request_probe(s, q);
  }
}

void harp_path_probing_on_stall_end(struct harp_sender *s) {
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *q = &s->paths[i];
    if (q->state != HARP_PATH_DORMANT && harp_path_is_silent(q) && !harp_flight_is_full(&q->flight))
      harp_path_set_request_probe(s, q);
  }
}

void harp_path_probing_probe_quiet(struct harp_sender *s, harp_ns quiet_ns, harp_ns now) {
  uint32_t checked = 0; /* ENIs of ours over which packets came or that are about to be probed, a bit each */
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    if (p->state == HARP_PATH_UP && (p->inflight_bytes || now - p->probe.last_ack_ns < quiet_ns))
      checked |= 1u << p->local_eni;
  }
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    if (p->state != HARP_PATH_UP || checked >> p->local_eni & 1) continue;
    harp_path_set_request_probe(s, p);
    checked |= 1u << p->local_eni;
  }
}
