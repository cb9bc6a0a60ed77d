/* SPDX-License-Identifier: Apache-2.0 */
/* Which interfaces, ours and the peers', do not work any more though others do: told at WARN when that has
 * lasted for a moment, and at INFO when it ends; once, however many engines of the process find it. Nothing
 * is decided here; the paths have done that long before. Under the engine's lock. */
#ifndef HARP_OUTAGE_H
#define HARP_OUTAGE_H

#include "base/base.h"

struct harp_engine;

enum { HARP_OUTAGES_MAX = 32 }; /* interfaces that are known to be out at one time */

struct harp_outages {
  uint64_t seen;   /* changes of paths that were looked at */
  harp_ns due_ns;  /* when to look again in any case, HARP_NEVER: only after changes; 0 at first */
  harp_ns next_ns; /* not before this again */
  unsigned count;
  struct harp_outage {
    bool is_local, is_reported;
    uint8_t addr[16]; /* of the interface */
    harp_ns since_ns;
  } at[HARP_OUTAGES_MAX];
};

/* Reviews all paths if the state of one has changed since the last review, or if an outage has lasted long
 * enough to be told. */
void harp_outages_review(struct harp_engine *e, harp_ns now);

/* Forgets what an engine knows, when it closes. */
void harp_outages_forget(struct harp_outages *o);

#endif
