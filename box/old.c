/* SPDX-License-Identifier: Apache-2.0 */
#include "old.h"

#include "collective.h"
#include "layout.h"
#include "log.h"
#include "p2p.h"
#include "slots.h"

#include <string.h>

enum { WORK_BYTES_MAX = 1024, TYPE_COLLECTIVE = 1, TYPE_P2P = 2 };

/* The device code of these releases computes the chunk from the size of a slot. How the last round is divided
 * does not matter, if the number of rounds is what the proxy expects. */
static int64_t chunk_of(const struct box_channel *channel, const struct box_func *func) {
  const int *buffers = (const int *)(const void *)box_at(channel->kernel->comm, BOX_COMM_BUFFER_BYTES);
  int64_t step = buffers[func->protocol] / BOX_STEPS;
  if (func->protocol == BOX_LL) step /= 2;
  if (func->protocol == BOX_LL128) step = step / 16 * 15;
  bool rooted = func->collective == BOX_BROADCAST || func->collective == BOX_REDUCE;
  if (func->protocol == BOX_SIMPLE && func->algorithm == BOX_RING && !rooted) step *= 4;
  return step / (int64_t)box_func_element_bytes(func);
}

static struct box_work share(const struct box_channel *channel, const struct box_func *func,
                             const char *element) {
  struct box_work work = {
      .in = box_get_pointer(element, BOX_ELEM_SEND),
      .out = box_get_pointer(element, BOX_ELEM_RECV),
      .root = (int)box_get(element, BOX_ELEM_ROOT),
      .argument = box_collective_argument(func, box_get(element, BOX_ELEM_ARG),
                                          box_get(element, BOX_ELEM_ARG_IS_POINTER)),
      .total = box_get_signed(element, BOX_ELEM_COUNT),
  };
  if (box_has(BOX_ELEM_WORK_COUNT)) { /* 2.20 and 2.21 */
    work.offset = (int64_t)box_get(element, BOX_ELEM_WORK_OFFSET);
    work.count = (int64_t)box_get(element, BOX_ELEM_WORK_COUNT);
    work.chunk = (int64_t)box_get(element, BOX_ELEM_CHUNK);
    work.last_chunk = (int64_t)box_get(element, BOX_ELEM_LAST_CHUNK);
    return work;
  }
  bool by_element = func->algorithm == BOX_TREE && func->protocol != BOX_LL;
  work.turn = (int)box_get(element, BOX_ELEM_BLOCK);
  work.turns = (int)box_get(element, BOX_ELEM_CHANNELS);
  work.chunk = by_element ? box_get_signed(element, BOX_ELEM_LAST_CHUNK_SIZE) : chunk_of(channel, func);
  return work;
}

static void run_elements(struct box_channel *channel, const struct box_func *func, const char *work) {
  const char *end = work + box_struct_bytes(BOX_WORK), *element = box_at(work, BOX_WORK_ELEMS);
  size_t bytes = box_struct_bytes(BOX_ELEM);
  for (; element + bytes <= end && box_get(element, BOX_ELEM_USED); element += bytes) {
    if (box_get(element, BOX_ELEM_REGISTERED))
      box_die("registered buffers are not emulated: NCCL_GRAPH_REGISTER=0");
    struct box_work one = share(channel, func, element);
    box_collective_run(channel, func, &one);
  }
}

/* The last piece is read: the host may reuse the FIFO. */
static void release(struct box_channel *channel, const char *work) {
  uint32_t *done = box_get_pointer(channel->channel, BOX_CHANNEL_WORK_DONE);
  __atomic_store_n(done, (uint32_t)box_get(work, BOX_WORK_NEXT), __ATOMIC_RELEASE);
}

void box_old_run(struct box_channel *channel) {
  const char *head = channel->kernel->work_head;
  const size_t bytes = box_struct_bytes(BOX_WORK);
  if (bytes > WORK_BYTES_MAX) box_die("pieces of work of %zu bytes are not emulated", bytes);
  int64_t next = channel->block;
  for (bool is_last = false; !is_last;) {
    char work[WORK_BYTES_MAX] __attribute__((aligned(16)));
    memcpy(work, head + next * (int64_t)bytes, bytes);
    is_last = box_get(work, BOX_WORK_LAST);
    if (is_last && box_get(work, BOX_WORK_IN_FIFO)) release(channel, work);
    next = box_get_signed(work, BOX_WORK_NEXT);
    const struct box_func *func = box_func_at(box_get(work, BOX_WORK_FUNC));
    uint64_t type = box_get(work, BOX_WORK_TYPE);
    if (type == TYPE_P2P)
      box_p2p_run_old(channel, func, work);
    else if (type == TYPE_COLLECTIVE)
      run_elements(channel, func, work);
    else if (func->collective != BOX_NOP)
      box_die("work of type %d is not emulated", (int)type);
  }
}
