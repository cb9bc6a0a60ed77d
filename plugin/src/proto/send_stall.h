/* SPDX-License-Identifier: Apache-2.0 */
/* The stall of a sender: the time since which no path has answered though messages are under way.
 *
 * Owns and alone writes struct harp_send_stall, a part of struct harp_sender. Called by path_health.c and
 * send.h. Rules:
 *
 *   1. A stall begins when a path falls silent, and all others are, while messages are under way.
 *   2. The first answer of any path ends it.
 *   3. The engine may count it from now on: the peer's process was paused. */
#ifndef HARP_SEND_STALL_H
#define HARP_SEND_STALL_H

#include "base/base.h"

struct harp_sender;

struct harp_send_stall {
  harp_ns since_ns; /* 0: not stalled */
};

static inline void harp_send_stall_init(struct harp_send_stall *t) {
  t->since_ns = 0;
}

/* Learns that a path fell silent. */
void harp_send_stall_on_silence(struct harp_sender *s, harp_ns now);

/* Learns that a path answers; returns whether that ends a stall. */
static inline bool harp_send_stall_on_answer(struct harp_send_stall *t) {
  bool was_stalled = t->since_ns;
  t->since_ns = 0;
  return was_stalled;
}

/* Counts a stall from now on. */
static inline void harp_send_stall_excuse(struct harp_send_stall *t, harp_ns now) {
  if (t->since_ns) t->since_ns = now;
}

#endif
