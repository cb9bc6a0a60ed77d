/* SPDX-License-Identifier: Apache-2.0 */
/* A window: a run of fixed duration. All connections send as much as they can for --time seconds, or until
 * all ranks have received SIGUSR1. The receiving ranks sample the received bytes every --interval-ms and
 * count them per connection. If the plugin fails or stalls, the bytes so far are reported together with the
 * plugin's error.
 *
 * At the end of the window senders stop; messages that were posted before are completed and checked, until
 * nothing moves for a while (the drain). Owns the samples and counts. Called from harp-perf's only thread. */
#ifndef HARP_BENCH_WINDOW_H
#define HARP_BENCH_WINDOW_H

#include "base/base.h"
#include "flow.h"
#include "options.h"
#include "rendezvous.h"

enum { HARP_WINDOW_WORDS_BYTES = 400 };

/* Bytes that one connection received within the window. */
struct harp_window_connection {
  int from, to; /* ranks */
  unsigned index;
  uint64_t bytes;
};

/* The result of one rank. */
struct harp_window_outcome {
  uint64_t undelivered;                  /* messages posted and not received by the end of the drain */
  uint64_t drained_ns;                   /* duration of the drain */
  char failure[HARP_WINDOW_WORDS_BYTES]; /* "" where nothing failed */
};

struct harp_receive_window {
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

/* Allocates the samples of opt->time_s. Returns 0 or -1; call harp_window_fini in both cases. */
int harp_window_init(struct harp_receive_window *window, const struct harp_options *opt) HARP_MUST_CHECK;

/* Runs the window with messages of `bytes` on all ranks and gathers their results. Returns 0, also when the
 * plugin failed, which is recorded (fail.h) and in `outcomes`; -1 when the ranks' connections failed. */
int harp_window_run(struct harp_receive_window *window, struct harp_mesh *mesh, size_t bytes) HARP_MUST_CHECK;

void harp_window_fini(struct harp_receive_window *window);

#endif
