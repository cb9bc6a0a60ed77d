/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a sender sends next, and on which path (send.h declares harp_sender_choose; the order of its
 * rules stands in send_choose.c).
 *
 * Owns and alone writes struct harp_send_search, a part of struct harp_sender. */
#ifndef HARP_SEND_CHOOSE_H
#define HARP_SEND_CHOOSE_H

#include "proto/path.h"

/* The search for the best path (stripe.h). */
struct harp_send_search {
  unsigned start;     /* the path at which it begins, which differs from connection to connection */
  uint64_t preferred; /* paths over the ENI that this process uses first, a bit each; 0: it prefers none */
  bool waits;         /* the last one left a path unused for a better one */
};

static inline void harp_send_search_init(struct harp_send_search *h, unsigned start, uint64_t preferred) {
  *h = (struct harp_send_search){.start = start, .preferred = preferred};
}

#endif
