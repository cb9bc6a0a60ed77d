/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of NCCL as connections whose messages wait for others': ring and tree all-reduce,
 * all-to-all, incast. The work of GPUs and the links inside a host cost nothing. */
#ifndef HARP_CLUSTER_COLLECTIVE_H
#define HARP_CLUSTER_COLLECTIVE_H

#include "cluster/edge.h"

struct collective {
  struct edge *edges;
  size_t count, done;
  unsigned hosts;
  harp_ns skew_ns; /* the most that a host begins an operation late */
  struct rng rng;
  uint64_t host_bytes; /* the bytes that the busiest host sends or receives in an operation */
  unsigned steps;      /* one after the other, each as long as the way between two hosts */
  void *owner;
  void (*on_done)(struct collective *c, harp_ns now);
};

/* Prepares the connections of the scenario's collective; sources begin to fire. */
void collective_init(struct collective *c, struct fabric *f);
void collective_fini(struct collective *c);

/* Begins an operation; on_done tells its end. */
void collective_begin(struct collective *c, harp_ns now);

#endif
