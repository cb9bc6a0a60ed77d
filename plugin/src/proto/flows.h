/* SPDX-License-Identifier: Apache-2.0 */
/* How many of the paths between two ENIs are in use. They differ in their source ports alone, so a second one
 * brings something only where the network caps each flow; elsewhere it costs more than it brings.
 *
 * Idea (hill climbing): begin with one. When the windows are full and the network queues or drops, while the
 * rate is below the NIC's speed, try twice as many; keep them if the rate rises with them, else go back and
 * wait twice as long before the next try. What is in use is tried with half as many now and then, by the same
 * rule. The rate counts only time with something in flight, so pauses of the application do not matter.
 *
 * Part of a sender, which has one for each pair of ENIs; path_health.c wakes and rests paths accordingly. */
#ifndef HARP_FLOWS_H
#define HARP_FLOWS_H

#include "base/base.h"

struct harp_flows {
  uint64_t paths;         /* between these ENIs, a bit each */
  uint64_t speed_bytes_s; /* of our NIC; 0: unknown */
  unsigned count;         /* of `paths` */
  unsigned wanted;        /* how many are to carry data: the result */
  unsigned before;        /* wanted before the current trial; 0: there is none */
  /* How many the trials have shown to pay: each has a queue of its own. The next trial of more goes there at
   * once. */
  unsigned proven;
  unsigned pressure; /* rises with rounds that were held back by the network, falls with others */
  bool busy;         /* something is in flight */
  harp_ns seen_ns;   /* up to when `busy_ns` was counted */

  /* the current period of measurement */
  bool warm; /* it shows what `wanted` paths bring */
  harp_ns began_ns;
  harp_ns busy_ns;
  uint64_t bytes; /* acknowledged */

  uint64_t rate_bytes_s; /* before the trial */
  /* The earliest time of the next trial of more and of fewer, and the wait after the next one that fails. */
  harp_ns more_ns, fewer_ns;
  harp_ns more_wait_ns, fewer_wait_ns;
};

/* Begins with one of `paths`. */
void harp_flows_init(struct harp_flows *f, uint64_t paths, uint64_t speed_bytes_s, harp_ns now);

/* Notes that something is sent on one of the paths. */
static inline void harp_flows_on_sent(struct harp_flows *f, harp_ns now) {
  if (f->busy) return;
  f->busy = true;
  f->seen_ns = now;
}

/* Notes bytes that were acknowledged; `busy`: something is still in flight. */
static inline void harp_flows_on_acked(struct harp_flows *f, uint32_t bytes, bool busy, harp_ns now) {
  f->bytes += bytes;
  if (f->busy) f->busy_ns += now - f->seen_ns;
  f->seen_ns = now;
  f->busy = busy;
}

/* Notes a round trip on one of the paths; `held_back`: its window was full, and the network queued or lost
 * packets. Returns whether `wanted` or `proven` has changed. */
bool harp_flows_on_round(struct harp_flows *f, bool held_back, harp_ns rtt_ns, harp_ns now) HARP_MUST_CHECK;

#endif
