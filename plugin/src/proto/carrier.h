/* SPDX-License-Identifier: Apache-2.0 */
/* Whether large messages go over a tcp path or over datagrams: a pure function of what its kernel has
 * measured.
 *
 * Without loss TCP moves large messages with less CPU. With loss it repeats segments one round trip after the
 * other and halves its window each time, while datagrams repeat only what was lost (docs/benchmarks/tcp.md).
 * TCP also fills the queues of the network, while the delay-based control of datagrams keeps them short. So a
 * tcp path is avoided for a while when its kernel repeats more than one segment in HARP_CARRIER_LOSS_PARTS,
 * or when its round trips stay longer by HARP_CARRIER_QUEUE_NS than the shortest; then it is used again. Each
 * further time it is avoided for twice as long. After HARP_CARRIER_GOOD_NS of use without a reason the next
 * time is short again. One for each tcp path; no clock, no I/O. */
#ifndef HARP_CARRIER_H
#define HARP_CARRIER_H

#include "base/base.h"

enum {
  HARP_CARRIER_LOSS_PARTS = 2000,
  HARP_CARRIER_LOSS_MIN = 4, /* segments repeated: fewer may be an accident */
};
#define HARP_CARRIER_QUEUE_NS     HARP_MS(20) /* packets behind such a queue look lost */
#define HARP_CARRIER_QUEUE_FOR_NS HARP_MS(80) /* it lasts, or it was a pause of a host */
#define HARP_CARRIER_AVOID_NS     HARP_SEC(1)
#define HARP_CARRIER_AVOID_MAX_NS HARP_SEC(64)
/* Of use without a reason: then it is avoided as briefly as the first time. */
#define HARP_CARRIER_GOOD_NS HARP_SEC(10)

/* What a connection's kernel has counted since it began. Wraps. */
struct harp_carrier_sample {
  uint32_t segments;      /* of data, sent, the repeated ones with them */
  uint32_t retransmitted; /* of them repeated */
  harp_ns rtt_ns;         /* smoothed */
  harp_ns rtt_min_ns;     /* 0: unknown */
};

enum harp_carrier_why {
  HARP_CARRIER_LOSS,
  HARP_CARRIER_QUEUE,
};

/* Returns a reason in words. */
static inline const char *harp_carrier_why_name(enum harp_carrier_why why) {
  return why == HARP_CARRIER_LOSS ? "loss" : "long queue";
}

struct harp_carrier {
  bool avoided;                     /* the result */
  enum harp_carrier_why why;        /* it is, or was the last time */
  harp_ns until_ns;                 /* while avoided */
  harp_ns avoid_ns;                 /* how long it is avoided the next time */
  harp_ns since_ns;                 /* in use since */
  harp_ns period_ns;                /* the counts below began */
  struct harp_carrier_sample known; /* at the last look */
  uint32_t segments, retransmitted; /* of the period */
  harp_ns looked_ns;                /* last, with something sent */
  harp_ns queue_ns;                 /* round trips are too long since then; HARP_NEVER: they are not */
};

void harp_carrier_init(struct harp_carrier *c, harp_ns now);

/* Begins a new connection, whose counts start at 0. Keeps `avoided` and for how long. */
void harp_carrier_restart(struct harp_carrier *c, harp_ns now);

/* Feeds the counts of a connection; returns whether `avoided` has changed. */
bool harp_carrier_on_look(struct harp_carrier *c, const struct harp_carrier_sample *sample,
                          harp_ns now) HARP_MUST_CHECK;

/* Ends `avoided` when its time is over; returns whether `avoided` has changed. */
bool harp_carrier_on_time(struct harp_carrier *c, harp_ns now) HARP_MUST_CHECK;

#endif
