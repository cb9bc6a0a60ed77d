/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured of a network between its warm-up and its end. */
#ifndef HARP_TESTS_MEASURE_H
#define HARP_TESTS_MEASURE_H

#include "networks/network.h"

struct measured {
  double rate;         /* payload that arrived, as a share of what the bottleneck lets through */
  double lost;         /* percent of the packets sent that did not arrive, random loss included */
  double jain;         /* Jain's index of the rates of the flows */
  double queue_us;     /* the mean queue of the bottlenecks */
  double queue_max_us; /* the longest */
  double p99;          /* the 99th percentile of a message's time, as a multiple of the ideal */
  double tcp;          /* what the flows beside got of the rate */
  double steps;        /* the steps of training that have ended, of all flows */
  double step_ms;      /* their mean time */
  double step_share; /* the same as a multiple of what it is when all flows step at once and share the rate */
  double honest;     /* the least of the flows but the first, as a share of its fair share */
  double first;      /* the first flow, likewise */
  double paths;      /* the paths of datagrams in use at the end, the mean of the flows */
  double packets;    /* simulated in all */
  double cpu_s;      /* the CPU time that this took */
};

/* Builds the network, runs it and measures it. */
struct measured measure_network(const struct scenario *s);

enum { MEASURED_SEEDS_MAX = 9 };

/* Returns the median of each number of `count` measurements, MEASURED_SEEDS_MAX at most; of packets and CPU
 * time the sums. */
struct measured measured_median(const struct measured *of, unsigned count);

/* Runs the network and prints a line for each of `steps` equal parts of its time. */
void measure_print_steps(const struct scenario *s, unsigned steps);

#endif
