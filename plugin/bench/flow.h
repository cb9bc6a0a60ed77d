/* SPDX-License-Identifier: Apache-2.0 */
/* The flows of this rank: one end of one connection each, with its comm, buffer and requests, and the loop
 * that drives them all from one thread as NCCL's proxy does.
 *
 * Owns comms, registrations and buffers. Called from harp-perf's one thread. What the loop does and NCCL does
 * too: at most one action per flow and pass; receives posted ahead with the whole slot's size; only the
 * oldest request of a flow is tested; a NULL request means "again next pass"; nothing but a yield when
 * nothing moved. `*request` and `*done` hold something stale before each call, and a plugin that leaves it
 * there is reported. */
#ifndef HARP_BENCH_FLOW_H
#define HARP_BENCH_FLOW_H

#include "base/base.h"
#include "latency.h"
#include "options.h"
#include "plugin.h"
#include "rendezvous.h"

struct harp_flow {
  bool sends;
  int from, to;   /* ranks; one of them is this one */
  unsigned index; /* among the connections of that pair and direction */
  void *comm;
  void *listen_comm;
  void *mhandle;
  bool registered;
  _Alignas(HARP_CACHE_LINE) char handle[HARP_NCCL_HANDLE_BYTES]; /* plugins lay a struct over it */
  char *buffer; /* `inflight` slots, and an unmapped page behind them that catches a plugin which writes on */
  size_t buffer_bytes;
  void *requests[HARP_INFLIGHT_MAX]; /* by message number modulo inflight */
  uint64_t posted, done, target;     /* messages since the start */
  bool filled;                       /* the next message to send is in its slot */
  uint64_t window_bytes;             /* received in the window */
  uint64_t window_offered;           /* messages that the sending end had posted when the window was over */
  bool tail_marked[HARP_INFLIGHT_MAX];
  /* pingpong: message k may be sent, and with wait_sent its receive be posted, once more than k - lead
   * messages of `after` are done; `lead` is 0 or 1 */
  struct harp_flow *after;
  uint64_t lead;
  harp_ns sent_ns;           /* pingpong, lead 1: when the message under way was first offered */
  struct harp_flow *answers; /* pingpong, on a receive: the send that it answers, where this rank leads */
};

/* What one rank counted over one size. */
struct harp_tally {
  uint64_t messages; /* received */
  uint64_t bytes;    /* received */
  uint64_t wrong;    /* received, warm-up included */
  harp_ns cpu_ns;
};

struct harp_mesh {
  const struct harp_options *opt;
  struct harp_plugin *net;
  struct harp_rendezvous *rendezvous;
  struct harp_flow *flows;
  unsigned flow_count;
  size_t slot_bytes; /* of the size under way: what is posted by each receive */
  size_t message_bytes;
  bool stamped; /* incast on one machine: a message begins with the time at which it was first offered */
  struct harp_latency
      *latency; /* pingpong: half round trips in which this rank led; incast: messages' times */
  struct harp_tally tally;
  unsigned wrong_told; /* of the wrong messages, described on standard error */
};

/* Returns how many ranks receive in this mode. */
int harp_mesh_receivers(enum harp_mode mode, int nranks);

/* Sets up every connection of this rank: listen, exchange of handles, connect and accept polled in turn,
 * buffers allocated and registered. Close it whatever is returned. Returns 0 or -1. */
int harp_mesh_open(struct harp_mesh *mesh, const struct harp_options *opt, struct harp_plugin *net,
                   struct harp_rendezvous *rendezvous) HARP_MUST_CHECK;

/* Moves `count` messages of `bytes` over every connection, adding to tally and latency. Returns 0 or -1. */
int harp_mesh_run(struct harp_mesh *mesh, size_t bytes, uint64_t count) HARP_MUST_CHECK;

/* Sets what harp_mesh_pass moves: `count` messages of `bytes` more over every connection. */
void harp_mesh_begin(struct harp_mesh *mesh, size_t bytes, uint64_t count);

/* Does at most one action for each flow. Returns 1 when something moved, 0 when not, -1; `unfinished` is set
 * to the flows that had something left to do. */
int harp_mesh_pass(struct harp_mesh *mesh, unsigned *unfinished) HARP_MUST_CHECK;

/* Takes everything down in NCCL's order: registrations, then the buffers' memory, then the comms. A failure
 * of the plugin is recorded. */
void harp_mesh_close(struct harp_mesh *mesh);

#endif
