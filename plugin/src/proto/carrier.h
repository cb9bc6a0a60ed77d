/* SPDX-License-Identifier: Apache-2.0 */
/* Whether large messages go over a tcp path or over datagrams: a pure function of what its kernel has
 * measured.
 *
 * Without loss TCP moves large messages for less CPU; with loss it repeats segments one round trip after the
 * other, and halves its window each time, while datagrams lose what was lost and no more
 * (docs/benchmarks.md). A tcp path whose kernel repeats more than one segment in HARP_CARRIER_LOSS_PARTS is
 * avoided for a while, then used again. Each further time it is avoided for twice as long. After
 * HARP_CARRIER_GOOD_NS of use without such loss the next time is short again. One for each tcp path; no
 * clock, no I/O. */
#ifndef HARP_CARRIER_H
#define HARP_CARRIER_H

#include "base/base.h"

enum {
  HARP_CARRIER_LOSS_PARTS = 2000,
  HARP_CARRIER_LOSS_MIN = 4, /* segments repeated: fewer may be an accident */
};
#define HARP_CARRIER_REST_NS     HARP_SEC(1)
#define HARP_CARRIER_REST_MAX_NS HARP_SEC(64)
#define HARP_CARRIER_GOOD_NS     HARP_SEC(10) /* of use without such loss: the next rest is the first one */

/* What a connection's kernel has counted since it began. Wraps. */
struct harp_carrier_sample {
  uint32_t segments;      /* of data, sent, the repeated ones with them */
  uint32_t retransmitted; /* of them repeated */
};

struct harp_carrier {
  bool avoided;                     /* the result */
  harp_ns until_ns;                 /* while avoided */
  harp_ns rest_ns;                  /* the next rest */
  harp_ns since_ns;                 /* in use since */
  harp_ns period_ns;                /* the counts below began */
  struct harp_carrier_sample known; /* at the last look */
  uint32_t segments, retransmitted; /* of the period */
};

void harp_carrier_init(struct harp_carrier *c, harp_ns now);

/* A new connection begins: its kernel counts from 0. What was learned stays. */
void harp_carrier_restart(struct harp_carrier *c, harp_ns now);

/* Takes a look at a connection; returns whether `avoided` has changed. */
bool harp_carrier_on_look(struct harp_carrier *c, const struct harp_carrier_sample *sample,
                          harp_ns now) HARP_MUST_CHECK;

/* Lets it be tried again when its rest is over; returns whether `avoided` has changed. */
bool harp_carrier_on_time(struct harp_carrier *c, harp_ns now) HARP_MUST_CHECK;

#endif
