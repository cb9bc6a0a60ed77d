/* SPDX-License-Identifier: Apache-2.0 */
/* Answers a new sender's first probes, so that a test can begin with paths that are up. Shows no RTT. */
#ifndef HARP_TESTS_BRING_UP_H
#define HARP_TESTS_BRING_UP_H

#include <stdlib.h>

#include "proto/send.h"

/* Takes the first packets, at most max_packets, of what the sender chooses; false: nothing is to be sent. */
static inline bool send_next(struct harp_sender *s, uint32_t max_packets, struct harp_tx_run *run,
                             harp_ns now) {
  struct harp_tx_choice choice = harp_sender_choose(s, now);
  if (choice.kind == HARP_TX_NOTHING) return false;
  harp_sender_take(s, &choice, max_packets, run, now);
  return true;
}

/* Answers the probe that is to be sent next. */
static inline void bring_up_one(struct harp_sender *s, harp_ns now) {
  struct harp_tx_run run;
  if (!send_next(s, 1, &run, now) || run.type != HARP_PACKET_PROBE) abort();
  struct harp_packet p = {.type = HARP_PACKET_ACK, .path = run.path, .number = (uint32_t)run.number};
  p.ack.echo_time = harp_ticks_from_ns(now) + 1;
  p.ack.time = harp_ticks_from_ns(now);
  p.ack.window_bytes = HARP_WINDOW_MAX_BYTES;
  p.ack.range_count = 1;
  p.ack.ranges[0].begin = (uint32_t)run.number;
  p.ack.ranges[0].end = (uint32_t)run.number + 1;
  if (harp_sender_on_ack(s, &p, harp_sender_ack_number(s, &p), now)) abort();
}

/* Takes one packet number of each path in use: the first one after it is the config's first_number + 1. */
static inline void bring_up(struct harp_sender *s, harp_ns now) {
  for (unsigned i = 0; i < s->path_count; i++)
    if (s->paths[i].state == HARP_PATH_NEW) bring_up_one(s, now);
}

#endif
