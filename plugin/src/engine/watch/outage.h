/* SPDX-License-Identifier: Apache-2.0 */
/* Outages: interfaces, ours and the peers', over which all paths are DOWN while others are UP. An outage is
 * logged once it has lasted for a moment, and when it ends, at INFO since the job goes on; once, however many
 * engines of the process find it. This only reports: path_health.c has moved the data to other paths before.
 * Under the engine's lock. */
#ifndef HARP_OUTAGE_H
#define HARP_OUTAGE_H

#include "base/log_limit.h"

struct harp_engine;

enum { HARP_OUTAGES_MAX = 32 }; /* interfaces that are out at one time */

struct harp_outages {
  uint64_t seen;             /* changes of path states, up to the last review */
  harp_ns due_ns;            /* when to review without a change; HARP_NEVER: only after changes */
  harp_ns next_ns;           /* no review before this */
  struct harp_log_limit log; /* of their lines: peers can fall silent and answer again as they like */
  unsigned count;
  struct harp_outage {
    bool is_local, is_reported;
    uint8_t addr[16]; /* of the interface */
    harp_ns since_ns;
  } at[HARP_OUTAGES_MAX];
};

/* Reviews all paths if the state of one has changed since the last review, or if an outage has lasted long
 * enough to be logged. */
void harp_outages_review(struct harp_engine *e, harp_ns now);

/* Notes that an interface of ours is absent while the engine opens, which its owner has logged: that it works
 * is logged as the end of an outage. */
void harp_outages_expect(struct harp_engine *e, unsigned eni, harp_ns now);

/* Forgets what an engine knows, when it closes. */
void harp_outages_forget(struct harp_outages *o);

#endif
