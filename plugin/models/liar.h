/* SPDX-License-Identifier: Apache-2.0 */
/* A receiver that lies in its acknowledgements, to get more of a network than its share. */
#ifndef HARP_MODELS_LIAR_H
#define HARP_MODELS_LIAR_H

#include "base/base.h"
#include "wire/packet.h"

enum lie {
  LIE_NONE,
  LIE_LOSS,       /* gaps count as arrived: no loss is ever reported */
  LIE_OPTIMISTIC, /* so do packets that are still under way */
  LIE_WINDOW,     /* the largest window is announced */
  LIE_LATE,       /* acknowledgements leave LIAR_LATE_NS later than they were made */
  LIE_DELAY,      /* all of the round trip but LIAR_RTT_NS is called the receiver's own delay */
  LIE_MARKS,      /* no packet came marked */
  LIE_WAY,        /* it says that the acknowledgement's delay was its own waiting */
  LIE_COUNT,
};
#define LIAR_LATE_NS HARP_MS(1)
#define LIAR_RTT_NS  HARP_US(100)
enum { LIAR_AHEAD_PACKETS = 8 }; /* LIE_OPTIMISTIC: the packets that are mostly under way at least */

/* Falsifies an acknowledgement that is about to leave; `round_trip_ns` is the true one, as the liar knows it.
 */
void liar_falsify(enum lie lie, struct harp_packet *ack, harp_ns round_trip_ns);

#endif
