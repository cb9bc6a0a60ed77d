/* SPDX-License-Identifier: Apache-2.0 */
/* A window: a run by the clock. All connections carry as much as they can for --time seconds; what arrived is
 * sampled each --interval-ms at the receiving ranks and counted per connection. A plugin that fails or stalls
 * in between is a result and not the end: what arrived before is reported with what the plugin said.
 *
 * After the window senders stop, and what was taken by then is moved to its end and checked, for a bounded
 * time. Owns the samples and counts. Called from harp-perf's one thread. */
#ifndef HARP_BENCH_WINDOW_H
#define HARP_BENCH_WINDOW_H

#include "base/base.h"
#include "flow.h"
#include "options.h"
#include "rendezvous.h"

enum { HARP_WINDOW_WORDS_BYTES = 400 };

/* What one connection brought within the window. */
struct harp_window_connection {
  int from, to; /* ranks */
  unsigned index;
  uint64_t bytes;
};

/* What a rank says of itself at the end. */
struct harp_window_outcome {
  uint64_t undelivered; /* messages taken by isend that had not arrived when the drain's time was over */
  uint64_t drained_ns;  /* how long the drain took */
  char failure[HARP_WINDOW_WORDS_BYTES]; /* "" where nothing failed */
};

struct harp_window {
  harp_ns start_ns; /* CLOCK_MONOTONIC, this rank's */
  harp_ns elapsed_ns;
  harp_ns interval_ns;
  unsigned sample_count;
  uint64_t *samples; /* bytes received in each interval; after harp_window_run those of all ranks */
  unsigned connection_count;
  struct harp_window_connection *connections; /* of all ranks, by receiving rank */
  struct harp_window_outcome *outcomes;       /* by rank */
  unsigned failure_count;                     /* ranks whose outcome is a failure */
};

/* Allocates the samples of opt->time_s. Close it whatever is returned. Returns 0 or -1. */
int harp_window_init(struct harp_window *window, const struct harp_options *opt) HARP_MUST_CHECK;

/* Runs the window with messages of `bytes` on all ranks at once and gathers what they saw. Returns 0 also
 * where the plugin failed, which is recorded (fail.h) and in `outcomes`; -1 where the ranks lost each other.
 */
int harp_window_run(struct harp_window *window, struct harp_mesh *mesh, size_t bytes) HARP_MUST_CHECK;

void harp_window_fini(struct harp_window *window);

#endif
