/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_timers.h"

#include "proto/send.h"

static harp_ns probe_interval_ns(const struct harp_sender *s, const struct harp_path *p) {
  bool is_rare = !s->load.messages || p->standby || p->probe.count >= HARP_PROBE_OFTEN_COUNT;
  harp_ns most_ns = is_rare ? HARP_PROBE_RARE_NS : HARP_PROBE_MAX_NS;
  return HARP_MIN(HARP_PROBE_FIRST_NS << harp_path_probe_doublings(p->probe.count), most_ns);
}

harp_ns harp_path_timers_of(const struct harp_sender *s, const struct harp_path *p) {
  bool leaves = s->set.probes_due & harp_path_bit(p) && !p->blocked; /* a probe, at once */
  if (p->state == HARP_PATH_DORMANT)
    return p->inflight_bytes ? HARP_MIN(p->loss.deadline_ns, harp_path_pto_ns(p)) : HARP_NEVER;
  if (p->state != HARP_PATH_UP) return leaves ? HARP_NEVER : p->probe.probed_ns + probe_interval_ns(s, p);
  if (leaves) return p->loss.deadline_ns;
  if (harp_path_owes(p)) return HARP_MIN(p->loss.deadline_ns, harp_path_pto_ns(p));
  if (s->path_count == 1 || !s->load.messages) return HARP_NEVER;
  if (s->set.eligible & harp_path_bit(p)) return p->probe.last_ack_ns + HARP_PROBE_IDLE_NS;
  return p->standby ? HARP_NEVER
                    : p->probe.last_ack_ns + HARP_PROBE_DETOUR_NS; /* those are checked in turn */
}

void harp_path_timers_on_changed(struct harp_sender *s, const struct harp_path *p) {
  s->timers.next_ns = HARP_MIN(s->timers.next_ns, harp_path_timers_of(s, p));
}

void harp_path_timers_restart(struct harp_sender *s) {
  s->timers.next_ns = HARP_NEVER;
  for (unsigned i = 0; i < s->path_count; i++) harp_path_timers_on_changed(s, &s->paths[i]);
}
