/* SPDX-License-Identifier: Apache-2.0 */
/* The acknowledgements of a receiver that can send on every path. */
#ifndef TESTS_ACKS_H
#define TESTS_ACKS_H

#include "proto/recv.h"

/* Takes the next acknowledgement that is due, ready to encode but for the token; false when none is. */
static inline bool poll_ack(struct harp_receiver *r, struct harp_packet *ack, uint64_t *number, harp_ns now) {
  int path = harp_receiver_next_ack(r, 0, now);
  if (path < 0) return false;
  harp_receiver_take_ack(r, (unsigned)path, ack, number, now);
  return true;
}

#endif
