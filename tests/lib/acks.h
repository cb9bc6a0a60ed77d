/* SPDX-License-Identifier: Apache-2.0 */
/* The acknowledgements of a receiver that can send on every path, and those that a test makes up. */
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

/* Returns one of packets [begin, end) of a path, with the credit of a stream for messages before `posted`. */
static inline struct harp_packet make_ack(uint16_t stream, uint8_t path, uint32_t begin, uint32_t end,
                                          uint32_t posted) {
  struct harp_packet p = {.type = HARP_PACKET_ACK, .path = path};
  p.ack.window_bytes = HARP_WINDOW_MAX_BYTES;
  p.ack.credit_count = 1;
  p.ack.credits[0] = (struct harp_credit){stream, posted};
  p.ack.range_count = begin != end;
  p.ack.ranges[0].begin = begin;
  p.ack.ranges[0].end = end;
  return p;
}

#endif
