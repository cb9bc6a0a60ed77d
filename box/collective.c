/* SPDX-License-Identifier: Apache-2.0 */
/* The order of steps of each algorithm, as NCCL's proxy expects it, which counts the steps of each
 * connection. Ring: each chunk goes from neighbour to neighbour. Tree: reduced towards the
 * root, then broadcast. */
#include "collective.h"

#include "layout.h"
#include "library.h"
#include "log.h"
#include "slots.h"

#include <stdlib.h>
#include <string.h>

enum { CHILDREN_MAX = 3, SIGN_SINCE = 22400 };

/* A round: `parts` chunks that follow one another from `at`, cut off at `end`. */
struct round {
  int64_t at, chunk, end;
};

struct run {
  struct box_channel *channel;
  const struct box_func *func;
  const struct box_work *work;
  struct box_slots slots;
};

static int64_t even_chunk(int64_t elements, int64_t parts, size_t element_bytes) {
  int64_t unit = HARP_MAX(16 / (int64_t)element_bytes, 1);
  return ((elements + parts - 1) / parts + unit - 1) / unit * unit;
}

/* Moves to the next round; `round->chunk` is 0 before the first. False after the last. */
static bool next_round(const struct run *run, int parts, int64_t *done, struct round *round) {
  const struct box_work *w = run->work;
  size_t element = box_func_element_bytes(run->func);
  int64_t full = parts * w->chunk;
  if (w->turns) {
    if (*done >= w->total) return false;
    int64_t chunk = HARP_MIN(w->chunk, even_chunk(w->total - *done, (int64_t)w->turns * parts, element));
    *round = (struct round){*done + w->turn * parts * chunk, chunk, w->total};
    *done += w->turns * full;
    return true;
  }
  if (*done >= w->count) return false;
  int64_t left = w->count - *done, chunk = w->chunk;
  if (parts > 1 && left < full) chunk = w->last_chunk ? w->last_chunk : even_chunk(left, parts, element);
  *round = (struct round){w->offset + *done, chunk, w->offset + w->count};
  *done += full;
  return true;
}

static const char *input(const struct run *run, int64_t element) {
  return run->work->in + element * (int64_t)box_func_element_bytes(run->func);
}
static char *output(const struct run *run, int64_t element) {
  return run->work->out + element * (int64_t)box_func_element_bytes(run->func);
}

/* ---- ring ---- */

/* Each rank's part of the round is reduced on its way around, complete at its owner, and goes around once
 * more. */
static void ring_all_reduce(struct run *run, const struct round *round) {
  int ranks = run->channel->kernel->ranks;
  int own = (int)box_get_signed(run->channel->channel, BOX_CHANNEL_INDEX);
  for (int step = 1; step < 2 * ranks; step++) {
    int64_t at = round->at + (own + 2 * ranks - step) % ranks * round->chunk;
    int64_t count = HARP_MIN(round->chunk, round->end - at);
    struct box_step s = {.receive = step > 1, .send = step < 2 * ranks - 1};
    s.source = step <= ranks ? input(run, at) : NULL;
    s.target = step >= ranks ? output(run, at) : NULL;
    s.is_input = step <= ranks;
    s.is_result = step == ranks;
    box_slots_do(&run->slots, s, count);
  }
}

/* `order` lists the ranks from this one on, in the direction of the ring. */
static void ring_all_gather(struct run *run, const struct round *round, const int *order) {
  int ranks = run->channel->kernel->ranks;
  int64_t count = HARP_MIN(round->chunk, round->end - round->at);
  for (int step = 0; step < ranks; step++) {
    char *place = output(run, round->at + order[(ranks - step) % ranks] * run->work->total);
    struct box_step s = {.receive = step > 0, .send = step < ranks - 1, .target = place};
    if (!step) s.source = input(run, round->at);
    if (!step && s.source == place) s.target = NULL;
    box_slots_do(&run->slots, s, count);
  }
}

static void ring_reduce_scatter(struct run *run, const struct round *round, const int *order) {
  int ranks = run->channel->kernel->ranks;
  int64_t count = HARP_MIN(round->chunk, round->end - round->at);
  for (int step = 1; step <= ranks; step++) {
    bool is_last = step == ranks;
    struct box_step s = {.receive = step > 1, .send = !is_last, .is_input = true, .is_result = is_last};
    s.source = input(run, round->at + order[ranks - step] * run->work->total);
    s.target = is_last ? output(run, round->at) : NULL;
    box_slots_do(&run->slots, s, count);
  }
}

static void ring_broadcast(struct run *run, const struct round *round, const int *order) {
  const struct box_work *w = run->work;
  bool is_root = order[0] == w->root, is_end = order[1] == w->root;
  struct box_step s = {.receive = !is_root, .send = is_root || !is_end, .target = output(run, round->at)};
  if (is_root) s.source = input(run, round->at);
  if (is_root && w->in == w->out) s.target = NULL;
  box_slots_do(&run->slots, s, HARP_MIN(round->chunk, round->end - round->at));
}

static void ring_reduce(struct run *run, const struct round *round, const int *order) {
  bool is_root = order[0] == run->work->root;
  bool is_first = order[run->channel->kernel->ranks - 1] == run->work->root;
  struct box_step s = {.receive = !is_first, .send = !is_root, .is_input = true, .is_result = is_root};
  s.source = input(run, round->at);
  s.target = is_root ? output(run, round->at) : NULL;
  box_slots_do(&run->slots, s, HARP_MIN(round->chunk, round->end - round->at));
}

static void ring(struct run *run) {
  struct box_channel *channel = run->channel;
  const int previous = (int)box_get_signed(channel->channel, BOX_CHANNEL_PREVIOUS);
  const int next = (int)box_get_signed(channel->channel, BOX_CHANNEL_NEXT);
  const int *order = box_get_pointer(channel->channel, BOX_CHANNEL_USER_RANKS);
  enum box_collective collective = run->func->collective;
  bool rooted = collective == BOX_BROADCAST || collective == BOX_REDUCE;
  int steps = run->func->protocol == BOX_SIMPLE && !rooted ? 4 : 1;
  struct box_peers peers = {.receive_from = &previous, .receive_count = 1, .send_to = &next, .send_count = 1};
  box_slots_open(&run->slots, channel, run->func, run->func->protocol, &peers, steps, run->work->argument);
  int parts = collective == BOX_ALL_REDUCE ? channel->kernel->ranks : 1;
  struct round round;
  for (int64_t done = 0; next_round(run, parts, &done, &round);) switch (collective) {
    case BOX_ALL_REDUCE:
      ring_all_reduce(run, &round);
      break;
    case BOX_ALL_GATHER:
      ring_all_gather(run, &round, order);
      break;
    case BOX_REDUCE_SCATTER:
      ring_reduce_scatter(run, &round, order);
      break;
    case BOX_BROADCAST:
      ring_broadcast(run, &round, order);
      break;
    case BOX_REDUCE:
      ring_reduce(run, &round, order);
      break;
    default:
      break;
    }
  box_slots_close(&run->slots);
}

/* ---- tree ---- */

/* One half of a tree's block, which runs beside the other. */
struct half {
  struct run run;
  struct box_peers peers;
  struct box_step step;
  bool reads, writes;
  int *pending;
};

static void tree_half(void *word) {
  struct half *half = word;
  struct run *run = &half->run;
  struct round round;
  box_slots_open(&run->slots, run->channel, run->func, run->func->protocol, &half->peers, 1,
                 run->work->argument);
  for (int64_t done = 0; next_round(run, 1, &done, &round);) {
    struct box_step step = half->step;
    step.source = half->reads ? input(run, round.at) : NULL;
    step.target = half->writes ? output(run, round.at) : NULL;
    box_slots_do(&run->slots, step, HARP_MIN(round.chunk, round.end - round.at));
  }
  box_slots_close(&run->slots);
  if (half->pending) --*half->pending;
}

static void tree(struct run *run) {
  const char *channel = run->channel->channel;
  const int up = (int)box_get_signed(channel, BOX_CHANNEL_UP);
  const int *down = (const int *)(const void *)box_at(channel, BOX_CHANNEL_DOWN);
  int children = 0, pending = 2;
  while (children < CHILDREN_MAX && down[children] >= 0) children++;
  if (up < 0) { /* the root sends the result back */
    struct half root = {.run = *run, .reads = true, .writes = true};
    root.peers = (struct box_peers){down, down, children, children, 0, 0};
    root.step = (struct box_step){.receive = true, .send = true, .is_input = true, .is_result = true};
    tree_half(&root);
    return;
  }
  struct half reduce = {.run = *run, .reads = true, .pending = &pending};
  reduce.peers = (struct box_peers){down, &up, children, 1, 0, 0};
  reduce.step = (struct box_step){.receive = children > 0, .send = true, .is_input = true};
  struct half spread = {.run = *run, .writes = true, .pending = &pending};
  spread.peers = (struct box_peers){&up, down, 1, children, 0, 0};
  spread.step = (struct box_step){.receive = true, .send = children > 0};
  struct box_fibers *fibers = &run->channel->kernel->fibers;
  box_fibers_add(fibers, tree_half, &reduce);
  box_fibers_add(fibers, tree_half, &spread);
  box_fibers_wait_zero(fibers, &pending);
}

/* ---- */

void box_collective_run(struct box_channel *channel, const struct box_func *func,
                        const struct box_work *work) {
  struct run run = {.channel = channel, .func = func, .work = work};
  char text[128];
  if (func->algorithm == BOX_RING)
    ring(&run);
  else if (func->algorithm == BOX_TREE && func->collective == BOX_ALL_REDUCE)
    tree(&run);
  else
    box_die("%s is not emulated: NCCL_ALGO=Ring,Tree", box_func_text(func, text, sizeof text));
}

/* One chunk of each in turn, until all are done. */
void box_collective_broadcasts(struct box_channel *channel, const struct box_func *func) {
  const int previous = (int)box_get_signed(channel->channel, BOX_CHANNEL_PREVIOUS);
  const int next = (int)box_get_signed(channel->channel, BOX_CHANNEL_NEXT);
  struct box_peers peers = {.receive_from = &previous, .receive_count = 1, .send_to = &next, .send_count = 1};
  struct box_slots slots;
  box_slots_open(&slots, channel, func, func->protocol, &peers, 1, 0);
  int64_t *done = box_new(channel->work_count * sizeof *done);
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < channel->work_count; i++) {
      const char *w = channel->works + i * channel->work_bytes;
      int64_t bytes = box_get_signed(w, BOX_BCAST_BYTES), at = box_get_signed(w, BOX_BCAST_DONE) + done[i];
      int64_t depth = box_get_signed(w, BOX_BCAST_DEPTH); /* how far this rank is from the root */
      int64_t count = HARP_MIN(bytes - done[i], box_get_signed(w, BOX_BCAST_CHUNK));
      const char *source = box_get_pointer(w, BOX_BCAST_SEND);
      char *target = box_get_pointer(w, BOX_BCAST_RECV);
      struct box_step step = {.receive = depth > 0, .send = depth < channel->kernel->ranks - 1};
      step.source = depth ? NULL : source + at;
      step.target = !depth && source == target ? NULL : target + at;
      if (count > 0) box_slots_do(&slots, step, count);
      done[i] += HARP_MAX(count, 0);
      more |= done[i] < bytes;
    }
  }
  free(done);
  box_slots_close(&slots);
}

/* Until 2.24 the divisor did not encode whether the integers have a sign. */
uint64_t box_collective_argument(const struct box_func *func, uint64_t argument, bool is_pointer) {
  if (func->has_argument) return func->argument;
  bool divides = func->reduction == BOX_SUM_POST_DIV;
  if (is_pointer) {
    const void *at = (const void *)(uintptr_t)argument;
    argument = 0;
    memcpy(&argument, at, divides ? sizeof argument : box_func_element_bytes(func));
  }
  return divides && box_library_version() < SIGN_SINCE ? argument << 1 : argument;
}
