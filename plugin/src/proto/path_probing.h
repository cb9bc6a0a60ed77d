/* SPDX-License-Identifier: Apache-2.0 */
/* The probes that a sender sends on its paths when something happens to another path.
 *
 * No state of its own: it requests probes (path_set.h) and begins those of a path (path_probe.h). Called by
 * the sender's other files, under the engine's lock. Rules:
 *
 *   1. A path that is NEW or goes DOWN is probed until it answers.
 *   2. When a path goes DOWN, idle paths over the same ENIs are probed, which may have failed with it. Paths
 *      that carry data need no probe.
 *   3. When a path times out and no other progresses, idle paths are probed: whether they answer shows
 *      whether the peer is there. At the first timeout, which a peer that is only slow causes too, paths that
 *      carry no data are left alone.
 *   Of standby paths rules 2 and 3 take a few, which path_pairs.h chooses.
 *   4. When a path answers after all were silent, the others are probed, which may answer again too.
 *   5. On request one path of each of our ENIs is probed over which nothing has come for a while. */
#ifndef HARP_PATH_PROBING_H
#define HARP_PATH_PROBING_H

#include "proto/path.h"

struct harp_sender;

/* Rule 1. */
void harp_path_probing_begin(struct harp_sender *s, struct harp_path *p, harp_ns now);
/* Rule 2: `p` is about to go DOWN. */
void harp_path_probing_on_down(struct harp_sender *s, const struct harp_path *p);
/* Rule 3: `p` has timed out. */
void harp_path_probing_on_pto(struct harp_sender *s, const struct harp_path *p);
/* Rule 4. */
void harp_path_probing_on_stall_end(struct harp_sender *s);
/* Rule 5. */
void harp_path_probing_probe_quiet(struct harp_sender *s, harp_ns quiet_ns, harp_ns now);

#endif
