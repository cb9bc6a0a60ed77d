/* SPDX-License-Identifier: Apache-2.0 */
/* Congestion control of one path: how many bytes may be in flight, and how many may leave at once. One file
 * per algorithm, behind one table.
 *
 * Owned by a path (path.h), which calls on_ack after each acknowledgement that acknowledged or lost bytes,
 * with what happened since the one before. Called by the thread that runs the engine's pass. An algorithm
 * keeps its state in struct harp_cc and has no other; no clock, no floating point. cc_target.c and cc_reno.c
 * name their sources. */
#ifndef HARP_CC_H
#define HARP_CC_H

#include "proto/base_loss.h"

struct harp_cc;

/* What one acknowledgement showed. */
struct harp_cc_sample {
  harp_ns now;
  harp_ns rtt_ns;          /* of this acknowledgement, without its own way's queue; 0 if it brought none */
  harp_ns rtt_min_ns;      /* the path's base RTT */
  uint32_t acked_bytes;    /* newly acknowledged */
  uint32_t lost_bytes;     /* newly found lost */
  harp_ns lost_sent_ns;    /* when the youngest of the lost packets was sent */
  uint32_t ce_bytes;       /* newly reported as marked by the network (ECN); of packets acknowledged so far */
  uint32_t inflight_bytes; /* before this acknowledgement */
  /* All paths to the peer's interface together used at least half of its window. */
  bool peer_limited;
  /* Beside a loss: the session has other paths in use, and none of them has lost anything that counted
   * lately. */
  bool is_lossy_alone;
  /* A packet sent after the last round's end was acknowledged: one RTT has passed. */
  bool round_end;
};

/* An algorithm. */
struct harp_cc_ops {
  const char *name; /* value of HARP_CONGESTION and of the conf key */
  void (*init)(struct harp_cc *cc);
  void (*on_ack)(struct harp_cc *cc, const struct harp_cc_sample *s);
  void (*on_timeout)(struct harp_cc *cc); /* no acknowledgement for two probe timeouts or more */
  void (*on_busy)(struct harp_cc *cc, harp_ns idle_ns); /* there is work, after a time without packets */
};

/* The clock that the hosts of a job share, for drains: ours plus an offset. */
struct harp_cc_clock {
  harp_ns offset_ns;
  bool is_own; /* hosts share none: drains of different hosts do not coincide */
};

#define HARP_DRAIN_EVERY_NS     HARP_MS(128) /* least period of drains */
#define HARP_DRAIN_EVERY_MAX_NS HARP_MS(2048)

/* State of `target`; cc_target.c alone writes it. */
struct harp_cc_target {
  struct harp_cc_clock clock;
  harp_ns rtt_ns;          /* of the last acknowledgement */
  uint64_t raised_from_q8; /* the window before it was raised to the least, */
  uint64_t raised_to_q8;   /* which was this; 0: it was not raised */

  /* decisions by delay */
  harp_ns lowest_ns;        /* RTT since the last decision; HARP_NEVER: none */
  harp_ns decide_at_ns;     /* when the next decision is due */
  unsigned decide_samples;  /* RTTs since the last decision */
  bool is_stale;            /* the next round is of packets that were sent before the last decrease */
  uint64_t floor_q8;        /* delay takes no more until the next drain */
  bool is_futile;           /* the queue stays although delay has taken all that it may */
  unsigned compete_periods; /* of the shared clock, for which delay does not count: others fill the queue */
  harp_ns base_ns;          /* base RTT at the last drain; 0: none yet */
  harp_ns room_ns;          /* the longest queue ever seen, or less where that lost packets */
  harp_ns queue_max_ns;     /* the longest queue seen lately */
  harp_ns loss_queue_ns;    /* the queue at which packets were lost; HARP_NEVER: none were */

  /* decisions by loss */
  uint32_t excess_bytes; /* CUSUM: lost beyond what is tolerated */
  harp_ns cut_ns;        /* of the last decrease for loss; 0: none yet */
  unsigned hold_rounds;  /* until the effect of the last decrease for loss shows */
  struct harp_base_loss base_loss;

  /* decisions by marks (ECN) */
  bool was_mark;         /* a mark was the reason of the last decrease */
  harp_ns marked_ns;     /* the last round with a mark; 0: none yet */
  uint32_t marked_bytes; /* in the current round */
  uint32_t marked_q16;   /* smoothed share of bytes that came marked, times 2^16: DCTCP's alpha */

  /* growth */
  uint32_t ceiling_bytes; /* the window before the last decrease */
  bool was_delay;         /* the reason of the last decrease */
  unsigned samples;       /* RTTs in the current round */
  unsigned rounds;        /* in the current round of decision: windows of few packets take several */

  /* the drain */
  uint64_t period;       /* of the shared clock, counted */
  harp_ns drain_from_ns; /* 0: none is under way */
  /* the last one, also after its end: packets sent between these show the path's own loss */
  harp_ns drain_began_ns, drain_empty_ns, drain_to_ns; /* HARP_NEVER: it is under way */
  bool is_drain_open;                                  /* there was one */
  bool is_judge_due;                                   /* its packets have not been judged */
  unsigned drain_rounds;                               /* since then */
  uint64_t drain_from_q8;                              /* the window before it */
  struct harp_loss_count settled;                      /* since the last drain began */
  harp_ns drain_lowest_ns, usual_base_ns;
  bool was_filled;      /* the last drain left a queue that another flow fills */
  harp_ns drain_rtt_ns; /* the RTT before it */
  harp_ns round_rtt_ns; /* the lowest RTT of the last round; 0: none yet */
};

struct harp_cc {
  const struct harp_cc_ops *ops;
  uint32_t packet_bytes;  /* of a full packet on this path */
  harp_ns drain_every_ns; /* period of drains, for the base RTT */
  /* The result: most bytes in flight, and the same times 256. Of less than a packet: the pace keeps to it. */
  uint32_t window_bytes;
  uint64_t window_q8;
  uint32_t window_max_bytes;
  uint32_t bursts; /* the result: a window takes so many bursts at least */
  harp_ns
      queue_ns; /* the queue at the operating point: two thirds of it show that the network limits the path */
  uint32_t sharers; /* paths in use between the same ENIs, including this one */
  bool slow_start;

  /* sums of the current round */
  harp_ns round_rtt_min_ns;
  uint32_t round_acked_bytes, round_lost_bytes;
  bool round_limited; /* the window was in use */

  struct harp_cc_target target;
};

enum {
  HARP_CC_INITIAL_BYTES = 64 * 1024,   /* of all sharers together: one superframe */
  HARP_CC_BURST_MAX_BYTES = 64 * 1024, /* one superframe */
  HARP_CC_BURSTS_MIN = 4,              /* of a window: acknowledgements keep it moving */
  HARP_CC_QUEUE_NS = 50000,            /* queue_ns of algorithms that aim at none */
  HARP_CC_MIN_PACKETS = 2,             /* least window, for algorithms without pacing of single packets */
};

extern const struct harp_cc_ops harp_cc_target, harp_cc_reno;

/* Keeps the window at its maximum: for tcp paths, whose congestion the kernel controls. */
extern const struct harp_cc_ops harp_cc_fixed;

/* Returns the algorithm of that name, or NULL. */
const struct harp_cc_ops *harp_cc_find(const char *name);

/* Sets the window to the path's share of HARP_CC_INITIAL_BYTES: `sharers` paths are in use between the same
 * ENIs. Keeps the clock. */
void harp_cc_init(struct harp_cc *cc, const struct harp_cc_ops *ops, uint32_t packet_bytes,
                  uint32_t window_max_bytes, uint32_t sharers);

/* Sets the window, bounded below by HARP_CC_MIN_PACKETS packets and above by window_max_bytes. */
void harp_cc_set_window(struct harp_cc *cc, uint64_t bytes);

/* Sets by how much the clock that the hosts share is ahead of ours; is_own: they share none, and drains of
 * different hosts do not coincide. */
static inline void harp_cc_set_clock(struct harp_cc *cc, harp_ns offset_ns, bool is_own) {
  cc->target.clock = (struct harp_cc_clock){offset_ns, is_own};
}

/* A window of less than a packet lets a packet go each so many ns at least, whatever the RTT. */
#define HARP_CC_LEAST_NS HARP_MS(4)

/* A path without a loss that counted for so long, more than two periods of drains, is clean. */
#define HARP_CC_CLEAN_NS HARP_MS(300)
static inline bool harp_cc_is_clean(const struct harp_cc *cc, harp_ns now) {
  return !cc->target.cut_ns || now - cc->target.cut_ns >= HARP_CC_CLEAN_NS;
}

/* Returns whether a path's window is smaller than it may be: it is in slow start, and in use; or it was cut
 * for loss, and drains since `since_ns` have not told yet whether that is random, or it grows since they
 * have. */
static inline bool harp_cc_is_learning(const struct harp_cc *cc, harp_ns since_ns) {
  bool is_opening = cc->slow_start && cc->round_limited && cc->window_bytes < cc->window_max_bytes;
  if (!cc->target.cut_ns) return is_opening;
  const struct harp_base_loss *b = &cc->target.base_loss;
  if (harp_base_loss_is_known(b)) return cc->slow_start || b->is_presumed;
  return b->clean_ns < since_ns;
}

/* Returns the most bytes that may leave at once: a packet at least. */
static inline uint32_t harp_cc_burst_bytes(const struct harp_cc *cc) {
  uint32_t bytes = HARP_MIN(cc->window_bytes / cc->bursts, (uint32_t)HARP_CC_BURST_MAX_BYTES);
  return HARP_MAX(bytes, cc->packet_bytes);
}

/* Adds a sample to the round. Returns whether the round has ended, so that the algorithm sets a new
 * window. */
bool harp_cc_round(struct harp_cc *cc, const struct harp_cc_sample *s);

/* Returns whether the network limited the path in the round that the sample ends: the window was in use, and
 * packets queued or were lost, or the path is not clean. A policer drops a packet in one of many rounds of a
 * long RTT, and the window grows back in the others. Call it before on_ack. */
bool harp_cc_held_back(const struct harp_cc *cc, const struct harp_cc_sample *s);

/* Clears the sums of the round. */
void harp_cc_round_restart(struct harp_cc *cc);

#endif
