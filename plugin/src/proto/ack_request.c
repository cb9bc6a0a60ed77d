/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/ack_request.h"

#include "proto/path.h"

bool harp_ack_request_is_due(const struct harp_path *p) {
  uint32_t window = HARP_MIN(p->cc.window_bytes, p->to->bytes);
  return p->ack_request.unrequested_bytes >= window / HARP_ACK_REQUEST_PARTS ||
         p->ack_request.unrequested_bursts >= p->flight.records / HARP_ACK_REQUEST_PARTS;
}

bool harp_ack_request_is_open(const struct harp_path *p) {
  return p->inflight_bytes && (!p->loss.any_acked || p->ack_request.number > p->loss.largest_acked);
}
