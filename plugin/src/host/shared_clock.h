/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that hosts share: CLOCK_REALTIME where something disciplines it (NTP, PTP, a hypervisor). The
 * drains of the congestion control coincide by it (proto/cc_target.c), to some milliseconds.
 *
 * Owned by an engine, called under its lock. Rules:
 *   1. Each look takes over how far the shared clock is ahead of ours: a step of it counts from then on.
 *   2. Whether it is disciplined is asked with adjtimex(2) at most once in HARP_SHARED_CLOCK_ASK_NS. A kernel
 *      that refuses to say, or says that it is not, makes the clock the host's own.
 *   3. The setting `shared_clock` decides instead where it is not `auto`. */
#ifndef HARP_SHARED_CLOCK_H
#define HARP_SHARED_CLOCK_H

#include "host/setting.h"

#define HARP_SHARED_CLOCK_ASK_NS HARP_SEC(10)

struct harp_shared_clock {
  harp_ns offset_ns; /* the offset: CLOCK_REALTIME - CLOCK_MONOTONIC */
  bool is_own;       /* nothing disciplines it: hosts share none */
  harp_ns ask_ns;    /* the time to ask next; 0: now */
};

/* Looks at the clock; `c` is zeroed before the first call. Returns whether offset_ns differs by more than a
 * millisecond, or is_own, from the look before. Cannot fail. */
bool harp_shared_clock_on_time(struct harp_shared_clock *c, enum harp_shared_clock_mode mode, harp_ns now);

/* Returns whether what adjtimex(2) returned and its status say that nothing disciplines the clock. */
bool harp_shared_clock_is_own(int state, int status);

#endif
