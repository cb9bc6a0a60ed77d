/* SPDX-License-Identifier: Apache-2.0 */
/* Congestion control of one path: how many bytes may be in flight. One file per algorithm, behind one table.
 *
 * Owned by a path (path.h), which calls on_ack after each acknowledgement that acknowledged or lost bytes,
 * with what happened since the one before. Called by the thread that runs the engine's pass. An algorithm
 * keeps its state in struct harp_cc and has no other; no clock, no floating point. cc_delay.c and cc_reno.c
 * name their sources. */
#ifndef HARP_CC_H
#define HARP_CC_H

#include "base/base.h"

/* An RTT above 5/4 of the base RTT by more than this counts as a queue. It keeps a software receiver busy. */
#define HARP_CC_QUEUE_NS HARP_US(100)

struct harp_cc;

/* What one acknowledgement showed. */
struct harp_cc_sample {
  harp_ns now;
  harp_ns rtt_ns;          /* of this acknowledgement; 0 if it brought none */
  harp_ns rtt_min_ns;      /* the path's base RTT */
  uint32_t acked_bytes;    /* newly acknowledged */
  uint32_t lost_bytes;     /* newly found lost */
  uint32_t ce_bytes;       /* newly reported as marked by the network (ECN); of packets acknowledged so far */
  uint32_t inflight_bytes; /* before this acknowledgement */
  /* All paths to the peer's interface together used at least half of its window. */
  bool peer_limited;
  /* A packet sent after the last round's end was acknowledged: one RTT has passed. */
  bool round_end;
};

/* An algorithm. */
struct harp_cc_ops {
  const char *name; /* value of HARP_CONGESTION and of the conf key */
  void (*init)(struct harp_cc *cc);
  void (*on_ack)(struct harp_cc *cc, const struct harp_cc_sample *s);
  void (*on_timeout)(struct harp_cc *cc); /* no acknowledgement for two probe timeouts or more */
};

struct harp_cc {
  const struct harp_cc_ops *ops;
  uint32_t packet_bytes; /* of a full packet on this path */
  uint32_t window_bytes; /* the result: most bytes in flight */
  uint32_t window_max_bytes;
  uint32_t sharers; /* paths in use between the same ENIs, including this one */
  bool slow_start;

  /* sums of the current round */
  harp_ns round_rtt_min_ns;
  uint32_t round_acked_bytes, round_lost_bytes;
  bool round_limited; /* the window was in use */

  /* state of the algorithms; levels are shares of bytes lost, in 1/16 permille */
  uint32_t loss_permille_q4; /* smoothed */
  uint32_t good_rounds;      /* since the last decrease */
  /* Loss without a queue: the level at the first decrease for it, and the rounds since. */
  uint32_t cut_level_q4, cut_rounds;
  uint32_t loss_excused_q4; /* the level that decreases did not reduce: not congestion */
  uint32_t decrease_hold;   /* rounds until the next decrease for loss */
};

enum {
  HARP_CC_INITIAL_BYTES = 256 * 1024, /* of all sharers together */
  HARP_CC_MIN_PACKETS = 8,            /* of all sharers together */
  HARP_CC_SHARE_MIN_PACKETS = 2,      /* of one path */
};

extern const struct harp_cc_ops harp_cc_delay, harp_cc_reno;

/* Keeps the window at its maximum: for tcp paths, whose congestion the kernel controls. */
extern const struct harp_cc_ops harp_cc_fixed;

/* Returns the algorithm of that name, or NULL. */
const struct harp_cc_ops *harp_cc_find(const char *name);

/* Sets the window to the path's share of HARP_CC_INITIAL_BYTES: `sharers` paths are in use between the same
 * ENIs. */
void harp_cc_init(struct harp_cc *cc, const struct harp_cc_ops *ops, uint32_t packet_bytes,
                  uint32_t window_max_bytes, uint32_t sharers);

/* Returns the least window: the path's share of HARP_CC_MIN_PACKETS packets. */
uint32_t harp_cc_min_bytes(const struct harp_cc *cc);

/* Sets the window, bounded below by harp_cc_min_bytes and above by window_max_bytes. */
void harp_cc_set_window(struct harp_cc *cc, uint64_t bytes);

/* Adds a sample to the round. Returns whether the round has ended, so that the algorithm sets a new
 * window. */
bool harp_cc_round(struct harp_cc *cc, const struct harp_cc_sample *s);

/* Returns whether the network limited the path in the round that the sample ends: the window was in use, and
 * packets queued or were lost. Call it before on_ack. */
bool harp_cc_held_back(const struct harp_cc *cc, const struct harp_cc_sample *s);

/* Clears the sums of the round. */
void harp_cc_round_restart(struct harp_cc *cc);

#endif
