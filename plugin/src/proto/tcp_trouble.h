/* SPDX-License-Identifier: Apache-2.0 */
/* Returns whether the kernel of a tcp path shows loss or a queue: a pure function of what it has counted. It
 * decides nothing: it is the reason to try datagrams at once (experiments.h).
 *
 * Under loss TCP repeats segments one round trip after the other and halves its window each time, while
 * datagrams repeat only what was lost. TCP also fills the queues of the network.
 *
 * Rules:
 *  1. Loss: more than one segment in HARP_TCP_LOSS_PARTS was repeated lately, and HARP_TCP_LOSS_MIN at least.
 *  2. Queue: round trips stay longer by HARP_TCP_QUEUE_NS than the shortest, for HARP_TCP_QUEUE_FOR_NS.
 *  3. What was reported counts no more: the next report needs new losses, or that long a queue again.
 *
 * Owned by the engine's tcp path, which alone calls it. No clock, no I/O. */
#ifndef HARP_TCP_TROUBLE_H
#define HARP_TCP_TROUBLE_H

#include "base/base.h"

enum {
  HARP_TCP_LOSS_PARTS = 2000,
  HARP_TCP_LOSS_MIN = 4, /* segments repeated: fewer may be an accident */
};
#define HARP_TCP_QUEUE_NS     HARP_MS(20) /* packets behind such a queue look lost */
#define HARP_TCP_QUEUE_FOR_NS HARP_MS(80) /* it lasts, or it was a pause of a host */

/* The counts of a connection's kernel since it began. They wrap. */
struct harp_tcp_sample {
  uint32_t segments;      /* the segments of data sent, the repeated ones with them */
  uint32_t retransmitted; /* the segments repeated */
  harp_ns rtt_ns;         /* the smoothed RTT */
  harp_ns rtt_min_ns;     /* 0: unknown */
};

enum harp_tcp_sign {
  HARP_TCP_SIGN_NONE,
  HARP_TCP_SIGN_LOSS,
  HARP_TCP_SIGN_QUEUE,
};

struct harp_tcp_trouble {
  struct harp_tcp_sample known; /* the counts at the last look */
  harp_ns looked_ns;            /* the time of the last look that found something sent */

  /* loss (rules 1 and 3) */
  harp_ns period_ns;                          /* the time when the period began */
  uint32_t segments, retransmitted;           /* the counts since then */
  uint32_t sign_segments, sign_retransmitted; /* the counts at the last sign of loss */

  /* queue (rule 2) */
  harp_ns queue_ns; /* the time since which round trips are too long; HARP_NEVER: they are not */
};

/* Begins a connection, whose counts start at 0. */
void harp_tcp_trouble_init(struct harp_tcp_trouble *t, harp_ns now);

/* Takes the counts of a connection; returns what they show. */
enum harp_tcp_sign harp_tcp_trouble_on_look(struct harp_tcp_trouble *t, const struct harp_tcp_sample *sample,
                                            harp_ns now) HARP_MUST_CHECK;

#endif
