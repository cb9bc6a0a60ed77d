/* SPDX-License-Identifier: Apache-2.0 */
/* Explicit congestion notification: the two low bits of the IPv4 TOS octet and of the IPv6 traffic class.
 *
 * A sender marks its packets as ECT(0); a switch whose queue is long changes that to CE instead of dropping
 * the packet. The other six bits are the DSCP. Source: RFC 3168, section 5. */
#ifndef HARP_IO_ECN_H
#define HARP_IO_ECN_H

#include "base/base.h"

enum {
  HARP_ECN_NOT_ECT = 0, /* the sender does not use ECN */
  HARP_ECN_ECT0 = 2,    /* it does; no congestion */
  HARP_ECN_CE = 3,      /* congestion experienced */
  HARP_ECN_MASK = 3,
};

/* Returns the traffic class of a packet. traffic_class: DSCP << 2, or -1 for 0. */
static inline int harp_ecn_traffic_class(int traffic_class, bool ect) {
  return HARP_MAX(traffic_class, 0) | (ect ? HARP_ECN_ECT0 : HARP_ECN_NOT_ECT);
}

/* Returns whether a packet of this traffic class was marked as CE. */
static inline bool harp_ecn_is_ce(int traffic_class) {
  return (traffic_class & HARP_ECN_MASK) == HARP_ECN_CE;
}

#endif
