/* SPDX-License-Identifier: Apache-2.0 */
/* Decides from counters whether the queues of an xdp driver still work.
 *
 * The driver checks every 50 ms while its engine is awake. A check never fails on work that the previous
 * check did not see: a burst just before a check, or a process that was stopped, is no failure. Pure
 * functions; the state belongs to one xdp driver, and its thread calls them. */
#ifndef HARP_IO_XDP_HEALTH_H
#define HARP_IO_XDP_HEALTH_H

#include "base/base.h"

/* Sending has failed when sends are pending and none has completed for so long. */
#define HARP_XDP_STALL_NS HARP_SEC(2)
/* Receiving has failed when more packets than this were redirected to the sockets and none was received for
 * so long. A shorter time would take a delayed batch for a lost one when a hypervisor preempts the core. */
enum { HARP_XDP_UNRECEIVED_PACKETS = 64 };
#define HARP_XDP_UNRECEIVED_NS HARP_MS(250)

/* Counters since open, of one queue or of all queues. */
struct harp_xdp_progress {
  uint64_t sent, completed;      /* frames put into the tx ring, frames completed by the kernel */
  uint64_t redirected, received; /* packets redirected by the XDP program, packets taken from the rx rings */
};

struct harp_xdp_health {
  struct harp_xdp_progress last;   /* at the last check */
  harp_ns completed_ns;            /* last check with new completions, or with nothing to complete */
  uint64_t redirected_at_progress; /* `redirected` at the last check with newly received packets */
  harp_ns received_ns;             /* last check with newly received packets, or with few to receive */
};

/* Checks once. The caller has read the sockets and reaped completions since the previous check. Returns NULL,
 * or a clause with what has failed. Zeroed memory is the state before the first check. */
const char *harp_xdp_health_check(struct harp_xdp_health *h, const struct harp_xdp_progress *progress,
                                  harp_ns now);

#endif
