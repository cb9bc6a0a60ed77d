/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the engine's reports of the kernel's side of a sender's tcp paths; send.h declares these functions.
 *
 * Alone writes whether a path is blocked. Rules:
 *
 *   1. A path is blocked, which means that it takes nothing, while it is not connected, and while the kernel
 *      has not taken all of its last record.
 *   2. A path that stays blocked times out like one that does not answer.
 *   3. Whatever the kernel gets acknowledged starts the probe timeout over. When there is no answer for
 *      HARP_PROBE_PROGRESS_NS all the same, a probe requests one: the kernel may progress with
 *      acknowledgements for the other direction, and the one that is waited for may have been lost with
 *      another connection.
 *   4. A path that is not UP is probed as soon as it is no longer blocked.
 *   5. A look at one kernel's queue may change what all paths of the session are taken for (tcp_speed.h). */
#include "base/assert.h"
#include "proto/send.h"

void harp_sender_block(struct harp_sender *s, unsigned path, harp_ns now) {
  struct harp_path *p = &s->paths[path];
  HARP_ASSERT(p->is_tcp);
  if (!p->blocked && !p->inflight_bytes) harp_path_probe_restart_pto(&p->probe, now);
  p->blocked = true;
  p->cc.round_limited = true; /* the kernel holds as much as it takes */
  harp_path_timers_on_changed(s, p);
}

void harp_sender_unblock(struct harp_sender *s, unsigned path, harp_ns now) {
  struct harp_path *p = &s->paths[path];
  harp_sender_on_progress(s, path, now);
  p->blocked = false;
  if (p->state == HARP_PATH_UP || p->state == HARP_PATH_DORMANT || s->set.probes_due & harp_path_bit(p))
    return;
  harp_path_probe_on_probe(&p->probe, now);
  harp_path_set_request_probe(s, p);
}

void harp_sender_on_progress(struct harp_sender *s, unsigned path, harp_ns now) {
  struct harp_path *p = &s->paths[path];
  if ((p->state != HARP_PATH_UP && p->state != HARP_PATH_DORMANT) || !harp_path_owes(p)) return;
  bool was_late = p->probe.pto_count;
  harp_path_probe_on_progress(&p->probe, now);
  if (harp_unlikely(was_late)) harp_path_pairs_update(s, p, now);
  if (!p->inflight_bytes || p->state == HARP_PATH_DORMANT) { /* blocked, or not to be probed */
    harp_path_timers_on_changed(s, p);
    return;
  }
  harp_ns sent_ns = harp_flight_at(&p->flight, p->flight.head)->sent_ns;
  harp_ns since_ns = HARP_MAX(HARP_MAX(p->probe.last_ack_ns, p->probe.probed_ns), sent_ns);
  if (now - since_ns >= HARP_PROBE_PROGRESS_NS && !harp_flight_is_full(&p->flight))
    harp_path_set_request_probe(s, p);
  harp_path_timers_on_changed(s, p);
}

void harp_sender_on_queue(struct harp_sender *s, unsigned path, uint64_t left_bytes, uint32_t unsent_bytes,
                          harp_ns now) {
  HARP_ASSERT(s->paths[path].is_tcp);
  struct harp_tcp_proofs proofs = {0};
  harp_tcp_speed_on_look(&s->paths[path].speed.tcp, left_bytes, unsent_bytes, now);
  for (unsigned i = 0; i < s->path_count; i++)
    if (s->paths[i].is_tcp) harp_tcp_proofs_add(&proofs, &s->paths[i].speed.tcp);
  harp_tcp_speeds_follow(&s->tcp_speeds, &proofs, now);
  for (unsigned i = 0; i < s->path_count; i++)
    if (s->paths[i].is_tcp) harp_path_speed_follow(&s->paths[i], &s->tcp_speeds, now);
}
