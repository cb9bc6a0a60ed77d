/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's output: a table like that of nccl-tests, or one JSON object. Owns the rows of one run. */
#ifndef HARP_BENCH_REPORT_H
#define HARP_BENCH_REPORT_H

#include "base/base.h"
#include "flow.h"
#include "latency.h"
#include "options.h"
#include "plugin.h"
#include "timed_run.h"

/* The percentiles of a row. */
struct harp_report_latency {
  harp_ns min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns;
  double mean_ns;
};

struct harp_report_row {
  size_t bytes;      /* the bytes of one message */
  uint64_t rounds;   /* messages per connection, timed */
  uint64_t messages; /* received by all ranks, timed */
  double time_s;     /* from barrier to barrier */
  double cpu_s;      /* user and system time of all ranks in between */
  double algbw_gbps, busbw_gbps;
  uint64_t wrong; /* warm-up included */
  bool has_latency;
  struct harp_report_latency latency;
};

struct harp_report {
  const struct harp_options *opt;
  const struct harp_plugin *net;
  struct harp_report_row rows[HARP_SIZES_MAX];
  unsigned row_count;
  const struct harp_timed_run *timed_run; /* NULL: the run was by count; else of the only row */
};

/* Returns a row for the sum over all ranks; `latency` is NULL or all ranks' samples. */
struct harp_report_row harp_report_make_row(const struct harp_options *opt, size_t bytes, uint64_t rounds,
                                            harp_ns elapsed_ns, const struct harp_tally *sum,
                                            const struct harp_latency *latency);

/* Prints the table's head, unless --json goes to standard output. */
void harp_report_begin(const struct harp_report *report, const struct harp_plugin_device *device);

/* Adds a row, and prints it as the table's head is. */
void harp_report_add(struct harp_report *report, const struct harp_report_row *row);

/* Checks before the run that --json can be written. Returns 0 or -1. */
int harp_report_probe(const struct harp_options *opt) HARP_MUST_CHECK;

/* Prints the last line, and writes the JSON object if requested. Returns 0 or -1. */
int harp_report_end(const struct harp_report *report) HARP_MUST_CHECK;

#endif
