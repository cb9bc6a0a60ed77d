/* SPDX-License-Identifier: Apache-2.0 */
/* When the paths of a sender need attention by time alone.
 *
 * Owns and alone writes struct harp_path_timers, a part of struct harp_sender. Called by the sender's other
 * files, under the engine's lock; path_health.c runs what is due. Rules:
 *
 *   1. A path with something in flight has the loss deadline and the probe timeout.
 *   2. A path that is not UP has the next probe. Its interval doubles from HARP_PROBE_FIRST_NS on.
 *   3. A path that idles while there is work has the next probe, if there are other paths.
 *   4. A DORMANT path has only what ends its flight, or puts a tcp path to use again.
 *   5. A probe that is requested and can leave needs no timer.
 *   6. next_ns is never later than the first timer: whoever changes what a timer depends on, so that it may
 *      fall due earlier, calls harp_path_timers_on_changed. It may be earlier: then the timers are looked at
 *      once in vain. (A minimum over the paths in each pass takes a line of memory for each path.) */
#ifndef HARP_PATH_TIMERS_H
#define HARP_PATH_TIMERS_H

#include "proto/path.h"

struct harp_sender;

struct harp_path_timers {
  harp_ns next_ns; /* no timer of a path falls due before this */
};

static inline void harp_path_timers_init(struct harp_path_timers *t) {
  t->next_ns = HARP_NEVER;
}

/* Returns when the path needs attention by time alone. */
harp_ns harp_path_timers_of(const struct harp_sender *s, const struct harp_path *p);

/* Learns that the path's timers may have changed. */
void harp_path_timers_on_changed(struct harp_sender *s, const struct harp_path *p);

/* Learns that the timers of all paths may have changed: there is work again. */
static inline void harp_path_timers_on_busy(struct harp_path_timers *t, harp_ns now) {
  t->next_ns = now;
}

/* Finds the next timer anew, after those that were due ran. */
void harp_path_timers_restart(struct harp_sender *s);

#endif
