/* SPDX-License-Identifier: Apache-2.0 */
/* The share of packets that a path loses whatever its sender does: random loss, told from congestion.
 *
 * One flow of many cannot tell: where many share a policer, each sees the same loss whether it sends less or
 * not. So the loss is taken from drains (cc_target.c), in which all flows send less at once, and congestion
 * loses nothing. Rules:
 *   1. An interval of drains gives the share; the estimate moves to it by half. From KNOWN_Q16 on the loss is
 *      known, and then down to KEPT_Q16: few losses make an interval, and the estimate varies by half.
 *   2. Where clocks differ, not all flows drain at the same time. Then a part of the drains, which more of
 *      them share, loses less than the whole, and gives the share.
 *   3. Outside of drains loss is presumed to be random where congestion would lose less: with a window of
 *      QUIET_PACKETS or more that is still small after a decrease; and where the session's other paths lose
 *      nothing, with one of less than half a packet, which was below two since a drain.
 *   4. Congestion loses as much of smaller windows as a little random loss does, and a window of few packets
 *      sends too few in drains to tell. So up to FEW_MAX_Q16 is presumed to be random there, as a trial: the
 *      window grows, and drains tell. A trial that loses TRIAL_TIMES as much ends: congestion loses more of
 *      a larger window, random loss does not.
 *   5. An interval of drains that contradicts a presumption, or none for a while, ends it, and doubles
 *      the time to the next.
 *
 * Owns and alone writes struct harp_base_loss, a part of struct harp_cc_target. Called by cc_target.c alone.
 * No clock, no floating point. base_loss.c has the table of constants. */
#ifndef HARP_BASE_LOSS_H
#define HARP_BASE_LOSS_H

#include "base/base.h"

enum { HARP_BASE_LOSS_PARTS = 4 /* the parts of a drain, counted apart */ };

/* Packets that were settled in an interval, by bytes. */
struct harp_loss_count {
  uint32_t bytes, lost_bytes;
};

struct harp_base_loss {
  uint32_t share_q16; /* the estimate: the share of bytes that is lost, times 2^16 */
  bool is_known;      /* the path loses packets by itself; else the estimate counts for little */
  bool is_presumed;   /* the estimate is presumed: no drain has confirmed it yet (rules 3 and 4) */
  bool is_trial;      /* the estimate is presumed, and congestion is as likely (rule 4) */

  /* drains */
  struct harp_loss_count interval;                      /* the count of the interval of drains under way */
  struct harp_loss_count drained[HARP_BASE_LOSS_PARTS]; /* the counts of each part of the last drains */
  harp_ns clean_ns; /* the time when the last interval that lost next to nothing ended; 0: none has */

  /* presumptions */
  harp_ns presumed_ns;            /* the time when the presumption began */
  harp_ns presume_from_ns;        /* nothing is presumed before this time (rule 5) */
  harp_ns presume_wait_ns;        /* the wait after the next presumption that drains contradict (rule 5) */
  bool is_starved;                /* the window has been below two packets since the last drain (rule 3) */
  struct harp_loss_count starved; /* the count while is_starved (rule 3) */
  struct harp_loss_count quiet;   /* the count with QUIET_PACKETS or more, below the ceiling (rule 3) */
  struct harp_loss_count few;     /* the count with fewer packets; during a trial the trial's (rule 4) */
};

/* The packets settled since the last call, outside of drains, and the window at that. */
struct harp_base_loss_sample {
  harp_ns now;
  uint32_t packet_bytes, acked_bytes, lost_bytes;
  uint64_t window_q8;    /* bytes, times 256 */
  bool is_below_ceiling; /* the window is small after a decrease for loss */
  bool is_cut_by_loss;   /* the last decrease was for loss, and hosts share a clock */
  bool is_lossy_alone;   /* there is a loss, and the session has other paths, which lose nothing */
};

/* The path may be another one than before: what is known of it is presumed only. In zeroed memory, of which
 * this is the first call, nothing is known. */
void harp_base_loss_restart(struct harp_base_loss *b);

/* Returns whether the path loses packets by itself. */
bool harp_base_loss_is_known(const struct harp_base_loss *b);

/* Returns whether it does, and that is more than a trial. */
bool harp_base_loss_is_believed(const struct harp_base_loss *b);

/* Counts packets that were sent in that part of a drain, 0 to HARP_BASE_LOSS_PARTS - 1. */
void harp_base_loss_on_drained(struct harp_base_loss *b, unsigned part, uint32_t acked_bytes,
                               uint32_t lost_bytes);

/* Judges what was counted, once the packets of a drain are settled. Returns whether the estimate has
 * changed. */
bool harp_base_loss_judge_drains(struct harp_base_loss *b, uint32_t packet_bytes, harp_ns now);

/* Counts what was settled outside of drains. Returns whether random loss is presumed from now on. */
bool harp_base_loss_on_settled(struct harp_base_loss *b, const struct harp_base_loss_sample *s);

/* Begins the count with a starved window anew: a drain has ended. */
void harp_base_loss_on_drain_end(struct harp_base_loss *b);

/* Ends the count: a queue, not loss, has made the window small. */
void harp_base_loss_on_queue(struct harp_base_loss *b);

#endif
