/* SPDX-License-Identifier: Apache-2.0 */
/* The flows of this rank: one end of one connection each, with its comm, buffer and requests, and the loop
 * that drives them all from one thread as NCCL's proxy does.
 *
 * Owns comms, registrations and buffers. Called from harp-perf's only thread. As in NCCL the loop does at
 * most one action per flow and pass, posts receives in advance with the size of a slot, tests only the oldest
 * request of a flow, retries in the next pass when the request is NULL, and yields when nothing made
 * progress. `*request` and
 * `*done` have stale values before each call, and it is an error if the plugin does not set them. */
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
  char *buffer; /* `inflight` slots, then an unmapped page to detect writes beyond them */
  size_t buffer_bytes;
  void *requests[HARP_INFLIGHT_MAX]; /* by message number modulo inflight */
  uint64_t posted, done, target;     /* messages since the start */
  bool filled;                       /* the next message to send is in its slot */
  uint64_t timed_bytes;              /* received in the timed run */
  uint64_t timed_offered;            /* messages that the sender had posted at the end of the timed run */
  bool tail_marked[HARP_INFLIGHT_MAX];
  /* pingpong: message k may be sent, and with wait_sent its receive be posted, once more than k - lead
   * messages of `after` are done; `lead` is 0 or 1 */
  struct harp_flow *after;
  uint64_t lead;
  harp_ns sent_ns;           /* pingpong, lead 1: when the message under way was first offered */
  struct harp_flow *answers; /* pingpong, on a receive: the send that it answers, where this rank leads */
};

/* Counts of one rank for one message size. */
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
  size_t slot_bytes; /* size of each posted receive */
  size_t message_bytes;
  bool stamped; /* incast on one machine: a message begins with the time at which it was first offered */
  /* pingpong: half round trips that this rank started; incast: times of messages */
  struct harp_latency *latency;
  struct harp_tally tally;
  unsigned wrong_printed; /* wrong messages described on standard error */
};

/* Returns how many ranks receive in this mode. */
int harp_mesh_receivers(enum harp_mode mode, int nranks);

/* Opens all connections of this rank, and allocates and registers their buffers. Polls connect and accept in
 * turn; blocks until all are open. Returns 0 or -1; close it in both cases. */
int harp_mesh_open(struct harp_mesh *mesh, const struct harp_options *opt, struct harp_plugin *net,
                   struct harp_rendezvous *rendezvous) HARP_MUST_CHECK;

/* Waits until the next look at the connections: for `pause_ms`, `most_ms` at most; without it not at all
 * where something moved. */
void harp_mesh_wait(const struct harp_mesh *mesh, unsigned most_ms, bool moved);

/* Moves `count` messages of `bytes` over every connection, adding to tally and latency. Returns 0 or -1. */
int harp_mesh_run(struct harp_mesh *mesh, size_t bytes, uint64_t count) HARP_MUST_CHECK;

/* Sets what harp_mesh_pass moves: `count` messages of `bytes` more over every connection. */
void harp_mesh_begin(struct harp_mesh *mesh, size_t bytes, uint64_t count);

/* Does at most one action for each flow. Returns 1 when one made progress, 0 when none did, or -1. Stores the
 * number of unfinished flows. */
int harp_mesh_pass(struct harp_mesh *mesh, unsigned *unfinished) HARP_MUST_CHECK;

/* Closes everything in NCCL's order: registrations, buffers, comms. Records an error of the plugin. */
void harp_mesh_close(struct harp_mesh *mesh);

#endif
