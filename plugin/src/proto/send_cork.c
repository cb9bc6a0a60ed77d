/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_cork.h"

#include "proto/send.h"

#define CORK_NS HARP_US(10)
enum { CORK_FLIGHT_BYTES = 4096, CORK_BURSTS = 3, CORK_LOOK_BURSTS = 16 };

/* The packets that were sent within CORK_NS and are not acknowledged. */
struct recent {
  uint64_t bytes;
  uint32_t bursts;
};

static void add_recent(struct recent *r, const struct harp_flight *f, harp_ns now) {
  for (uint32_t i = f->tail; i != f->head && r->bursts < CORK_LOOK_BURSTS; i--) {
    const struct harp_burst *b = harp_flight_at(f, i - 1);
    if (b->sent_ns + CORK_NS <= now) return;
    r->bytes += (uint64_t)harp_popcount(harp_burst_pending(b)) * b->packet_bytes;
    r->bursts++;
  }
}

bool harp_send_cork_holds(struct harp_sender *s, uint64_t among, harp_ns now) {
  struct harp_send_cork *k = &s->cork;
  uint64_t waiting = (uint64_t)s->load.waiting_lines * HARP_LINE_BYTES;
  struct recent sent = {0};
  HARP_EACH_BIT (i, waiting < HARP_CORK_BYTES ? among : 0) add_recent(&sent, &s->paths[i].flight, now);
  if (waiting >= HARP_CORK_BYTES || waiting >= sent.bytes ||
      (sent.bursts < CORK_BURSTS && sent.bytes < CORK_FLIGHT_BYTES)) {
    k->until_ns = HARP_NEVER;
    return false;
  }
  if (k->until_ns == HARP_NEVER) k->until_ns = now + CORK_NS;
  if (now < k->until_ns) return true;
  k->until_ns = HARP_NEVER;
  return false;
}
