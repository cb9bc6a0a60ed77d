/* SPDX-License-Identifier: Apache-2.0 */
/* A session under test: a sender and a receiver of the product, unchanged, and the routes between them.
 *
 * Owned by a network. A flow does what an engine does: it posts messages and receives, sends what the sender
 * chooses, feeds what arrives, keeps the timers. Payload is not moved and packets are not encoded. */
#ifndef HARP_MODELS_FLOW_H
#define HARP_MODELS_FLOW_H

#include "models/host.h"
#include "models/lane.h"
#include "models/liar.h"
#include "models/traffic.h"
#include "models/trip.h"
#include "proto/recv.h"
#include "proto/send.h"

enum { FLOW_PATHS_MAX = 32, FLOW_STREAMS_MAX = 4 };
enum { FLOW_IP_UDP_BYTES = 28, FLOW_HEADERS_BYTES = HARP_DATA_HEADER_BYTES + FLOW_IP_UDP_BYTES };

/* One direction of a path. A packet passes `cap`, then `wire` or the hops of `trip`; each may be NULL. The
 * matrix of tests/networks, with one queue on a way, takes wires: a trip has an event for each hop and draws
 * its losses there, which would change each of its figures. */
struct route {
  struct wire *cap;  /* the policer of this flow alone */
  struct wire *wire; /* may be shared */
  struct trip *trip; /* in place of wire and delay_ns */
  harp_ns delay_ns;
  uint32_t loss_ppm;  /* at random, before the wire */
  uint32_t mtu_bytes; /* larger packets vanish; 0: none do */
};

struct flow_path {
  struct flow *flow;
  unsigned index;
  struct route there, back;
  struct lane data, acks;
  /* A tcp path: the kernel's buffer takes records while it holds less than kernel_bytes of those before, and
   * empties into `there`. */
  bool is_tcp, is_lossy; /* lossy: its kernel repeats segments */
  uint32_t kernel_bytes;
  /* Its kernel is silent now and then, as TCP that has lost the end of its flight. Then the path may go DOWN,
   * which ends its connection. */
  harp_ns silent_every_ns; /* in the mean; 0: it never is */
  harp_ns silent_ns;       /* the next time */
  bool has_ended;          /* its connection, and there is no other yet */
  struct source unblock;
  uint64_t packets, lost; /* the data packets that were sent, and that did not arrive */
};

struct flow_config {
  unsigned path_count, stream_count;
  struct harp_path_config paths[FLOW_PATHS_MAX];
  uint32_t window_bytes;
  const struct harp_cc_ops *cc;
  uint64_t seed;
};

struct flow {
  struct agenda *agenda;
  struct harp_sender *sender;
  struct harp_receiver *receiver;
  struct harp_counters sent, received;
  unsigned path_count, stream_count;
  struct harp_tx_stream *tx;
  struct harp_rx_stream *rx;
  uint8_t *staging;
  uint32_t receives[FLOW_STREAMS_MAX]; /* posted and not done */
  struct flow_path paths[FLOW_PATHS_MAX];
  struct traffic traffic[FLOW_STREAMS_MAX];
  struct source sender_timer, receiver_timer;
  struct host sender_host, receiver_host;
  struct rng rng; /* the generator of random loss */
  uint64_t superframes;
  void *owner; /* the argument of on_received */
  void (*on_received)(struct flow *f, unsigned stream,
                      harp_ns now); /* messages have arrived; NULL: nothing */
  enum lie lie;                     /* the lie of its receiver */
  bool is_refused;                  /* the sender has found it out: the session is over */
};

/* Prepares a flow, whose paths, traffic and hosts the caller then fills in, and starts it: from now on its
 * sources fire. */
void flow_init(struct flow *f, struct agenda *a, const struct flow_config *c);
void flow_start(struct flow *f);
void flow_fini(struct flow *f);

/* Has the sender look at its traffic: more may be posted. */
void flow_wake(struct flow *f);

uint64_t flow_received_bytes(const struct flow *f);
uint64_t flow_packets(const struct flow *f);
uint64_t flow_lost_packets(const struct flow *f);

#endif
