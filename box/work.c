/* SPDX-License-Identifier: Apache-2.0 */
#include "work.h"

#include "collective.h"
#include "layout.h"
#include "log.h"
#include "p2p.h"

#include <string.h>
#include <time.h>

enum { COPY_BYTES = 16, IN_ARGUMENTS = 0, PROFILER_SLOTS = 64 };

static size_t piece_bytes(uint64_t type) {
  static const enum box_struct by_type[] = {BOX_P2P, BOX_COLL, BOX_COLL_REG, BOX_BCAST};
  if (type >= HARP_ARRAY_COUNT(by_type))
    box_die("work of type %llu is not emulated", (unsigned long long)type);
  return box_struct_bytes(by_type[type]);
}

/* Adds the pieces that a batch names. The FIFO may wrap around inside one. */
static void add_pieces(struct box_channel *channel, const char *batch) {
  const char *arguments = channel->kernel->arguments;
  uint64_t base = box_get(batch, BOX_BATCH_BASE), mask = box_get(arguments, BOX_ARGS_WORK_MASK);
  const char *fifo = box_get_pointer(arguments, BOX_ARGS_WORK_BUF);
  bool in_arguments = box_get(arguments, BOX_ARGS_STORAGE) == IN_ARGUMENTS;
  for (uint64_t set = box_get(batch, BOX_BATCH_SET); set; set &= set - 1) {
    if (channel->work_count == channel->work_room) {
      channel->work_room += 64;
      channel->works = box_grow(channel->works, channel->work_room * channel->work_bytes);
    }
    uint64_t from = base + (uint64_t)__builtin_ctzll(set) * channel->work_bytes;
    char *to = channel->works + channel->work_count++ * channel->work_bytes;
    for (size_t i = 0; i < channel->work_bytes; i += COPY_BYTES) {
      const char *piece = in_arguments ? arguments + from + i : fifo + ((from + i) & mask);
      memcpy(to + i, piece, HARP_MIN(COPY_BYTES, channel->work_bytes - i));
    }
  }
}

/* Loads the batch `index` with those that extend it. Returns the index of the next, or -1. */
static int64_t load(struct box_channel *channel, int64_t index, uint64_t *func) {
  const char *batches = channel->kernel->arguments + box_struct_bytes(BOX_ARGS);
  channel->work_count = channel->work_room = 0;
  for (;;) {
    const char *batch = batches + (size_t)index * box_struct_bytes(BOX_BATCH);
    channel->work_bytes = piece_bytes(box_get(batch, BOX_BATCH_TYPE));
    add_pieces(channel, batch);
    int64_t jump = (int64_t)box_get(batch, BOX_BATCH_JUMP);
    if (!box_get(batch, BOX_BATCH_EXTENDS)) {
      *func = box_get(batch, BOX_BATCH_FUNC);
      return jump ? index + jump : -1;
    }
    index += jump;
  }
}

/* This channel's share: the first and the last of the channels differ from those between. */
static struct box_work share(const struct box_channel *channel, const struct box_func *func, const char *w) {
  enum { LL_GRAIN = 16, LL128_GRAIN = 1920, SIMPLE_GRAIN = 512 };
  static const int64_t grains[] = {LL_GRAIN, LL128_GRAIN, SIMPLE_GRAIN};
  int64_t grain = grains[func->protocol] / (int64_t)box_func_element_bytes(func);
  int64_t low = (int64_t)box_get(w, BOX_COLL_LOW), high = (int64_t)box_get(w, BOX_COLL_HIGH);
  int64_t at_low = box_get_signed(w, BOX_COLL_COUNT_LOW), at_high = box_get_signed(w, BOX_COLL_COUNT_HIGH);
  int64_t each = box_get_signed(w, BOX_COLL_COUNT_MID), between = HARP_MAX(high - low - 1, 0);
  uint64_t argument = box_get(w, BOX_COLL_ARG);
  struct box_work work = {
      .in = box_get_pointer(w, BOX_COLL_SEND),
      .out = box_get_pointer(w, BOX_COLL_RECV),
      .root = (int)box_get(w, BOX_COLL_ROOT),
      .argument = box_collective_argument(func, argument, box_get(w, BOX_COLL_ARG_IS_POINTER)),
      .total = at_low + each * between + at_high,
  };
  uint64_t chunk_grains;
  if (channel->number == low) {
    work.count = at_low;
    chunk_grains = box_get(w, BOX_COLL_GRAINS_LOW);
  } else if (channel->number == high) {
    work.offset = at_low + between * each;
    work.count = at_high;
    chunk_grains = box_get(w, BOX_COLL_GRAINS_HIGH);
  } else {
    work.offset = at_low + (channel->number - low - 1) * each;
    work.count = each;
    chunk_grains = box_get(w, BOX_COLL_GRAINS_MID);
  }
  work.chunk = (int64_t)chunk_grains * grain;
  return work;
}

/* Reports the start or end of a piece of work to NCCL's profiler, if it is enabled. */
static void stamp(struct box_channel *channel, const struct box_func *func, enum box_field table,
                  uint64_t first) {
  char *stamps = box_get_pointer(channel->kernel->comm, table);
  if (!stamps || !box_struct_bytes(BOX_PROFILER) || func->collective == BOX_ALL_GATHER_V) return;
  uint64_t *own = (uint64_t *)(void *)(stamps + (size_t)channel->number * box_struct_bytes(BOX_PROFILER));
  enum box_field profiled = func->collective == BOX_SEND_RECV ? BOX_P2P_PROFILED : BOX_COLL_PROFILED;
  for (size_t i = 0; i < channel->work_count; i++) {
    if (!box_get(channel->works + i * channel->work_bytes, profiled)) continue;
    uint64_t *entry = own + 2 * ((first + i) % PROFILER_SLOTS); /* the work's number, the time */
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    entry[1] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    __atomic_store_n(entry, first + i, __ATOMIC_RELEASE);
  }
}

static void run_collectives(struct box_channel *channel, const struct box_func *func) {
  for (size_t i = 0; i < channel->work_count; i++) {
    const char *w = channel->works + i * channel->work_bytes;
    if (box_get(w, BOX_COLL_REGISTERED) || box_get(w, BOX_COLL_NET_REGISTERED))
      box_die("registered buffers are not emulated: NCCL_LOCAL_REGISTER=0 NCCL_GRAPH_REGISTER=0");
    struct box_work work = share(channel, func, w);
    box_collective_run(channel, func, &work);
  }
}

void box_work_run(struct box_channel *channel) {
  for (int64_t next = channel->block; next >= 0;) {
    uint64_t number;
    next = load(channel, next, &number);
    const struct box_func *func = box_func_at(number);
    uint64_t unused = 0, *counter = &unused;
    if (box_has(BOX_CHANNEL_WORK_COUNTER))
      counter = (uint64_t *)(void *)box_at(channel->channel, BOX_CHANNEL_WORK_COUNTER);
    stamp(channel, func, BOX_COMM_WORK_STARTED, *counter + 1);
    if (func->collective == BOX_SEND_RECV)
      box_p2p_run(channel, func);
    else if (func->collective == BOX_ALL_GATHER_V)
      box_collective_broadcasts(channel, func);
    else if (func->collective != BOX_NOP)
      run_collectives(channel, func);
    stamp(channel, func, BOX_COMM_WORK_COMPLETED, *counter + 1);
    *counter += channel->work_count;
  }
}
