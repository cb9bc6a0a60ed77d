/* SPDX-License-Identifier: Apache-2.0 */
/* The constants of experiments: of the mechanism and its two questions (experiment.c, flows.c,
 * send_experiment.c), and of the choice which experiment is due (experiments.c). The values are our own, set
 * by the model networks of docs/reference/networks.md. experiment.c has the waits and points of each
 * question. */
#ifndef HARP_EXPERIMENT_CONSTANTS_H
#define HARP_EXPERIMENT_CONSTANTS_H

#include "base/base.h"

/* ---- FLOWS: the search for flows ---- */

/* Constant                      value       effect, and reason */
#define HARP_EXPERIMENT_FLOWS_NS HARP_MS(8) /* the least length of a slice */
enum {
  HARP_EXPERIMENT_FLOWS_ROUNDS = 4,        /* the least length of a slice in round trips */
  HARP_EXPERIMENT_FLOWS_BYTES = 4 << 20,   /* a slice with fewer bytes lasts longer: in it single messages */
  HARP_EXPERIMENT_FLOWS_TIMES = 4,         /* and pauses of hosts weigh too much; but so many times at most */
  HARP_EXPERIMENT_FLOWS_ADAPT_ROUNDS = 64, /* the round trips of ADAPT: a window doubles in 45 */
  HARP_EXPERIMENT_FLOWS_FEW_ROUNDS = 128,  /* the same for few packets, which double in 100 */
  HARP_EXPERIMENT_FLOWS_FEW_PACKETS = 32,  /* a smaller window has few packets: two flows share it in ADAPT */
  HARP_EXPERIMENT_FLOWS_PERCENT = 25, /* a win: the part of what the flows would bring if each were capped */
  HARP_EXPERIMENT_FLOWS_LEAST = 12,   /* a win: the least gain of the rate, in percent */
  HARP_EXPERIMENT_FLOWS_CLEAR = 75,   /* a clear win: the percentage of what capped flows would bring */
  HARP_FLOWS_PRESSURE_ROUND = 2,      /* a round that was held back weighs as two that were not */
  HARP_FLOWS_PRESSURE_ON = 8,   /* from this pressure on more flows are tried: after four rounds at least */
  HARP_FLOWS_PRESSURE_MAX = 16, /* the highest pressure */
  HARP_FLOWS_FULL_PARTS = 8,    /* within this part of the NIC's speed nothing is to be gained */
};

/* ---- CARRIER: the trial of the other carrier ---- */

#define HARP_EXPERIMENT_SLICE_NS    HARP_MS(50) /* the length of a slice with fewer than SLICE_BYTES */
#define HARP_EXPERIMENT_HOPELESS_NS HARP_MS(20) /* ADAPT lasts as long at least: windows open within it */
#define HARP_EXPERIMENT_LEARN_NS    HARP_SEC(3) /* the longest time for ADAPT and WITH, to learn of paths */
enum {
  HARP_EXPERIMENT_SLICE_BYTES = 8 << 20, /* the bytes of a slice */
  HARP_EXPERIMENT_ADAPT_MAX = 128,    /* the slices that ADAPT lasts at most while flows are searched for */
  HARP_EXPERIMENT_HOPELESS_PARTS = 4, /* a carrier that moves less than this part gets no more time */
  HARP_EXPERIMENT_GAIN_PERCENT = 5,   /* a win: the time for a byte is shorter by this */
  HARP_EXPERIMENT_CARRIER_CLEAR = 50, /* a clear win: the share of the time; one is enough where urgent */
  HARP_EXPERIMENT_SAME_PERCENT = 103, /* the same speed: the share of the time, within what is measured */
  HARP_EXPERIMENT_CARRIER_CPU = 75,   /* a win at the same speed: the most of the CPU time */
};

/* ---- which experiment is due ---- */

#define HARP_EXPERIMENTS_CARRIER_NS HARP_MS(300) /* from the first large message to the first trial */
#define HARP_EXPERIMENTS_CHANGE_NS  HARP_SEC(2)  /* from a change to the next trial */
#define HARP_EXPERIMENTS_CALM_NS    HARP_SEC(10) /* a sign of trouble is new so long after the last */
#define HARP_EXPERIMENTS_URGENT_NS  HARP_MS(200) /* a trial is urgent so soon after a sign of trouble */
#define HARP_EXPERIMENTS_STALE_NS   HARP_SEC(10) /* a search whose phase lasts so long lacks traffic */
/* The time that a trial may lose while datagrams learn: the time of two drains; and where TCP shows loss the
 * time of those in which windows of one packet or two carry enough to tell a loss of 1 % from none. */
#define HARP_EXPERIMENTS_PATIENCE_NS       HARP_MS(300)
#define HARP_EXPERIMENTS_PATIENCE_LOSSY_NS HARP_SEC(2)
/* The mean of what a carrier moves is known when it holds so much time, and holds twice as much at most: TCP
 * waits for 200 ms and more where it has lost the end of its flight. */
#define HARP_EXPERIMENTS_LATELY_NS HARP_MS(500)
enum {
  HARP_EXPERIMENTS_COST_PARTS = 100, /* trials may cost one part of the time in so many */
  HARP_EXPERIMENTS_FADED_PARTS = 2,  /* a carrier has faded that moves less than this part of the other */
  HARP_EXPERIMENTS_EARNED_MAX_S = 1, /* the seconds of cost that are kept for later */
};

#endif
