/* SPDX-License-Identifier: Apache-2.0 */
/* Outages: interfaces, ours and the peers', over which all paths are DOWN while others are UP. An outage is
 * logged once it has lasted for a moment, and when it ends, at INFO since the job goes on; once, however many
 * peers and engines of the process find it. This only reports: path_health.c has moved the data to other
 * paths before. Under the engine's lock.
 *
 * A review asks all peers about our interfaces, then each about its own: paths over one of ours that is out
 * show nothing of the peer's. A call looks at a few peers, so a review of many takes several. */
#ifndef HARP_OUTAGE_H
#define HARP_OUTAGE_H

#include "base/log_limit.h"
#include "wire/control.h"

struct harp_engine;
struct harp_peer;

enum { HARP_OUTAGE_PEERS_PER_CALL = 16 };

enum harp_outages_stage { HARP_OUTAGES_IDLE, HARP_OUTAGES_OURS, HARP_OUTAGES_THEIRS };

/* The state of an interface; all zero: it works, or nothing is known. */
struct harp_outage {
  bool is_out, is_reported;
  uint8_t addr[16];
  harp_ns since_ns;
};

struct harp_outages {
  uint64_t seen;             /* the changes of path states up to the last review */
  harp_ns due_ns;            /* the time of a review without a change; HARP_NEVER: only after changes */
  harp_ns next_ns;           /* no review begins before this time */
  struct harp_log_limit log; /* the limit of lines about ours, whose peers may fall silent at will */
  unsigned count;            /* the number of interfaces that are out, the peers' too */
  struct harp_outage ours[HARP_ENDPOINT_ENIS_MAX];

  /* the review under way */
  enum harp_outages_stage stage;
  uint32_t slot, left; /* the state of the walk over the peers */
  uint32_t used, works,
      fails; /* our interfaces that are used, that work and that fail, by the peers so far; a bit each */
};

/* Begins a review if the state of a path has changed since the last one, or if an outage has lasted long
 * enough to be logged; goes on with one that is under way. */
void harp_outages_on_pass(struct harp_engine *e, harp_ns now);

/* Begins the outage of an interface of ours that is absent while the engine opens. The engine's owner has
 * logged that; the end is logged as that of any outage. */
void harp_outages_expect(struct harp_engine *e, unsigned eni, harp_ns now);

/* Forgets what is known of a peer's interfaces, when that goes or has no links. */
void harp_outages_forget_peer(struct harp_peer *peer);

/* Forgets what an engine knows, when it closes, after its peers. */
void harp_outages_forget(struct harp_outages *o);

#endif
