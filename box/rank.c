/* SPDX-License-Identifier: Apache-2.0 */
#include "rank.h"

#include "clock.h"
#include "crash.h"
#include "func.h"
#include "layout.h"
#include "library.h"
#include "log.h"
#include "nap.h"
#include "report.h"
#include "steps.h"
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 256, CALIBRATION_PARTS = 8, ITERATIONS_MAX = 1000000, BATCH = 20 };

struct rank {
  const struct box_options *options;
  struct box_shared *shared;
  struct box_member member;
  int rank;
  box_comm comms[BOX_COMMS_MAX];
  struct box_buffers buffers[BOX_COMMS_MAX];
  uint64_t seed, wrong;
};

/* ---- place ---- */

static void enter_namespace(const char *name) {
  char path[NAME_BYTES];
  snprintf(path, sizeof path, strchr(name, '/') ? "%s" : "/var/run/netns/%s", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET))
    box_die("the network namespace %s can't be entered: %s", path, strerror(errno));
  close(fd);
}

static void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)core, &set);
  if (sched_setaffinity(0, sizeof set, &set)) box_die("core %d can't be had: %s", core, strerror(errno));
}

/* Each rank is a host of its own to NCCL, so that all its data takes the network. What fake memory lacks, or
 * the kernels here don't emulate, is disabled; variables that the user has set stay. */
static void set_environment(const struct box_options *o, int rank) {
  static const char *const off[] = {"NCCL_PAT_ENABLE",  "NCCL_CUMEM_ENABLE",   "NCCL_CUMEM_HOST_ENABLE",
                                    "NCCL_NVLS_ENABLE", "NCCL_LOCAL_REGISTER", "NCCL_GRAPH_REGISTER",
                                    "NCCL_RAS_ENABLE"};
  char host[NAME_BYTES];
  snprintf(host, sizeof host, "harp-nccl-%d-%d", (int)getppid(), rank);
  setenv("NCCL_HOSTID", host, 1);
  if (!o->namespace_count) setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  for (size_t i = 0; i < HARP_ARRAY_COUNT(off); i++) setenv(off[i], "0", 0);
}

/* ---- the ranks together ---- */

static void connect_all(struct rank *r, int cycle) {
  for (int i = 0; i < r->options->communicators; i++) {
    struct box_shared *s = r->shared;
    struct box_nccl_id id;
    if (!r->rank) {
      box_shared_require(&r->member, "ncclGetUniqueId", box_nccl()->GetUniqueId(&id));
      box_shared_publish(s, i, cycle, &id);
    }
    id = box_shared_id(s, i, cycle);
    box_shared_require(&r->member, "ncclCommInitRank",
                       box_nccl()->CommInitRank(&r->comms[i], r->options->ranks, id, r->rank));
  }
}

/* ---- work ---- */

static void wait_all(struct rank *r) {
  for (int i = 0; i < r->options->communicators; i++) box_stream_wait(r->buffers[i].stream);
}

/* Waits after each BATCH operations, as nccl-tests does. NCCL keeps a structure of some KiB for each
 * operation that was started and is not done, so that of thousands the kernel would be clearing new pages
 * meanwhile. */
static void repeat(struct rank *r, const struct box_operation *op, int count) {
  for (int n = 0; n < count; n++) {
    if (n && n % BATCH == 0) wait_all(r);
    for (int i = 0; i < r->options->communicators; i++)
      box_shared_require(&r->member, box_op_names[r->options->op],
                         box_operation_start(op, r->comms[i], &r->buffers[i]));
  }
  wait_all(r);
}

static uint64_t verify(struct rank *r, const struct box_operation *op) {
  uint64_t wrong = 0;
  for (int i = 0; i < r->options->communicators; i++)
    wrong += box_operation_verify(op, &r->buffers[i], r->seed + (uint64_t)i);
  return wrong;
}

static uint64_t check_once(struct rank *r, const struct box_operation *op) {
  r->seed += BOX_COMMS_MAX;
  for (int i = 0; i < r->options->communicators; i++)
    box_operation_fill(op, &r->buffers[i], r->seed + (uint64_t)i);
  repeat(r, op, 1);
  return verify(r, op);
}

static void sleep_until(double end_s) {
  struct timespec end = {.tv_sec = (time_t)end_s, .tv_nsec = (long)((end_s - floor(end_s)) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) continue;
}

/* Starts each bucket's operation when it is ready, and waits until the compute time is over and all are done.
 * The buckets share the buffers: the stream takes them one after another. */
static void step_once(struct rank *r) {
  const struct box_options *o = r->options;
  double begin = box_clock_s();
  for (int i = 0; i < o->size_count; i++) {
    struct box_operation op = box_operation_of(o, o->op, r->rank, o->ranks, o->sizes[i]);
    sleep_until(begin + o->ready_ms[i] / 1e3);
    box_shared_require(&r->member, box_op_names[o->op],
                       box_operation_start(&op, r->comms[0], &r->buffers[0]));
  }
  sleep_until(begin + o->compute_ms / 1e3);
  wait_all(r);
}

/* Repeats what is timed: the operation, or the training step. */
static void repeat_timed(struct rank *r, const struct box_operation *op, int count) {
  if (!r->options->is_step) return repeat(r, op, count);
  for (int n = 0; n < count; n++) step_once(r);
}

static double timed(struct rank *r, const struct box_operation *op, int count) {
  box_shared_barrier(&r->member);
  double begin = box_clock_s();
  repeat_timed(r, op, count);
  return box_clock_s() - begin;
}

/* Returns how many operations fill the time; all ranks get rank 0's number. */
static int iterations_for(struct rank *r, const struct box_operation *op) {
  const struct box_options *o = r->options;
  if (o->time_s <= 0) return o->iterations;
  for (int count = 1;; count *= 2) {
    double took = timed(r, op, count);
    if (!r->rank) {
      bool enough = took * CALIBRATION_PARTS >= o->time_s || count * 2 > ITERATIONS_MAX;
      double fit = HARP_MIN(ceil(count * o->time_s / HARP_MAX(took, 1e-9)), ITERATIONS_MAX);
      r->shared->iterations = enough ? (int)fit : 0;
    }
    box_shared_barrier(&r->member);
    int chosen = r->shared->iterations;
    box_shared_barrier(&r->member);
    if (chosen || atomic_load(&r->shared->failed)) return HARP_MAX(chosen, 1);
  }
}

static uint64_t check_size(struct rank *r, size_t bytes) {
  const struct box_options *o = r->options;
  struct box_operation op = box_operation_of(o, o->op, r->rank, o->ranks, bytes);
  uint64_t wrong = 0;
  for (int i = 0; o->check && i < o->checked_rounds; i++) wrong += check_once(r, &op);
  return wrong;
}

/* Measures a row of the table: an operation, or the training step, whose buckets are checked one by one. */
static void run_row(struct rank *r, const size_t *sizes, int size_count) {
  const struct box_options *o = r->options;
  size_t bytes = 0;
  uint64_t wrong = 0;
  for (int i = 0; i < size_count; i++) {
    bytes += sizes[i];
    wrong += check_size(r, sizes[i]);
  }
  struct box_operation op = box_operation_of(o, o->op, r->rank, o->ranks, bytes);
  repeat_timed(r, &op, o->iterations || o->time_s > 0 ? o->warmup : 0);
  int count = iterations_for(r, &op);
  double took = count ? timed(r, &op, count) : 0;
  if (count && o->check && !o->is_step) wrong += verify(r, &op); /* the last one's result too */
  r->shared->time_us[r->rank] = count ? took / count / o->communicators * 1e6 : 0;
  r->shared->wrong[r->rank] = wrong;
  box_shared_barrier(&r->member);
  if (!r->rank) {
    double slowest = 0;
    uint64_t all_wrong = 0;
    for (int i = 0; i < o->ranks; i++) {
      slowest = HARP_MAX(slowest, r->shared->time_us[i]);
      all_wrong += r->shared->wrong[i];
    }
    r->wrong += all_wrong;
    box_report_size(&op, slowest, count, all_wrong);
  }
  box_shared_barrier(&r->member);
}

/* Repeats the largest size for a while, so that what is measured then is not what connections do at first. */
static void repeat_largest(struct rank *r, size_t most) {
  const struct box_options *o = r->options;
  struct box_operation op = box_operation_of(o, o->op, r->rank, o->ranks, most);
  double end = box_clock_s() + o->settle_s;
  for (bool is_over = !o->settle_s; !is_over;) {
    repeat(r, &op, 1);
    if (!r->rank) r->shared->iterations = box_clock_s() >= end;
    box_shared_barrier(&r->member);
    is_over = r->shared->iterations || atomic_load(&r->shared->failed);
    box_shared_barrier(&r->member);
  }
}

static void run_cycle(struct rank *r, int cycle, size_t most) {
  const struct box_options *o = r->options;
  double begin = box_clock_s();
  connect_all(r, cycle);
  double connected = box_clock_s();
  repeat_largest(r, most);
  int together = o->is_step ? o->size_count : 1;
  for (int i = 0; i < o->size_count; i += together) run_row(r, &o->sizes[i], together);
  double done = box_clock_s();
  for (int i = 0; i < o->communicators; i++)
    box_shared_require(&r->member, "ncclCommDestroy", box_nccl()->CommDestroy(r->comms[i]));
  if (!r->rank) box_report_cycle(o, cycle, connected - begin, box_clock_s() - done);
  box_shared_barrier(&r->member);
}

static int load(const struct box_options *o, const struct box_elf *elfs) {
  if (o->plan || o->nap_us) box_library_let_nap();
  if (o->nap_us) box_nap_set(o->nap_us);
  for (int number = 0; number < o->library_count; number++) {
    box_library_choose(number);
    if (box_library_load(&elfs[number]) || box_nccl_load()) return -1;
    if (box_layout_is_known() && box_funcs_load()) return -1;
  }
  box_library_choose(0);
  return 0;
}

int box_rank_run(const struct box_options *o, const struct box_plan *plan, const struct box_elf *elfs,
                 struct box_shared *shared, int rank) {
  static struct rank r;
  size_t most = 0;
  box_crash_init();
  r.options = o;
  r.shared = shared;
  r.rank = rank;
  r.member = (struct box_member){.shared = shared, .rank = rank, .ranks = o->ranks};
  if (o->namespace_count) enter_namespace(o->namespaces[rank % o->namespace_count]);
  if (o->core_count) pin(o->cores[rank % o->core_count]);
  set_environment(o, rank);
  if (load(o, elfs)) return BOX_EXIT_LOAD;
  if (plan->step_count) return box_steps_run(plan, o, &r.member);
  for (int i = 0; i < o->size_count; i++) most = HARP_MAX(most, o->sizes[i]);
  for (int i = 0; i < o->communicators; i++) box_buffers_take(&r.buffers[i], most);
  if (o->killed_rank != BOX_NONE_KILLED) {
    connect_all(&r, 1);
    struct box_operation op = box_operation_of(o, o->op, rank, o->ranks, most);
    return box_survive(&op, shared, r.comms[0], &r.buffers[0]);
  }
  if (!rank) box_report_head(o, box_library_version());
  for (int cycle = 1; cycle <= o->cycles; cycle++) run_cycle(&r, cycle, most);
  return r.wrong ? BOX_EXIT_WRONG : BOX_EXIT_OK;
}
