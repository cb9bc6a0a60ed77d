/* SPDX-License-Identifier: Apache-2.0 */
/* Which carrier large messages take where neither loss nor a queue decides (carrier.h): the one that moves
 * more, or as much for less CPU. A pure function of measured numbers.
 *
 * TCP is taken to be that one. Now and then the other carrier is tried. A trial measures what the session
 * moves while large messages are under way, before, with and after the other carrier, so that a job that
 * changes its pace is not taken for a difference. It counts all bytes, since small messages, which stay where
 * they are, share the time. The other carrier takes over when it has won HARP_CARRIER_TRIAL_WINS trials in a
 * row: by HARP_CARRIER_TRIAL_GAIN_PERCENT less time for a byte, or by the same time and
 * HARP_CARRIER_TRIAL_CPU_PERCENT less CPU of the sender. Each trial that it loses doubles the time to the
 * next one.
 *
 * A trial takes three slices with the other carrier, two of which are for its congestion control to find the
 * rate, and no longer than six with the carrier in use. So it costs six at most, of the
 * HARP_CARRIER_TRIAL_GAP before it: 1 %. No clock, no I/O. */
#ifndef HARP_CARRIER_TRIAL_H
#define HARP_CARRIER_TRIAL_H

#include "base/base.h"

enum {
  HARP_CARRIER_TRIAL_SLICE_BYTES = 8 << 20,
  HARP_CARRIER_TRIAL_GAP = 600,       /* slices from one trial to the next, at least */
  HARP_CARRIER_TRIAL_GAP_AGAIN = 150, /* after one that was won */
  HARP_CARRIER_TRIAL_DOUBLINGS = 6,   /* of the gap at most */
  HARP_CARRIER_TRIAL_WINS = 3,        /* in a row */
  HARP_CARRIER_TRIAL_GAIN_PERCENT = 10,
  HARP_CARRIER_TRIAL_SAME_PERCENT = 103, /* of the time: as much, within what is measured */
  HARP_CARRIER_TRIAL_CPU_PERCENT = 25,
};
/* A slice ends after so long, too, however little has come through: above 100 Mbit/s a record has. */
#define HARP_CARRIER_TRIAL_SLICE_NS HARP_MS(50)

enum harp_carrier_phase {
  HARP_CARRIER_IN_USE, /* no trial */
  HARP_CARRIER_BEFORE, /* measured */
  HARP_CARRIER_SETTLE, /* the other carrier takes over */
  HARP_CARRIER_OTHER,  /* measured */
  HARP_CARRIER_RETURN, /* the carrier in use takes over again */
  HARP_CARRIER_AFTER,  /* measured */
};

enum harp_carrier_verdict {
  HARP_CARRIER_UNTRIED,
  HARP_CARRIER_KEPT,    /* the other one moves less, or as much for as much CPU */
  HARP_CARRIER_QUICKER, /* the other one moves more */
  HARP_CARRIER_CHEAPER, /* it moves as much, for less CPU */
};

/* What a slice took. */
struct harp_carrier_slice {
  uint64_t bytes;    /* acknowledged */
  harp_ns busy_ns;   /* while large messages were under way */
  harp_ns sender_ns; /* of the sender's core, to send them */
};

struct harp_carrier_trial {
  bool datagrams; /* in use for large messages; else TCP */
  enum harp_carrier_phase phase;
  uint64_t slice_bytes;
  unsigned count;        /* trials that have ended */
  unsigned wins, losses; /* trials in a row; losses stop at HARP_CARRIER_TRIAL_DOUBLINGS */
  struct harp_carrier_slice now, before, other;
  /* the last trial */
  enum harp_carrier_verdict verdict;
  uint32_t time_percent, cpu_percent; /* for a byte, of the other carrier: in relation to the one in use */
};

void harp_carrier_trial_init(struct harp_carrier_trial *t);

/* Gives up a trial that is under way, after paths have changed: what it has measured is of others. It counts
 * as lost if the other carrier was in use, which may have caused that. */
void harp_carrier_trial_give_up(struct harp_carrier_trial *t);

/* Feeds what was acknowledged since the last call. Returns whether another phase has begun; then the carrier
 * to use may be another one, and after HARP_CARRIER_AFTER, or OTHER that was ended, there is a verdict. */
bool harp_carrier_trial_feed(struct harp_carrier_trial *t,
                             const struct harp_carrier_slice *more) HARP_MUST_CHECK;

/* Returns whether large messages are to take the carrier that is tried. */
static inline bool harp_carrier_trial_takes_other(const struct harp_carrier_trial *t) {
  return t->phase == HARP_CARRIER_SETTLE || t->phase == HARP_CARRIER_OTHER;
}

/* Returns whether large messages are to take datagrams now. */
static inline bool harp_carrier_trial_takes_datagrams(const struct harp_carrier_trial *t) {
  return t->datagrams != harp_carrier_trial_takes_other(t);
}

/* Returns whether this phase is measured, and `sender_ns` is of interest. */
static inline bool harp_carrier_trial_measures(const struct harp_carrier_trial *t) {
  return t->phase == HARP_CARRIER_BEFORE || t->phase == HARP_CARRIER_OTHER || t->phase == HARP_CARRIER_AFTER;
}

#endif
