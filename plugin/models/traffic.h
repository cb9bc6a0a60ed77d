/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of one stream: which sizes are posted when, how long they took, how much has arrived.
 *
 * Owned by a flow, which posts what traffic_next allows. Three kinds: always `depth` messages under way; one
 * message each `every_ns`; steps of training, which post `step_messages`, wait until all are done, then
 * pause. */
#ifndef HARP_MODELS_TRAFFIC_H
#define HARP_MODELS_TRAFFIC_H

#include "base/base.h"

enum { TRAFFIC_DEPTH_MAX = 32 };

struct traffic {
  uint32_t message_bytes, depth;
  harp_ns start_ns;
  harp_ns every_ns;        /* 0: as soon as one is done */
  const uint64_t *allowed; /* messages that may be posted so far; NULL: all */
  uint32_t step_messages;  /* 0: no steps */
  harp_ns pause_ns;        /* between two steps */
  /* state */
  uint64_t posted, done;
  harp_ns next_ns; /* no message is posted before */
  harp_ns posted_ns[TRAFFIC_DEPTH_MAX];
  harp_ns step_ns; /* when the present step began */
  /* counted */
  uint64_t received_bytes;
  bool is_measured;
  uint32_t *took_us; /* the time of each message that was measured */
  uint32_t took_count, took_room;
  uint64_t steps, steps_ns; /* the steps that have ended while measured, and how long they took together */
};

void traffic_init(struct traffic *t);
void traffic_fini(struct traffic *t);

/* Returns when a message may be posted; HARP_NEVER: not before one is done. */
harp_ns traffic_next_ns(const struct traffic *t);

/* Counts a message as posted; returns its cookie. */
void *traffic_post(struct traffic *t, harp_ns now);

/* Counts a message as done. */
void traffic_on_done(struct traffic *t, void *cookie, harp_ns now);

#endif
