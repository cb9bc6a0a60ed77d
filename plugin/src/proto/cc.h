/* SPDX-License-Identifier: Apache-2.0 */
/* Congestion control of one path: how many bytes may be in flight, and how many may leave at once. One file
 * per algorithm, behind one table.
 *
 * Owns struct harp_cc, a part of struct harp_path. cc.c writes the sums of the round, the path's algorithm
 * (cc_target.c, cc_reno.c) the results. send_window.c writes the largest window; path_pairs.c writes the
 sharers

 * and divides windows; send_tcp.c marks a round as limited in which the kernel blocked the path. An algorithm
 has no other state, no clock and no floating point. Called by the sender,
 * from the thread that runs the engine's pass. Rules:
 *
 *   1. on_ack is called after each acknowledgement that acknowledged or lost bytes, with what has happened
 *      since the one before.
 *   2. A round ends when a packet is acknowledged that was sent after the last round ended. The algorithm
 *      then sets the window and restarts the sums.
 *   3. The first window is the path's share of HARP_CC_INITIAL_BYTES.
 *   4. A tcp path has a fixed window: its kernel controls congestion.
 *
 * cc_target.c has the table of constants of `target`. */
#ifndef HARP_CC_H
#define HARP_CC_H

#include "proto/base_loss.h"

struct harp_cc;

/* The sample of one acknowledgement. */
struct harp_cc_sample {
  harp_ns now;
  harp_ns rtt_ns;       /* the RTT of this acknowledgement, less the queue on its own way; 0: it has none */
  harp_ns rtt_min_ns;   /* the path's base RTT */
  uint32_t acked_bytes; /* the bytes newly acknowledged */
  uint32_t lost_bytes;  /* the bytes newly found lost */
  harp_ns lost_sent_ns; /* the time when the youngest of the lost packets was sent */
  uint32_t ce_bytes;    /* newly reported as marked (ECN), of packets acknowledged so far */
  uint32_t inflight_bytes; /* the bytes in flight before this acknowledgement */
  /* All paths to the peer's interface together used at least half of its window. */
  bool peer_limited;
  /* There is a loss, and the session has other paths in use of which none has lately lost anything that
   * counted. */
  bool is_lossy_alone;
  /* A packet sent after the last round's end was acknowledged: one RTT has passed. */
  bool round_end;
};

/* An algorithm. */
struct harp_cc_ops {
  const char *name; /* value of HARP_CONGESTION and of the conf key */
  void (*init)(struct harp_cc *cc);
  void (*on_ack)(struct harp_cc *cc, const struct harp_cc_sample *s);
  void (*on_timeout)(
      struct harp_cc *cc); /* it is called after two probe timeouts or more without an acknowledgement */
  void (*on_busy)(struct harp_cc *cc,
                  harp_ns idle_ns); /* it is called when there is work, after a time without packets */
};

/* The clock that the hosts of a job share, for drains: ours plus an offset. */
struct harp_cc_clock {
  harp_ns offset_ns;
  bool is_own; /* hosts share none: drains of different hosts do not coincide */
};

#define HARP_DRAIN_EVERY_NS     HARP_MS(128) /* the least period of drains, and the longest */
#define HARP_DRAIN_EVERY_MAX_NS HARP_MS(2048)

/* State of `target`; cc_target.c alone writes it. */
struct harp_cc_target {
  struct harp_cc_clock clock;
  harp_ns rtt_ns; /* the RTT of the last acknowledgement */
  /* The least window has raised the window from the first value to the second one; 0: it has not. */
  uint64_t raised_from_q8, raised_to_q8;

  /* decisions by delay (rule 2) */
  harp_ns lowest_ns;        /* the lowest RTT since the last decision; HARP_NEVER: none */
  harp_ns decide_at_ns;     /* the time when the next decision is due */
  unsigned decide_samples;  /* the number of RTTs since the last decision */
  bool is_stale;            /* the next round measures packets that were sent before the last decrease */
  uint64_t floor_q8;        /* delay shrinks the window no further before the next drain */
  bool is_futile;           /* the queue stays although delay has shrunk the window to floor_q8 */
  unsigned compete_periods; /* delay does not count for so many periods more: other flows fill the queue */
  harp_ns base_ns;          /* the base RTT at the last drain; 0: none yet */
  harp_ns room_ns;          /* the longest queue ever seen, or less where that lost packets */
  harp_ns queue_max_ns;     /* the longest queue seen lately */
  harp_ns loss_queue_ns;    /* the queue at which packets were lost; HARP_NEVER: none were (rule 3) */

  /* decisions by loss (rule 3) */
  uint32_t excess_bytes; /* CUSUM: the bytes lost beyond what is tolerated */
  harp_ns cut_ns;        /* the time of the last decrease for loss; 0: none yet */
  unsigned hold_rounds;  /* the rounds until the last decrease for loss shows its effect */
  struct harp_base_loss base_loss;

  /* decisions by marks (rule 4) */
  bool was_mark;         /* a mark was the reason of the last decrease */
  harp_ns marked_ns;     /* the time of the last round with a mark; 0: none yet */
  uint32_t marked_bytes; /* the bytes that came marked in the current round */
  uint32_t marked_q16;   /* the smoothed share of bytes that came marked, times 2^16: DCTCP's alpha */

  /* growth (rule 1) */
  uint32_t ceiling_bytes; /* the window before the last decrease */
  bool was_delay;         /* delay was the reason of the last decrease */
  unsigned samples;       /* the number of RTTs in the current round */
  unsigned rounds;        /* the rounds since the last decision: windows of few packets take several */

  /* the last drain (rule 5), also after its end; packets sent from drain_empty_ns to drain_to_ns show the
   * path's own loss */
  uint64_t period;                /* the number of the shared clock's current period */
  bool is_drain_open;             /* a drain has begun, and no timeout has ended it */
  bool is_judge_due;              /* the drain's packets have not been judged */
  harp_ns drain_from_ns;          /* the time when the drain under way began; 0: none is under way */
  harp_ns drain_began_ns;         /* the time when the last drain began */
  harp_ns drain_empty_ns;         /* the time when the queue of before had left the network */
  harp_ns drain_to_ns;            /* the time when the drain ended; HARP_NEVER: it is under way */
  unsigned drain_rounds;          /* the rounds since the drain began */
  uint64_t drain_from_q8;         /* the window before the drain */
  harp_ns drain_rtt_ns;           /* the RTT before the drain */
  harp_ns drain_lowest_ns;        /* the lowest RTT of the drain from its second round on */
  harp_ns usual_base_ns;          /* the base RTT that drains usually reach */
  bool was_filled;                /* the drain left a queue that another flow fills */
  struct harp_loss_count settled; /* the packets settled since the drain began */
  harp_ns round_rtt_ns;           /* the lowest RTT of the last round; 0: none yet */
};

struct harp_cc {
  const struct harp_cc_ops *ops;

  /* what path.c, send_window.c and path_pairs.c set */
  uint32_t packet_bytes;     /* the bytes of a full packet on this path */
  uint32_t window_max_bytes; /* the largest window */
  uint32_t sharers;          /* the number of paths in use between the same ENIs, including this one */

  /* the results, which the algorithm writes */
  uint32_t window_bytes; /* the most bytes in flight; the pace enforces a window below one packet */
  uint64_t window_q8;    /* the same times 256 */
  uint32_t bursts;       /* the least number of bursts that a window takes */
  harp_ns queue_ns;      /* the queue at the operating point; two thirds of it: the network limits the path */
  harp_ns drain_every_ns; /* the period of drains, for the base RTT */
  bool slow_start;

  /* the sums of the current round, which cc.c writes */
  harp_ns round_rtt_min_ns;
  uint32_t round_acked_bytes, round_lost_bytes;
  bool round_limited; /* the window was in use */

  struct harp_cc_target target;
};

enum {
  HARP_CC_INITIAL_BYTES = 64 * 1024,   /* the first window of all sharers together: one superframe */
  HARP_CC_BURST_MAX_BYTES = 64 * 1024, /* the largest burst: one superframe */
  HARP_CC_BURSTS_MIN = 4,              /* the least bursts in a window: acknowledgements keep it moving */
  HARP_CC_QUEUE_NS = 50000,            /* queue_ns of algorithms that aim at none */
  HARP_CC_MIN_PACKETS = 2,             /* the least window of algorithms that do not pace single packets */
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
bool harp_cc_is_held_back(const struct harp_cc *cc, const struct harp_cc_sample *s);

/* Clears the sums of the round. */
void harp_cc_round_restart(struct harp_cc *cc);

#endif
