/* SPDX-License-Identifier: Apache-2.0 */
/* See health.h. */
#include "io/xdp/health.h"

/* Returns whether the sends that were pending at the last check still are. */
static bool is_stalled(struct harp_xdp_health *h, const struct harp_xdp_progress *p, harp_ns now) {
  if (p->completed != h->last.completed || p->completed == h->last.sent) h->completed_ns = now;
  return now - h->completed_ns > HARP_XDP_STALL_NS;
}

/* Returns whether packets that were redirected before the last check have not been received for too long. */
static bool receives_nothing(struct harp_xdp_health *h, const struct harp_xdp_progress *p, harp_ns now) {
  bool has_received = p->received != h->last.received;
  if (has_received) h->redirected_at_progress = p->redirected;
  if (has_received || h->last.redirected <= h->redirected_at_progress + HARP_XDP_UNRECEIVED_PACKETS) {
    h->received_ns = now;
    return false;
  }
  return now - h->received_ns > HARP_XDP_UNRECEIVED_NS;
}

const char *harp_xdp_health_check(struct harp_xdp_health *h, const struct harp_xdp_progress *progress,
                                  harp_ns now) {
  bool stalled = is_stalled(h, progress, now), unreceived = receives_nothing(h, progress, now);
  h->last = *progress;
  if (stalled) return "no send was completed for 2 s";
  return unreceived ? "redirected packets do not arrive in the rx rings" : NULL;
}
