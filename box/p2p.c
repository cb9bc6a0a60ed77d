/* SPDX-License-Identifier: Apache-2.0 */
#include "p2p.h"

#include "layout.h"
#include "log.h"
#include "slots.h"

#include <stdlib.h>
#include <string.h>

enum { PART_UNIT_BYTES = 4096, LL_SHARE = 2 };

/* The transfers of a block: it is done when none is pending. */
struct transfers {
  struct box_channel *channel;
  const struct box_func *func;
  int pending;
};

struct transfer {
  struct transfers *all;
  bool is_send;
  int peer;
  enum box_protocol protocol;
  char *buffer;
  int64_t bytes, chunk;
};

static void run_transfer(void *word) {
  struct transfer t = *(struct transfer *)word;
  free(word);
  struct box_channel *channel = t.all->channel;
  struct box_peers peers = {.receive_from = &t.peer,
                            .receive_count = !t.is_send,
                            .send_to = &t.peer,
                            .send_count = t.is_send,
                            .connection = 1};
  if (t.protocol == BOX_SIMPLE)
    peers.p2p_step_bytes = box_get_signed(channel->kernel->comm, BOX_COMM_P2P_CHUNK);
  struct box_slots slots;
  box_slots_open(&slots, channel, t.all->func, t.protocol, &peers, 1, 0);
  int64_t done = 0;
  do { /* nothing takes a step too */
    int64_t count = HARP_MIN(t.chunk, t.bytes - done);
    struct box_step step = {.receive = !t.is_send, .send = t.is_send};
    if (t.is_send)
      step.source = t.buffer + done;
    else
      step.target = t.buffer + done;
    box_slots_do(&slots, step, count);
    done += count;
  } while (done < t.bytes);
  box_slots_close(&slots);
  t.all->pending--;
}

static void start(struct transfers *all, struct transfer transfer) {
  struct transfer *kept = box_new(sizeof *kept);
  *kept = transfer;
  kept->all = all;
  all->pending++;
  box_fibers_add(&all->channel->kernel->fibers, run_transfer, kept);
}

static void require_unregistered(uint64_t registered) {
  if (registered) box_die("registered buffers are not emulated: NCCL_LOCAL_REGISTER=0 NCCL_GRAPH_REGISTER=0");
}

/* An 8-bit float: 3 bits of mantissa. */
static int64_t widen_chunk(uint64_t bits) {
  uint64_t exponent = bits >> 3, mantissa = bits & 7;
  return (int64_t)(exponent ? (mantissa | 8) << (exponent - 1) : mantissa);
}

/* A transfer is divided among channels; this block has the part of its channel. */
struct part {
  int64_t begin, bytes;
};
static bool part_of(const struct box_channel *channel, const char *work, int64_t bytes, int64_t parts,
                    struct part *part) {
  int64_t mask = box_get_signed(work, BOX_P2P_CHANNELS) - 1;
  int64_t index = (channel->number - (int64_t)box_get(work, BOX_P2P_CHANNEL_BASE)) & mask;
  if (index >= parts) return false;
  int64_t each = (int64_t)harp_align_up((uint64_t)((bytes + parts - 1) / parts), PART_UNIT_BYTES);
  part->begin = HARP_MIN(index * each, bytes);
  part->bytes = HARP_MIN((index + 1) * each, bytes) - part->begin;
  return true;
}

static void start_send(struct transfers *all, const char *work) {
  struct part part;
  int64_t bytes = box_get_signed(work, BOX_P2P_SEND_BYTES);
  if (!part_of(all->channel, work, bytes, (int64_t)box_get(work, BOX_P2P_SEND_CHANNELS), &part)) return;
  char *from = (char *)box_get_pointer(work, BOX_P2P_SEND) + part.begin;
  int peer = (int)box_get_signed(work, BOX_P2P_SEND_RANK);
  if (peer == all->channel->kernel->rank) {
    memmove((char *)box_get_pointer(work, BOX_P2P_RECV) + part.begin, from, (size_t)part.bytes);
    return;
  }
  start(all, (struct transfer){.is_send = true,
                               .peer = peer,
                               .protocol = box_get(work, BOX_P2P_SEND_LL) ? BOX_LL : BOX_SIMPLE,
                               .buffer = from,
                               .bytes = part.bytes,
                               .chunk = widen_chunk(box_get(work, BOX_P2P_SEND_CHUNK))});
}

static void start_receive(struct transfers *all, const char *work) {
  struct part part;
  int64_t bytes = box_get_signed(work, BOX_P2P_RECV_BYTES);
  int peer = (int)box_get_signed(work, BOX_P2P_RECV_RANK);
  if (!part_of(all->channel, work, bytes, (int64_t)box_get(work, BOX_P2P_RECV_CHANNELS), &part)) return;
  if (peer == all->channel->kernel->rank) return; /* its send has copied it */
  start(all, (struct transfer){.peer = peer,
                               .protocol = box_get(work, BOX_P2P_RECV_LL) ? BOX_LL : BOX_SIMPLE,
                               .buffer = (char *)box_get_pointer(work, BOX_P2P_RECV) + part.begin,
                               .bytes = part.bytes,
                               .chunk = widen_chunk(box_get(work, BOX_P2P_RECV_CHUNK))});
}

void box_p2p_run(struct box_channel *channel, const struct box_func *func) {
  struct transfers all = {channel, func, 0};
  for (size_t i = 0; i < channel->work_count; i++) {
    const char *work = channel->works + i * channel->work_bytes;
    require_unregistered(box_get(work, BOX_P2P_SEND_NET_REG) | box_get(work, BOX_P2P_RECV_NET_REG) |
                         box_get(work, BOX_P2P_SEND_IPC_REG) | box_get(work, BOX_P2P_RECV_IPC_REG));
    start_send(&all, work);
    start_receive(&all, work);
  }
  box_fibers_wait_zero(&channel->kernel->fibers, &all.pending);
}

/* ---- up to 2.21 ---- */

static char *old_buffer(const char *element) {
  uint64_t high = box_get(element, BOX_ELEM_P2P_BUFFER_HIGH), low = box_get(element, BOX_ELEM_P2P_BUFFER_LOW);
  return (char *)(uintptr_t)(high << 32 | low);
}

void box_p2p_run_old(struct box_channel *channel, const struct box_func *func, const char *work) {
  struct transfers all = {channel, func, 0};
  const char *elements = box_at(work, BOX_WORK_P2P_ELEMS);
  uint64_t count = box_get(elements, BOX_ELEM_P2P_GROUPS);
  for (uint64_t i = 0; i < count; i++) {
    const char *element = elements + i * box_struct_bytes(BOX_ELEM_P2P);
    int peer = (int)box_get_signed(element, BOX_ELEM_P2P_PEER);
    if (!box_get(element, BOX_ELEM_P2P_TYPE) || peer < 0) continue;
    require_unregistered(box_get(element, BOX_ELEM_P2P_REGISTERED));
    struct transfer t = {.is_send = i % 2, .peer = peer, .buffer = old_buffer(element)};
    uint64_t high = box_get(element, BOX_ELEM_P2P_COUNT_HIGH), low = box_get(element, BOX_ELEM_P2P_COUNT_LOW);
    t.bytes = (int64_t)(high << 32 | low);
    bool has_protocol = box_has(BOX_ELEM_P2P_PROTO);
    t.protocol = has_protocol ? (enum box_protocol)box_get(element, BOX_ELEM_P2P_PROTO) : BOX_SIMPLE;
    t.chunk = box_get_signed(element, BOX_ELEM_P2P_CHUNK) / (t.protocol == BOX_LL ? LL_SHARE : 1);
    if (peer != channel->kernel->rank)
      start(&all, t);
    else if (t.is_send)
      memmove(old_buffer(element - box_struct_bytes(BOX_ELEM_P2P)), t.buffer, (size_t)t.bytes);
  }
  box_fibers_wait_zero(&channel->kernel->fibers, &all.pending);
}
