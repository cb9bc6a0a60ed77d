/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_timers.h"

#include "proto/send.h"

/* Intervals between probes of a path that is not UP. */
#define PROBE_FIRST_NS HARP_MS(2)  /* the first; they double (path_probe.h) */
#define PROBE_MAX_NS   HARP_MS(50) /* at most, for the first PROBES_OFTEN probes */
#define PROBE_RARE_NS  HARP_SEC(1) /* at most, later, of a standby path, or without messages under way */
enum { PROBES_OFTEN = 100 };
/* Interval of probes on a path that is idle while there is work: they keep its RTT and state fresh. */
#define IDLE_PROBE_NS   HARP_MS(500)
#define DETOUR_PROBE_NS HARP_SEC(5) /* where others between the same ENIs make no detour */

static harp_ns probe_interval_ns(const struct harp_sender *s, const struct harp_path *p) {
  bool is_rare = !s->load.messages || p->standby || p->probe.count >= PROBES_OFTEN;
  harp_ns most_ns = is_rare ? PROBE_RARE_NS : PROBE_MAX_NS;
  return HARP_MIN(PROBE_FIRST_NS << harp_path_probe_doublings(p->probe.count), most_ns);
}

harp_ns harp_path_timers_of(const struct harp_sender *s, const struct harp_path *p) {
  bool leaves = s->set.probes_due & harp_path_bit(p) && !p->blocked; /* a probe, at once */
  if (p->state == HARP_PATH_DORMANT)
    return p->inflight_bytes ? HARP_MIN(p->loss.deadline_ns, harp_path_pto_ns(p)) : HARP_NEVER;
  if (p->state != HARP_PATH_UP) return leaves ? HARP_NEVER : p->probe.probed_ns + probe_interval_ns(s, p);
  if (leaves) return p->loss.deadline_ns;
  if (harp_path_owes(p)) return HARP_MIN(p->loss.deadline_ns, harp_path_pto_ns(p));
  if (s->path_count == 1 || !s->load.messages) return HARP_NEVER;
  if (s->set.eligible & harp_path_bit(p)) return p->probe.last_ack_ns + IDLE_PROBE_NS;
  return p->standby ? HARP_NEVER : p->probe.last_ack_ns + DETOUR_PROBE_NS; /* those are checked in turn */
}

void harp_path_timers_on_changed(struct harp_sender *s, const struct harp_path *p) {
  s->timers.next_ns = HARP_MIN(s->timers.next_ns, harp_path_timers_of(s, p));
}

void harp_path_timers_restart(struct harp_sender *s) {
  s->timers.next_ns = HARP_NEVER;
  for (unsigned i = 0; i < s->path_count; i++) harp_path_timers_on_changed(s, &s->paths[i]);
}
