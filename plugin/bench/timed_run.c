/* SPDX-License-Identifier: Apache-2.0 */
#include "timed_run.h"

#include "clock.h"
#include "fail.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINISH_S = 3, CLOCK_PASSES = 64 }; /* passes between two looks at the clock after the end */

/* How far one end of one connection is, as the ranks tell each other. */
struct flow_count {
  int32_t from, to;
  uint32_t index;
  uint32_t used; /* the record holds something */
  uint64_t posted;
  uint64_t bytes; /* received in the timed run */
};

int harp_timed_run_init(struct harp_timed_run *run, const struct harp_options *opt) {
  *run = (struct harp_timed_run){.interval_ns = HARP_MS(opt->interval_ms)};
  run->sample_count = (unsigned)(opt->time_s * 1e3 / opt->interval_ms);
  run->sample_count = HARP_MAX(run->sample_count, 1u);
  run->samples = calloc(run->sample_count, sizeof *run->samples);
  run->outcomes = calloc((size_t)opt->nranks, sizeof *run->outcomes);
  if (!run->samples || !run->outcomes) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  return 0;
}

void harp_timed_run_fini(struct harp_timed_run *run) {
  free(run->samples);
  free(run->outcomes);
  free(run->connections);
  *run = (struct harp_timed_run){0};
}

static void add_sample(struct harp_timed_run *run, harp_ns now, uint64_t bytes) {
  uint64_t interval = (now - run->start_ns) / run->interval_ns;
  if (interval < run->sample_count) run->samples[interval] += bytes;
}

/* Moves messages until its time is over. Returns 0 or -1. */
static int stream(struct harp_timed_run *run, struct harp_mesh *mesh, size_t bytes) {
  harp_mesh_begin(mesh, bytes, UINT64_MAX / 2);
  run->start_ns = harp_clock_ns();
  harp_ns end_ns = run->start_ns + run->sample_count * run->interval_ns;
  uint64_t seen_bytes = mesh->tally.bytes;
  for (harp_ns now = run->start_ns; now < end_ns && !harp_interrupt_ends_run(); now = harp_clock_ns()) {
    unsigned unfinished;
    int moved = harp_mesh_pass(mesh, &unfinished);
    if (moved < 0 || harp_interrupt_check()) return -1;
    if (mesh->tally.bytes != seen_bytes) {
      add_sample(run, harp_clock_ns(), mesh->tally.bytes - seen_bytes);
      seen_bytes = mesh->tally.bytes;
    }
    harp_mesh_wait(mesh, UINT_MAX, moved);
  }
  return 0;
}

/* Gathers every end's counts: `all` holds `per_rank` records for each rank. Returns 0 or -1. */
static int exchange(struct harp_mesh *mesh, struct flow_count *all, size_t per_rank) {
  struct flow_count *mine = calloc(per_rank, sizeof *mine);
  if (!mine) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  for (unsigned i = 0; i < mesh->flow_count; i++) {
    const struct harp_flow *flow = &mesh->flows[i];
    mine[i] = (struct flow_count){.from = flow->from,
                                  .to = flow->to,
                                  .index = flow->index,
                                  .used = 1,
                                  .posted = flow->posted,
                                  .bytes = flow->timed_bytes};
  }
  int rc = harp_rendezvous_gather(mesh->rendezvous, mine, per_rank * sizeof *mine, all);
  free(mine);
  return rc;
}

static int keep_connections(struct harp_timed_run *run, const struct flow_count *all, size_t per_rank,
                            int nranks) {
  run->connections = calloc(per_rank * (size_t)nranks, sizeof *run->connections);
  if (!run->connections) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  for (size_t i = 0; i < per_rank * (size_t)nranks; i++)
    if (all[i].used && all[i].to == (int)(i / per_rank)) /* the receiving end's record */
      run->connections[run->connection_count++] = (struct harp_timed_run_connection){
          .from = all[i].from, .to = all[i].to, .index = all[i].index, .bytes = all[i].bytes};
  return 0;
}

/* Both ends go on to the higher of their counts, so that no receive is left without its message. */
static void aim(struct harp_mesh *mesh, const struct flow_count *all, size_t per_rank) {
  for (unsigned i = 0; i < mesh->flow_count; i++) {
    struct harp_flow *flow = &mesh->flows[i];
    int peer = flow->sends ? flow->to : flow->from;
    flow->target = flow->posted;
    for (size_t at = per_rank * (size_t)peer; at < per_rank * (size_t)(peer + 1); at++)
      if (all[at].used && all[at].from == flow->from && all[at].to == flow->to &&
          all[at].index == flow->index) {
        flow->timed_offered = flow->sends ? flow->posted : all[at].posted;
        flow->target = HARP_MAX(flow->target, all[at].posted);
      }
  }
}

/* Moves what is under way to its end. Returns 0, also when nothing has moved for FINISH_S, or -1. */
static int finish_posted(struct harp_mesh *mesh) {
  harp_ns moved_ns = harp_clock_ns();
  unsigned unfinished = 1;
  bool any = false;
  for (unsigned passes = 0; unfinished; passes++) {
    int moved = harp_mesh_pass(mesh, &unfinished);
    if (moved < 0 || harp_interrupt_check()) return -1;
    any |= moved;
    if (passes % CLOCK_PASSES == 0) {
      harp_ns now = harp_clock_ns();
      if (any) moved_ns = now;
      if (now > moved_ns + HARP_SEC(FINISH_S)) break;
      any = false;
    }
    if (unfinished) harp_mesh_wait(mesh, UINT_MAX, moved);
  }
  return 0;
}

/* Leaves out the intervals that a run which was ended early did not reach. */
static void shorten(struct harp_timed_run *run) {
  uint64_t begun = run->elapsed_ns / run->interval_ns + 1;
  if (begun < run->sample_count) run->sample_count = (unsigned)begun;
}

/* Tells this rank's outcome to all and adds up the ranks' samples. Returns 0 or -1. */
static int sum_up(struct harp_timed_run *run, struct harp_mesh *mesh,
                  const struct harp_timed_run_outcome *mine) {
  int nranks = mesh->opt->nranks;
  size_t bytes = run->sample_count * sizeof *run->samples;
  if (harp_rendezvous_gather(mesh->rendezvous, mine, sizeof *mine, run->outcomes)) return -1;
  for (int i = 0; i < nranks; i++) run->failure_count += run->outcomes[i].failure[0] != 0;
  uint64_t *all = calloc((size_t)nranks, bytes);
  if (!all) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  int rc = harp_rendezvous_gather(mesh->rendezvous, run->samples, bytes, all);
  if (!rc) memset(run->samples, 0, bytes);
  for (size_t i = 0; !rc && i < (size_t)nranks * run->sample_count; i++)
    run->samples[i % run->sample_count] += all[i];
  free(all);
  return rc;
}

/* Returns whether any rank failed so far: then nobody finishes what was posted, because one end would wait in
 * vain. */
static int any_failed(struct harp_mesh *mesh, bool mine, bool *any) {
  char all[HARP_RANKS_MAX], own = mine;
  if (harp_rendezvous_gather(mesh->rendezvous, &own, 1, all)) return -1;
  *any = false;
  for (int i = 0; i < mesh->opt->nranks; i++) *any |= all[i];
  return 0;
}

static uint64_t undelivered(const struct harp_mesh *mesh) {
  uint64_t count = 0;
  for (unsigned i = 0; i < mesh->flow_count; i++)
    if (!mesh->flows[i].sends && mesh->flows[i].timed_offered > mesh->flows[i].done)
      count += mesh->flows[i].timed_offered - mesh->flows[i].done;
  return count;
}

int harp_timed_run_execute(struct harp_timed_run *run, struct harp_mesh *mesh, size_t bytes) {
  const struct harp_options *opt = mesh->opt;
  size_t per_rank = (size_t)2 * (size_t)opt->nranks * opt->connections;
  struct harp_timed_run_outcome mine = {0};
  if (harp_rendezvous_barrier(mesh->rendezvous)) return -1;
  if (!opt->rank) /* who breaks links at a given time reads this */
    fprintf(stderr, "harp-perf: window starts at %" PRIu64 " ns\n", harp_clock_ns());
  for (unsigned i = 0; i < mesh->flow_count; i++) mesh->flows[i].timed_bytes = 0;
  bool failed = stream(run, mesh, bytes) != 0, any;
  run->elapsed_ns = harp_clock_ns() - run->start_ns;
  struct flow_count *all = calloc(per_rank * (size_t)opt->nranks, sizeof *all);
  int rc = all ? 0 : harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  if (!rc) rc = any_failed(mesh, failed, &any) || exchange(mesh, all, per_rank);
  if (!rc) rc = keep_connections(run, all, per_rank, opt->nranks);
  if (!rc) {
    harp_ns finish_ns = harp_clock_ns();
    aim(mesh, all, per_rank);
    if (!any && finish_posted(mesh)) failed = true;
    mine.undelivered = undelivered(mesh);
    mine.finished_ns = harp_clock_ns() - finish_ns;
    if (failed) snprintf(mine.failure, sizeof mine.failure, "%s", harp_fail_text());
    rc = sum_up(run, mesh, &mine);
    if (harp_interrupt_ends_run()) shorten(run);
  }
  free(all);
  return rc ? -1 : 0;
}
