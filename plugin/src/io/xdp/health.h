/* SPDX-License-Identifier: Apache-2.0 */
/* Tells from counters whether the queues of an xdp driver still move. The driver looks now and then; what one
 * look finds under way has until a later look to come out, so that neither a burst that arrives just before a
 * look nor a process that stood still is taken for a failure. Pure functions; owned by one xdp driver. */
#ifndef HARP_IO_XDP_HEALTH_H
#define HARP_IO_XDP_HEALTH_H

#include "base/base.h"

enum { HARP_XDP_DEAF_PACKETS = 64 };  /* handed to our sockets, and none came out: the queues are deaf */
#define HARP_XDP_STALL_NS HARP_SEC(2) /* without a completion: the queues are dead */
/* And for so long: a batch that the kernel has not shown us yet, on a core that a hypervisor took away, is
 * late and not lost. */
#define HARP_XDP_DEAF_NS HARP_MS(250)

/* Counters since open: of one queue, or of all together. */
struct harp_xdp_progress {
  uint64_t sent, completed; /* frames given to the kernel, and given back */
  uint64_t handed, taken; /* packets given to our sockets by the XDP program, and taken out of their rings */
};

struct harp_xdp_health {
  struct harp_xdp_progress last; /* as of the last look */
  harp_ns completed_ns;          /* the last look that saw completions come, or nothing to complete */
  uint64_t handed_by_then;       /* `handed` at the last look that saw packets come out */
  harp_ns heard_ns;              /* the last look that saw packets come out, or few to come */
};

/* Looks; the sockets have been read and completions reaped since the last look. Returns NULL, or a clause
 * that says what has failed. Zeroed memory is a driver that was never looked at. */
const char *harp_xdp_health_look(struct harp_xdp_health *h, const struct harp_xdp_progress *progress,
                                 harp_ns now);

#endif
