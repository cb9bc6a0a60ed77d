/* Which interfaces, ours and the peers', do not work any more though others do: told once at WARN when that
 * begins, and at INFO when it ends. Nothing is decided here; the paths have done that. Under the engine's
 * lock. */
#ifndef HARP_OUTAGE_H
#define HARP_OUTAGE_H

#include "base/base.h"

struct harp_engine;

enum { HARP_OUTAGES_MAX = 32 }; /* interfaces that are known to be out at one time */

struct harp_outages {
  uint64_t seen; /* changes of paths that were looked at */
  unsigned count;
  struct harp_outage {
    bool is_local;
    uint8_t addr[16]; /* of the interface */
  } at[HARP_OUTAGES_MAX];
};

/* Looks whether the state of a path has changed since the last review, and if so reviews all. */
void harp_outages_review(struct harp_engine *e);

#endif
