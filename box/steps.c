/* SPDX-License-Identifier: Apache-2.0 */
#include "steps.h"

#include "clock.h"
#include "log.h"
#include "operation.h"
#include "report.h"
#include "stream.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOGETHER = 16, LOOK_US = 200 };

/* The communicators of one name that this rank has. */
struct held {
  box_comm *comms;
  struct box_buffers *buffers;
};

struct taker {
  const struct box_plan *plan;
  const struct box_options *options;
  struct box_member *member;
  const struct box_step *step;
  struct held held[BOX_GROUPS_MAX];
  size_t most; /* bytes of the largest size */
  int cycle;
  uint64_t seed, operations, wrong;
};

static void require(struct taker *t, int result) {
  box_shared_require(t->member, t->step->text, result);
}

static const struct box_group *group_of(const struct taker *t, int number) {
  return &t->plan->groups[number];
}

static bool is_member(const struct taker *t, int number) {
  return group_of(t, number)->sets[t->member->rank] != BOX_ABSENT;
}

/* Ends the process if the release lacks the call. */
static void need(const void *call, const char *name, const char *since) {
  if (!call) box_die("NCCL %d has no %s: NCCL %s or newer is needed", box_library_version(), name, since);
}

/* A call may return before it is done. Returns its result. */
static int wait_done(box_comm comm, int result) {
  while (result == BOX_NCCL_OK || result == BOX_NCCL_IN_PROGRESS) {
    int asynchronous, error = box_nccl()->CommGetAsyncError(comm, &asynchronous);
    if (error || asynchronous != BOX_NCCL_IN_PROGRESS) return error ? error : asynchronous;
    usleep(LOOK_US);
  }
  return result;
}

/* ---- made ---- */

static box_comm init(struct taker *t, const struct box_group *g, int i) {
  int slot = t->step->first_id + i, place = g->places[t->member->rank];
  struct box_nccl_id id;
  box_comm comm = NULL;
  if (!place) {
    require(t, box_nccl()->GetUniqueId(&id));
    box_shared_publish(t->member->shared, slot, t->cycle, &id);
  }
  id = box_shared_id(t->member->shared, slot, t->cycle);
  require(t, box_nccl()->CommInitRank(&comm, box_group_size(g, t->member->rank), id, place));
  return comm;
}

static box_comm split(struct taker *t, box_comm from) {
  const struct box_step *s = t->step;
  int colour = s->colours[t->member->rank];
  struct box_nccl_config config = box_nccl_config();
  box_comm comm = NULL;
  config.split_share = s->shares;
  need((void *)box_nccl()->CommSplit, "ncclCommSplit", "2.18");
  require(t, box_nccl()->CommSplit(from, colour == BOX_ABSENT ? BOX_NCCL_NO_COLOUR : colour,
                                   s->keys[t->member->rank], &comm, &config));
  return comm;
}

static box_comm shrink(struct taker *t, const struct box_group *old, box_comm from) {
  const struct box_step *s = t->step;
  const int rank = t->member->rank;
  int excluded[BOX_RANKS_MAX], count = 0;
  for (int i = 0; i < s->listed_count; i++)
    if (old->sets[s->order[i]] == old->sets[rank]) excluded[count++] = old->places[s->order[i]];
  struct box_nccl_config config = box_nccl_config();
  box_comm comm = NULL;
  config.shrink_share = s->shares;
  need((void *)box_nccl()->CommShrink, "ncclCommShrink", "2.27");
  require(t, box_nccl()->CommShrink(from, excluded, count, &comm, &config,
                                    s->aborts ? BOX_NCCL_SHRINK_ABORT : 0));
  return comm;
}

/* The first of the old ranks makes the id, which the new ones need. */
static box_comm grow(struct taker *t, const struct box_group *g, box_comm from, int i) {
  int slot = t->step->first_id + i, place = g->places[t->member->rank];
  bool is_new = t->step->listed[t->member->rank];
  struct box_nccl_id id;
  struct box_nccl_config config = box_nccl_config();
  box_comm comm = NULL;
  need((void *)box_nccl()->CommGrow, "ncclCommGrow", "2.29");
  if (!place) {
    require(t, box_nccl()->CommGetUniqueId(from, &id));
    box_shared_publish(t->member->shared, slot, t->cycle, &id);
  }
  if (is_new) id = box_shared_id(t->member->shared, slot, t->cycle);
  require(t, box_nccl()->CommGrow(from, box_group_size(g, t->member->rank), is_new || !place ? &id : NULL,
                                  is_new ? place : -1, &comm, &config));
  return comm;
}

static void take_make(struct taker *t) {
  const struct box_step *s = t->step;
  const struct box_group *g = group_of(t, s->groups[0]);
  const struct box_group *old = s->from == BOX_ABSENT ? NULL : group_of(t, s->from);
  bool belongs = is_member(t, s->groups[0]);
  bool calls = belongs || (s->verb == BOX_SPLIT && is_member(t, s->from));
  struct held *h = &t->held[s->groups[0]];
  if (!calls) return;
  if (belongs) {
    h->comms = box_new((size_t)g->count * sizeof *h->comms);
    h->buffers = box_new((size_t)g->count * sizeof *h->buffers);
  }
  for (int i = 0; i < g->count; i++) {
    box_comm comm, from = old && is_member(t, s->from) ? t->held[s->from].comms[i] : NULL;
    switch (s->verb) {
    case BOX_INIT:
      comm = init(t, g, i);
      break;
    case BOX_SPLIT:
      comm = split(t, from);
      break;
    case BOX_SHRINK:
      comm = shrink(t, old, from);
      break;
    default:
      comm = grow(t, g, from, i);
    }
    if (!comm != !belongs)
      box_die("rank %d: %s: %s", t->member->rank, s->text,
              comm ? "a communicator without a colour" : "no communicator");
    if (!comm) continue;
    require(t, wait_done(comm, 0));
    h->comms[i] = comm;
    box_buffers_take(&h->buffers[i], t->most);
  }
}

/* ---- used ---- */

/* One operation of one communicator. */
struct use {
  struct box_operation op;
  int library;
  box_comm comm;
  const struct box_buffers *buffers;
  uint64_t seed;
};

static struct use use_of(struct taker *t, int number, int i, size_t bytes) {
  const struct box_group *g = group_of(t, number);
  const int rank = t->member->rank;
  struct use use = {
      .op = box_operation_of(t->options, t->step->op, g->places[rank], box_group_size(g, rank), bytes),
      .library = g->library,
      .comm = t->held[number].comms[i],
      .buffers = &t->held[number].buffers[i],
      .seed = t->seed + (uint64_t)i};
  box_operation_fill(&use.op, use.buffers, use.seed);
  return use;
}

/* Waits until it is done; an asynchronous error ends the process. */
static void wait_for(struct taker *t, const struct use *use) {
  while (!box_stream_is_idle(use->buffers->stream)) {
    int asynchronous = 0;
    require(t, box_nccl()->CommGetAsyncError(use->comm, &asynchronous));
    require(t, asynchronous);
    usleep(LOOK_US);
  }
}

static void finish(struct taker *t, const struct use *uses, int count) {
  for (int i = 0; i < count; i++) {
    box_library_choose(uses[i].library);
    wait_for(t, &uses[i]);
    uint64_t wrong = box_operation_verify(&uses[i].op, uses[i].buffers, uses[i].seed);
    if (wrong)
      box_log("rank %d: %s: %llu wrong elements of %zu bytes", t->member->rank, t->step->text,
              (unsigned long long)wrong, uses[i].op.bytes);
    t->wrong += wrong;
    t->operations++;
  }
}

static void run_size(struct taker *t, size_t bytes) {
  struct use uses[TOGETHER];
  int count = 0;
  for (int k = 0; k < t->step->group_count; k++) {
    int number = t->step->groups[k];
    if (!is_member(t, number)) continue;
    for (int i = 0; i < group_of(t, number)->count; i++) {
      if (count == TOGETHER) {
        finish(t, uses, count);
        count = 0;
      }
      uses[count] = use_of(t, number, i, bytes);
      box_library_choose(uses[count].library);
      require(t, box_operation_start(&uses[count].op, uses[count].comm, uses[count].buffers));
      count++;
    }
  }
  finish(t, uses, count);
}

/* The seed follows from the step, not from what this rank took part in, so that all ranks have the same. */
static void take_run(struct taker *t) {
  for (int i = 0; i < t->options->size_count; i++) {
    t->seed += BOX_COUNT_MAX;
    run_size(t, t->options->sizes[i]);
  }
}

/* An operation that nobody waits for, of all ranks or of some: then it can't end. */
static void take_start(struct taker *t) {
  const struct box_step *s = t->step;
  if (s->listed_count && !s->listed[t->member->rank]) return;
  for (int i = 0; i < group_of(t, s->groups[0])->count; i++) {
    struct use use = use_of(t, s->groups[0], i, t->most);
    require(t, box_operation_start(&use.op, use.comm, use.buffers));
  }
}

/* ---- lost ---- */

static void die(struct taker *t) {
  atomic_store(&t->member->shared->doomed[t->member->rank], true);
  kill(getpid(), SIGKILL);
  pause();
}

/* A rank is killed while no operation runs, and the others know it. */
static void take_kill(struct taker *t) {
  const struct box_shared *shared = t->member->shared;
  int victim = t->step->order[0];
  if (victim == t->member->rank) die(t);
  while (!atomic_load(&shared->dead[victim]) && !atomic_load(&shared->failed)) usleep(LOOK_US);
}

/* A rank is killed in an operation. The others repeat it until NCCL shows an error to one of them, which
 * tells the others, as a framework does it. */
static void take_lose(struct taker *t) {
  const struct box_step *s = t->step;
  struct box_shared *shared = t->member->shared;
  struct use use = use_of(t, s->groups[0], 0, t->most);
  double begin = box_clock_s();
  int error = 0;
  while (!error && !atomic_load(&shared->loss_noticed)) {
    if (box_clock_s() - begin > t->options->patience_s)
      box_die("rank %d: %s: no error after %g s", t->member->rank, s->text, t->options->patience_s);
    if (box_stream_is_idle(use.buffers->stream)) {
      error = box_operation_start(&use.op, use.comm, use.buffers);
      if (s->listed[t->member->rank]) die(t);
    }
    int asynchronous = 0;
    if (!error || error == BOX_NCCL_IN_PROGRESS)
      error = box_nccl()->CommGetAsyncError(use.comm, &asynchronous);
    if (!error && asynchronous != BOX_NCCL_IN_PROGRESS) error = asynchronous;
    usleep(LOOK_US);
  }
  atomic_store(&shared->loss_noticed, true);
  if (!error) return;
  box_report_loss(t->options, t->member->rank, box_nccl()->GetErrorString(error), box_clock_s() - begin,
                  box_nccl_last_error(NULL));
}

/* ---- ended ---- */

static int end_one(const struct box_step *s, box_comm comm) {
  const struct box_nccl *n = box_nccl();
  switch (s->verb) {
  case BOX_REVOKE:
    need((void *)n->CommRevoke, "ncclCommRevoke", "2.28");
    return wait_done(comm, n->CommRevoke(comm, 0));
  case BOX_SUSPEND:
    need((void *)n->CommSuspend, "ncclCommSuspend", "2.29");
    return wait_done(comm, n->CommSuspend(comm, BOX_NCCL_SUSPEND_MEMORY));
  case BOX_RESUME:
    need((void *)n->CommResume, "ncclCommResume", "2.29");
    return wait_done(comm, n->CommResume(comm));
  case BOX_FINALIZE:
    need((void *)n->CommFinalize, "ncclCommFinalize", "2.14");
    return wait_done(comm, n->CommFinalize(comm));
  case BOX_ABORT:
    return n->CommAbort(comm);
  default:
    return n->CommDestroy(comm);
  }
}

static void give(struct taker *t, int number) {
  struct held *h = &t->held[number];
  for (int i = 0; i < group_of(t, number)->count; i++) {
    box_stream_wait(h->buffers[i].stream);
    box_buffers_give(&h->buffers[i]);
  }
  free(h->comms);
  free(h->buffers);
  *h = (struct held){0};
}

static void take_end(struct taker *t) {
  int number = t->step->groups[0];
  for (int i = 0; i < group_of(t, number)->count; i++) require(t, end_one(t->step, t->held[number].comms[i]));
  if (t->step->verb == BOX_DESTROY || t->step->verb == BOX_ABORT) give(t, number);
}

/* What ends other ranks' operations: NCCL may still be sending for those that are done on this rank. */
static bool interrupts(const struct box_step *s) {
  switch (s->verb) {
  case BOX_START:
  case BOX_KILL:
  case BOX_LOSE:
  case BOX_REVOKE:
  case BOX_ABORT:
    return true;
  default:
    return s->aborts;
  }
}

static void take_step(struct taker *t) {
  if (interrupts(t->step)) box_shared_barrier(t->member);
  box_library_choose(group_of(t, t->step->groups[0])->library);
  if (t->step->verb <= BOX_GROW) {
    take_make(t);
  } else if (t->step->verb == BOX_RUN) {
    take_run(t);
  } else if (is_member(t, t->step->groups[0])) {
    if (t->step->verb == BOX_START)
      take_start(t);
    else if (t->step->verb == BOX_KILL)
      take_kill(t);
    else if (t->step->verb == BOX_LOSE)
      take_lose(t);
    else
      take_end(t);
  }
}

int box_steps_run(const struct box_plan *plan, const struct box_options *o, struct box_member *m) {
  static struct taker t;
  t.plan = plan;
  t.options = o;
  t.member = m;
  for (int i = 0; i < o->size_count; i++) t.most = HARP_MAX(t.most, o->sizes[i]);
  for (t.cycle = 1; t.cycle <= o->cycles; t.cycle++) {
    double begin = box_clock_s();
    for (int i = 0; i < plan->step_count; i++) {
      atomic_store(&m->shared->steps[m->rank], i);
      t.step = &plan->steps[i];
      take_step(&t);
    }
    box_shared_barrier(m);
    struct box_usage usage = box_usage_now();
    box_report_plan(o, m->rank, t.cycle, box_clock_s() - begin, t.operations, t.wrong, &usage);
    box_shared_barrier(m);
  }
  return t.wrong ? BOX_EXIT_WRONG : BOX_EXIT_OK;
}
