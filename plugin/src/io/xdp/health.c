/* SPDX-License-Identifier: Apache-2.0 */
/* See health.h. */
#include "io/xdp/health.h"

/* Sends that were under way at the last look are so still. */
static bool is_stalled(struct harp_xdp_health *h, const struct harp_xdp_progress *p, harp_ns now) {
  if (p->completed != h->last.completed || p->completed == h->last.sent) h->completed_ns = now;
  return now - h->completed_ns > HARP_XDP_STALL_NS;
}

/* Packets that an earlier look found handed over are still not taken, long after. */
static bool receives_nothing(struct harp_xdp_health *h, const struct harp_xdp_progress *p, harp_ns now) {
  if (p->taken != h->last.taken) h->handed_by_then = p->handed;
  if (h->last.handed <= h->handed_by_then + HARP_XDP_UNRECEIVED_PACKETS || p->taken != h->last.taken) {
    h->heard_ns = now;
    return false;
  }
  return now - h->heard_ns > HARP_XDP_UNRECEIVED_NS;
}

const char *harp_xdp_health_look(struct harp_xdp_health *h, const struct harp_xdp_progress *progress,
                                 harp_ns now) {
  bool stalled = is_stalled(h, progress, now), unreceived = receives_nothing(h, progress, now);
  h->last = *progress;
  if (stalled) return "no send was completed for 2 s";
  return unreceived ? "packets are handed to the queues and do not come out" : NULL;
}
