/* SPDX-License-Identifier: Apache-2.0 */
/* Says from counters whether the queues of an xdp driver still work. The driver checks every 50 ms while its
 * engine is awake. What one check finds under way may be done until a later one, so that neither a burst just
 * before a check nor a process that was stopped counts as a failure. Pure functions; owned by one xdp driver.
 */
#ifndef HARP_IO_XDP_HEALTH_H
#define HARP_IO_XDP_HEALTH_H

#include "base/base.h"

/* Sends wait, and none was completed for so long: sending has failed. */
#define HARP_XDP_STALL_NS HARP_SEC(2)
/* More packets than this were handed to our sockets, and none was received for so long: receiving has failed.
 * A shorter time would count a batch as lost that is late, on a core that a hypervisor took away. */
enum { HARP_XDP_UNRECEIVED_PACKETS = 64 };
#define HARP_XDP_UNRECEIVED_NS HARP_MS(250)

/* Counters since open: of one queue, or of all together. */
struct harp_xdp_progress {
  uint64_t sent, completed; /* frames queued for the kernel, and completed by it */
  uint64_t handed, taken;   /* packets handed to our sockets by the XDP program, and received from them */
};

struct harp_xdp_health {
  struct harp_xdp_progress last; /* as of the last look */
  harp_ns completed_ns;          /* the last look that saw completions come, or nothing to complete */
  uint64_t handed_by_then;       /* `handed` at the last look that saw packets come out */
  harp_ns heard_ns;              /* the last look that saw packets come out, or few to come */
};

/* Checks; the sockets have been read and completions reaped since the last check. Returns NULL, or a clause
 * that says what has failed. Zeroed memory stands for a driver that was never checked. */
const char *harp_xdp_health_look(struct harp_xdp_health *h, const struct harp_xdp_progress *progress,
                                 harp_ns now);

#endif
