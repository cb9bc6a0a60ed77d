/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how many of the paths between two ENIs are in use. They differ in their source ports alone, so a
 * second one brings something only where the network caps each flow; elsewhere it costs more than it brings.
 *
 * Owns and alone writes struct harp_flows, one for each pair of ENIs of a sender. Called by path_pairs.c,
 * which wakes paths or makes them dormant as `wanted` says, and by path_set.c, which ends an experiment when
 * the paths have changed. No clock, no I/O. Rules:
 *
 *   1. One path is in use at first.
 *   2. While windows are full and the network queues or drops, pressure rises. At HARP_FLOWS_PRESSURE_ON an
 *      experiment tries twice as many paths (experiment.h), unless the pair moves what its NIC can.
 *   3. The number that has paid is never forgotten: after a pause all of them are used at once, and no
 *      experiment tries fewer. */
#ifndef HARP_FLOWS_H
#define HARP_FLOWS_H

#include "proto/experiment.h"

struct harp_flows {
  uint64_t paths;         /* the paths between these ENIs, a bit each */
  uint64_t speed_bytes_s; /* the speed of our NIC; 0: unknown */
  unsigned count;         /* the number of `paths` */
  unsigned wanted;        /* the number that is to carry data: `proven`, or what an experiment tries */
  unsigned proven;        /* the number that experiments have shown to pay: each has a queue of its own */
  unsigned pressure;      /* rises with rounds that the network held back, falls with others */
  struct harp_evidence evidence;
};

/* Begins with one of `paths`. */
void harp_flows_init(struct harp_flows *f, uint64_t paths, uint64_t speed_bytes_s);

/* Learns of a round trip on one of the paths; `held_back`: its window was full, and the network queued or
 * lost packets. */
void harp_flows_on_round(struct harp_flows *f, bool held_back);

/* Returns whether an experiment is to try more now. */
bool harp_flows_want_more(const struct harp_flows *f, harp_ns now);

/* Fills in an experiment with more. `round_ns` is a round trip, `growth_ns` how long windows take to grow. */
struct harp_experiment harp_flows_plan(const struct harp_flows *f, unsigned pair, harp_ns round_ns,
                                       harp_ns growth_ns, unsigned hurry);

/* Takes an experiment's phase; returns whether `wanted` has changed. */
bool harp_flows_on_phase(struct harp_flows *f, const struct harp_experiment *e) HARP_MUST_CHECK;

/* Takes the verdict of an experiment that has ended. Returns whether `proven` has changed. */
bool harp_flows_on_verdict(struct harp_flows *f, const struct harp_experiment *e,
                           harp_ns now) HARP_MUST_CHECK;

#endif
