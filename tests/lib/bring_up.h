/* Answers a new sender's first probes, so that a test can begin with paths that are up. Shows no RTT. */
#ifndef HARP_TESTS_BRING_UP_H
#define HARP_TESTS_BRING_UP_H

#include <stdlib.h>

#include "proto/send.h"

/* Answers the probe that is to be sent next. */
static inline void bring_up_one(struct harp_sender *s, harp_ns now) {
  struct harp_tx_run run;
  struct harp_path *path = harp_sender_pick(s, now);
  if (!path || !harp_sender_poll(s, path, 1, &run, now) || run.type != HARP_PACKET_PROBE) abort();
  struct harp_packet p = {.type = HARP_PACKET_ACK, .path = run.path, .number = (uint32_t)run.number};
  p.ack.echo_time = harp_ticks_from_ns(now) + 1;
  p.ack.delivered = s->delivered;
  p.ack.posted = s->posted;
  p.ack.range_count = 1;
  p.ack.ranges[0].begin = (uint32_t)run.number;
  p.ack.ranges[0].end = (uint32_t)run.number + 1;
  if (harp_sender_on_ack(s, &p, harp_sender_ack_number(s, &p), now)) abort();
}

/* Takes one packet number of each path: the first one after it is the config's first_number + 1. */
static inline void bring_up(struct harp_sender *s, harp_ns now) {
  for (unsigned i = 0; i < s->path_count; i++) bring_up_one(s, now);
}

#endif
