/* SPDX-License-Identifier: Apache-2.0 */
/* Parses harp-perf's command line; rank and number of ranks also come from a launcher's environment. No
 * state; strings point into argv or the environment. Called once, by main. */
#ifndef HARP_BENCH_OPTIONS_H
#define HARP_BENCH_OPTIONS_H

#include "base/base.h"

enum harp_mode {
  HARP_STREAM,
  HARP_BIDIR,
  HARP_PINGPONG,
  HARP_RING,
  HARP_ALLTOALL,
  HARP_INCAST,
  HARP_MODE_COUNT
};

enum {
  HARP_SIZES_MAX = 64,                /* message sizes in one run */
  HARP_CONNECTIONS_MAX = 4096,        /* per pair of ranks and direction */
  HARP_INFLIGHT_MAX = 32,             /* outstanding requests that the ABI allows */
  HARP_RANKS_MAX = 257,               /* one, and 256 that send to it */
  HARP_SAMPLES_MAX = 20000,           /* intervals of one timed run */
  HARP_TIMED_RUN_FLOWS_MAX = 1 << 18, /* connection ends of all ranks in a timed run */
  HARP_ADDRESS_BYTES = 300,           /* "host:port" or "@name" */
};
#define HARP_MESSAGE_BYTES_MAX ((size_t)1 << 30)

struct harp_options {
  bool core_latency; /* measure the cores below and nothing else; the fields after them do not count */
  uint16_t cores[2];
  const char *plugin_path;
  int abi; /* 4 to 12, 0: the newest the plugin exports */
  enum harp_mode mode;
  size_t size_bytes[HARP_SIZES_MAX];
  unsigned size_count;
  unsigned connections;
  unsigned inflight;
  double time_s;        /* per size, where iterations is 0 */
  uint64_t iterations;  /* messages per connection and size, 0: by time */
  unsigned pause_ms;    /* 0, or: sleep so long between two passes of a timed run */
  unsigned interval_ms; /* 0, or: run by the clock for time_s and sample the bytes received */
  uint64_t warmup;      /* messages per connection before each size is timed */
  double hold_s;        /* with idle connections, after the first warm-up */
  bool check;
  bool wait_sent; /* pingpong: a rank receives only when its send is done */
  int dev;
  const char *json_path; /* NULL: none, "-": standard output */
  double timeout_s;      /* the time for the ranks to connect, and for the plugin to make progress */
  int log_level;         /* enum harp_nccl_log_level: which of the plugin's lines are printed */
  int nranks;
  int rank; /* -1: start all ranks here */
  /* "HOST:PORT", or "@NAME" for a name in this host's abstract Unix sockets. */
  char rendezvous[HARP_ADDRESS_BYTES];
};

/* Fills `opt` from the arguments and the environment. Returns 0, 1 after --help (already printed), or -1. */
int harp_options_parse(struct harp_options *opt, int argc, char **argv) HARP_MUST_CHECK;

const char *harp_mode_name(enum harp_mode mode);

/* Returns a hash of everything that must be the same on all ranks. */
uint64_t harp_options_fingerprint(const struct harp_options *opt);

#endif
