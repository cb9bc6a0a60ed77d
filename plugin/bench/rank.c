/* SPDX-License-Identifier: Apache-2.0 */
#include "rank.h"

#include "clock.h"
#include "fail.h"
#include "flow.h"
#include "plugin.h"
#include "rendezvous.h"
#include "report.h"
#include "timed_run.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* A batch must take this part of --time before its rate is trusted to set the count of the timed run. */
#define CALIBRATED_SHARE 0.05
enum { CALIBRATION_GROWTH_MAX = 16, CALIBRATION_FIRST = 16, HOLD_POLL_MS = 200 };

struct harp_rank {
  const struct harp_options *opt;
  struct harp_rendezvous rendezvous;
  struct harp_plugin net;
  struct harp_plugin_device device;
  struct harp_mesh mesh;
  struct harp_report report;
  struct harp_timed_run timed_run;
  uint64_t wrong;
};

/* Runs `count` messages per connection between two barriers. Returns 0 or -1. */
static int batch(struct harp_rank *rank, size_t bytes, uint64_t count, harp_ns *elapsed_ns) {
  if (harp_rendezvous_barrier(&rank->rendezvous)) return -1;
  harp_ns start = harp_clock_ns(), cpu_start_ns = harp_clock_cpu_ns();
  if (harp_mesh_run(&rank->mesh, bytes, count)) return -1;
  if (harp_rendezvous_barrier(&rank->rendezvous)) return -1;
  rank->mesh.tally.cpu_ns = harp_clock_cpu_ns() - cpu_start_ns;
  *elapsed_ns = harp_clock_ns() - start;
  return 0;
}

/* Waits with all connections open and idle, as a job does that computes. Returns 0 or -1. */
static int hold(struct harp_rank *rank) {
  harp_ns end_ns = harp_clock_ns() + (harp_ns)(rank->opt->hold_s * 1e9);
  while (harp_clock_ns() < end_ns) {
    if (harp_interrupt_check() || harp_rendezvous_check(&rank->rendezvous)) return -1;
    poll(NULL, 0, HOLD_POLL_MS);
  }
  return 0;
}

/* Warms up and, where the run is by time, finds the count for it: batches grow until one is long enough to
 * judge by. Rank 0's clock decides for all. */
static int find_count(struct harp_rank *rank, size_t bytes, uint64_t *count) {
  const struct harp_options *opt = rank->opt;
  harp_ns elapsed_ns = 0;
  if (opt->warmup && batch(rank, bytes, opt->warmup, &elapsed_ns)) return -1;
  if (bytes == opt->size_bytes[0] && hold(rank)) return -1;
  *count = opt->iterations;
  if (*count || opt->interval_ms) return 0;
  double target_ns = opt->time_s * 1e9;
  uint64_t next = CALIBRATION_FIRST;
  for (;;) {
    if (batch(rank, bytes, next, &elapsed_ns)) return -1;
    double per_message_ns = (double)HARP_MAX(elapsed_ns, (harp_ns)1) / (double)next;
    uint64_t fitting = (uint64_t)(target_ns / per_message_ns);
    struct {
      uint64_t count;
      bool final;
    } plan = {HARP_MAX(fitting, (uint64_t)1), (double)elapsed_ns >= target_ns * CALIBRATED_SHARE};
    if (!plan.final) { /* aim at twice the share, in bounded steps */
      uint64_t aim = (uint64_t)(target_ns * CALIBRATED_SHARE * 2 / per_message_ns) + 1;
      plan.count = HARP_MAX(next + 1, HARP_MIN(aim, next * CALIBRATION_GROWTH_MAX));
    }
    if (harp_rendezvous_broadcast(&rank->rendezvous, &plan, sizeof plan)) return -1;
    *count = next = plan.count;
    if (plan.final) return 0;
  }
}

/* Adds up all ranks' tallies and latencies, on every rank. */
static int sum_up(struct harp_rank *rank, struct harp_tally *sum, struct harp_latency *latency) {
  struct harp_tally all[HARP_RANKS_MAX];
  if (harp_rendezvous_gather(&rank->rendezvous, &rank->mesh.tally, sizeof all[0], all)) return -1;
  *sum = (struct harp_tally){0};
  for (int i = 0; i < rank->opt->nranks; i++) {
    sum->messages += all[i].messages;
    sum->bytes += all[i].bytes;
    sum->wrong += all[i].wrong;
    sum->cpu_ns += all[i].cpu_ns;
  }
  harp_latency_init(latency);
  if (rank->opt->mode != HARP_PINGPONG && !rank->mesh.stamped) return 0;
  struct harp_latency *samples = malloc(sizeof *samples * (size_t)rank->opt->nranks);
  if (!samples) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  int rc = harp_rendezvous_gather(&rank->rendezvous, rank->mesh.latency, sizeof *samples, samples);
  for (int i = 0; !rc && i < rank->opt->nranks; i++) harp_latency_merge(latency, &samples[i]);
  free(samples);
  return rc;
}

/* Moves what is measured: `count` messages per connection, or whatever a timed run holds. Returns 0 or -1. */
static int run_timed(struct harp_rank *rank, size_t bytes, uint64_t *count, harp_ns *elapsed_ns) {
  if (!rank->opt->interval_ms) return batch(rank, bytes, *count, elapsed_ns);
  harp_ns cpu_start_ns = harp_clock_cpu_ns();
  rank->report.timed_run = &rank->timed_run;
  if (harp_timed_run_init(&rank->timed_run, rank->opt)) return -1;
  if (harp_timed_run_execute(&rank->timed_run, &rank->mesh, bytes)) return -1;
  rank->mesh.tally.cpu_ns = harp_clock_cpu_ns() - cpu_start_ns;
  *elapsed_ns = rank->timed_run.sample_count * rank->timed_run.interval_ns;
  return 0;
}

/* Makes the sum that of the timed run, without what was finished after it. Returns the messages per
 * connection. */
static uint64_t count_timed_run(const struct harp_timed_run *timed_run, size_t bytes,
                                struct harp_tally *sum) {
  sum->bytes = 0;
  for (unsigned i = 0; i < timed_run->connection_count; i++) sum->bytes += timed_run->connections[i].bytes;
  sum->messages = sum->bytes / HARP_MAX(bytes, (size_t)1);
  return HARP_MAX(sum->messages / HARP_MAX(timed_run->connection_count, 1u), (uint64_t)1);
}

static int run_size(struct harp_rank *rank, size_t bytes) {
  uint64_t count;
  harp_ns elapsed_ns;
  rank->mesh.tally = (struct harp_tally){0};
  if (find_count(rank, bytes, &count)) return -1;
  rank->mesh.tally = (struct harp_tally){.wrong = rank->mesh.tally.wrong};
  harp_latency_init(rank->mesh.latency);
  if (run_timed(rank, bytes, &count, &elapsed_ns)) return -1;

  struct harp_tally sum;
  struct harp_latency *latency = malloc(sizeof *latency);
  if (!latency) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  int rc = sum_up(rank, &sum, latency);
  if (!rc && rank->report.timed_run) count = count_timed_run(&rank->timed_run, bytes, &sum);
  if (!rc) {
    struct harp_report_row row = harp_report_make_row(rank->opt, bytes, count, elapsed_ns, &sum, latency);
    if (!rank->opt->rank) harp_report_add(&rank->report, &row);
    rank->wrong += sum.wrong;
  }
  free(latency);
  return rc;
}

/* Finds out whether all ranks have one clock: those of one boot of one machine. Returns 0 or -1. */
static int compare_clocks(struct harp_rank *rank, bool *same) {
  enum { BOOT_ID_BYTES = 40 };
  char mine[BOOT_ID_BYTES] = {0}, *all = calloc((size_t)rank->opt->nranks, BOOT_ID_BYTES);
  if (!all) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  bool known = fd >= 0 && read(fd, mine, BOOT_ID_BYTES - 1) > 0;
  if (fd >= 0) close(fd);
  int rc = harp_rendezvous_gather(&rank->rendezvous, mine, BOOT_ID_BYTES, all);
  *same = known;
  for (int i = 0; i < rank->opt->nranks; i++) *same &= !memcmp(mine, all + i * BOOT_ID_BYTES, BOOT_ID_BYTES);
  free(all);
  return rc;
}

static int run(struct harp_rank *rank, int listen_fd) {
  const struct harp_options *opt = rank->opt;
  uint64_t comm_id = 0;
  if (harp_rendezvous_open(&rank->rendezvous, opt, listen_fd))
    return -1; /* first, so that others hear of what fails */
  if (!opt->rank && harp_report_probe(opt)) return -1;
  if (harp_plugin_open(&rank->net, opt->plugin_path, opt->abi)) return -1;
  if (getrandom(&comm_id, sizeof comm_id, GRND_NONBLOCK) < 0) comm_id = harp_clock_ns();
  if (harp_rendezvous_broadcast(&rank->rendezvous, &comm_id, sizeof comm_id)) return -1;
  if (harp_plugin_init(&rank->net, comm_id, opt->log_level)) return -1;
  if (harp_plugin_device_read(&rank->net, opt->dev, &rank->device)) return -1;
  for (unsigned i = 0; i < opt->size_count; i++)
    if (opt->size_bytes[i] > rank->device.message_bytes_max)
      return harp_fail(HARP_EXIT_USAGE, "size %zu: device %d takes messages up to %zu bytes",
                       opt->size_bytes[i], opt->dev, rank->device.message_bytes_max);
  if (harp_mesh_open(&rank->mesh, opt, &rank->net, &rank->rendezvous)) return -1;
  if (opt->mode == HARP_INCAST && compare_clocks(rank, &rank->mesh.stamped)) return -1;
  rank->report.opt = opt;
  rank->report.net = &rank->net;
  if (!opt->rank) harp_report_begin(&rank->report, &rank->device);
  for (unsigned i = 0; i < opt->size_count; i++)
    if (run_size(rank, opt->size_bytes[i])) return -1;
  if (!opt->rank && harp_report_end(&rank->report)) return -1;
  return harp_rendezvous_barrier(&rank->rendezvous); /* nobody leaves while another still receives */
}

int harp_rank_run(const struct harp_options *opt, int listen_fd) {
  struct harp_rank *rank = calloc(1, sizeof *rank);
  if (!rank) {
    fputs("harp-perf: out of memory\n", stderr);
    return HARP_EXIT_SYSTEM;
  }
  rank->opt = opt;
  harp_rendezvous_init(&rank->rendezvous);
  if (run(rank, listen_fd)) harp_rendezvous_send_failure(&rank->rendezvous, harp_fail_text());
  if (rank->mesh.net) harp_mesh_close(&rank->mesh);
  harp_timed_run_fini(&rank->timed_run);
  harp_plugin_close(&rank->net);
  harp_rendezvous_close(&rank->rendezvous);
  int code = harp_fail_code();
  if (code)
    fprintf(stderr, "harp-perf: rank %d: %s\n", opt->rank, harp_fail_text());
  else if (rank->wrong) {
    code = HARP_EXIT_WRONG;
    if (!opt->rank) fprintf(stderr, "harp-perf: %" PRIu64 " messages arrived wrong\n", rank->wrong);
  }
  free(rank);
  return code;
}
