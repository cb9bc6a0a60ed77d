/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of a collective from one host to another: messages of one size, over a session of HARP or over
 * sockets of TCP as NCCL's Socket uses them. */
#ifndef HARP_CLUSTER_EDGE_H
#define HARP_CLUSTER_EDGE_H

#include "cluster/fabric.h"
#include "cluster/socket.h"
#include "models/flow.h"

struct edge_config {
  unsigned from, to, channel; /* hosts; the channel */
  uint32_t message_bytes;
  uint64_t messages; /* the messages of an operation */
  uint64_t first;    /* the number of messages that wait for nothing */
  bool is_gate;      /* messages wait until the edges before are done; else each for one of theirs */
};

struct edge {
  struct edge_config config;
  struct fabric *fabric;
  struct flow *flow; /* HARP */
  struct edge_path *paths;
  struct socket *sockets; /* TCP */
  struct hop *caps;       /* the caps of each path or socket; NULL: none */
  unsigned socket_count;
  uint64_t segments; /* the segments of a message on a socket */

  /* messages, of all operations */
  uint64_t allowed, written, received;
  uint64_t base; /* before the present operation */
  struct source start;
  bool has_begun; /* the sending host has begun the present operation */
  harp_ns done_ns;

  struct edge **before; /* edges whose messages this one's wait for */
  struct edge **after;  /* the reverse */
  unsigned before_count, after_count;
  void *owner;
  void (*on_received)(struct edge *e, harp_ns now); /* `received` has grown */
};

/* Prepares a connection; its memory stays in place. */
void edge_init(struct edge *e, struct fabric *f, const struct edge_config *c);
void edge_fini(struct edge *e);

/* Has messages of `e` wait for those of `source`. */
void edge_wait_for(struct edge *e, struct edge *source);

/* Begins an operation, a further `messages`, which the sending host does at `at`. */
void edge_begin(struct edge *e, harp_ns at);

/* Sends what the edges before allow by now. */
void edge_advance(struct edge *e, harp_ns now);

static inline bool edge_is_done(const struct edge *e) {
  return e->received == e->base + e->config.messages;
}

#endif
