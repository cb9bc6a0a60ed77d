/* SPDX-License-Identifier: Apache-2.0 */
/* A timed run: a run of fixed duration. All connections send as much as they can for --time seconds, or until
 * all ranks have received SIGUSR1. The receiving ranks sample the received bytes every --interval-ms and
 * count them per connection. If the plugin fails or stalls, the bytes so far are reported together with the
 * plugin's error.
 *
 * At its end senders stop; messages that were posted before are completed and checked, until
 * nothing moves for a while. Owns the samples and counts. Called from harp-perf's only thread. */
#ifndef HARP_BENCH_TIMED_RUN_H
#define HARP_BENCH_TIMED_RUN_H

#include "base/base.h"
#include "flow.h"
#include "options.h"
#include "rendezvous.h"

enum { HARP_TIMED_RUN_WORDS_BYTES = 400 };

/* Bytes that one connection received within the timed run. */
struct harp_timed_run_connection {
  int from, to; /* ranks */
  unsigned index;
  uint64_t bytes;
};

/* The result of one rank. */
struct harp_timed_run_outcome {
  uint64_t undelivered;                     /* messages posted and not received by the end */
  uint64_t finished_ns;                     /* the time from its end until nothing moved */
  char failure[HARP_TIMED_RUN_WORDS_BYTES]; /* "" where nothing failed */
};

struct harp_timed_run {
  harp_ns start_ns; /* CLOCK_MONOTONIC, this rank's */
  harp_ns elapsed_ns;
  harp_ns interval_ns;
  unsigned sample_count;
  uint64_t *samples; /* bytes received in each interval; after harp_timed_run_execute those of all ranks */
  unsigned connection_count;
  struct harp_timed_run_connection *connections; /* the connections of all ranks, by receiving rank */
  struct harp_timed_run_outcome *outcomes;       /* by rank */
  unsigned failure_count;                        /* ranks whose outcome is a failure */
};

/* Allocates the samples of opt->time_s. Returns 0 or -1; call harp_timed_run_fini in both cases. */
int harp_timed_run_init(struct harp_timed_run *run, const struct harp_options *opt) HARP_MUST_CHECK;

/* Runs it with messages of `bytes` on all ranks and gathers their results. Returns 0, also when the
 * plugin failed, which is recorded (fail.h) and in `outcomes`; -1 when the ranks' connections failed. */
int harp_timed_run_execute(struct harp_timed_run *run, struct harp_mesh *mesh, size_t bytes) HARP_MUST_CHECK;

void harp_timed_run_fini(struct harp_timed_run *run);

#endif
