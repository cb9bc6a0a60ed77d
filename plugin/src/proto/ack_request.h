/* SPDX-License-Identifier: Apache-2.0 */
/* The requests for acknowledgements of one path: which of its packets carry one.
 *
 * Owns and alone writes struct harp_ack_request, a part of struct harp_path. Called by path.c and
 * send_take.c, whose wants_ack() adds what the streams ask for. Rules:
 *
 *   1. HARP_ACK_REQUEST_PARTS acknowledgements are requested for each window, and for each flight full of
 *      records: the receiver does not know how large these are.
 *   2. A path awaits an acknowledgement until the packet that requested one is acknowledged. */
#ifndef HARP_ACK_REQUEST_H
#define HARP_ACK_REQUEST_H

#include "base/base.h"

enum { HARP_ACK_REQUEST_PARTS = 4 };

struct harp_ack_request {
  uint64_t number;                                /* the number of the packet with the last request */
  uint32_t unrequested_bytes, unrequested_bursts; /* what was sent since that packet */
};

static inline void harp_ack_request_init(struct harp_ack_request *r, uint64_t first_number) {
  *r = (struct harp_ack_request){.number = first_number - 1};
}

/* Learns of a burst of so many bytes. */
static inline void harp_ack_request_on_sent(struct harp_ack_request *r, uint32_t bytes) {
  r->unrequested_bytes += bytes;
  r->unrequested_bursts++;
}

/* Learns that the packet of this number requests an acknowledgement. */
static inline void harp_ack_request_on_requested(struct harp_ack_request *r, uint64_t number) {
  r->number = number;
  r->unrequested_bytes = r->unrequested_bursts = 0;
}

/* Returns whether enough of a window of so many bytes, or of so many records, was used since the last
 * request. */
static inline bool harp_ack_request_is_due(const struct harp_ack_request *r, uint32_t window_bytes,
                                           uint32_t records) {
  return r->unrequested_bytes >= window_bytes / HARP_ACK_REQUEST_PARTS ||
         r->unrequested_bursts >= records / HARP_ACK_REQUEST_PARTS;
}

#endif
