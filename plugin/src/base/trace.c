/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trace.h"

#define X(name, part, text) #name " " #part " " text "\n"
const char harp_trace_schema[] = HARP_EVENTS(X);
#undef X
const uint32_t harp_trace_schema_bytes = sizeof harp_trace_schema - 1;

void harp_trace_init(struct harp_trace_ring *ring) {
  static const uint32_t slots[] = {HARP_TRACE_FLOW_SLOTS, HARP_TRACE_RECOVERY_SLOTS, HARP_TRACE_STATE_SLOTS};
  ring->rare_count = 0;
  for (unsigned part = 0; part < HARP_TRACE_PARTS; part++) {
    struct harp_trace_entry *first = harp_trace_slot(ring, (enum harp_trace_part)part, 0);
    ring->heads[part].at_bytes = (uint32_t)((char *)first - (char *)ring);
    ring->heads[part].slots = slots[part];
    atomic_store_explicit(&ring->heads[part].count, 0, memory_order_release);
  }
}
