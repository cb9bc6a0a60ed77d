/* SPDX-License-Identifier: Apache-2.0 */
#include "slots.h"

#include "layout.h"
#include "log.h"

#include <string.h>

enum { TILE_BYTES = 32 << 10, SHARED_BUFFER = 1 };

static void publish(volatile uint64_t *counter, uint64_t value) {
  __atomic_store_n(counter, value, __ATOMIC_RELEASE);
}

void box_slots_wait(struct box_slots *s, volatile uint64_t *counter, uint64_t value) {
  box_fibers_wait_at_least(&s->channel->kernel->fibers, counter, value);
}

static int buffer_bytes(const struct box_kernel *kernel, enum box_protocol protocol) {
  return ((const int *)(const void *)box_at(kernel->comm, BOX_COMM_BUFFER_BYTES))[protocol];
}

/* The peers of a channel are an array, or an array of pointers. */
static char *peer_at(const struct box_channel *channel, int rank) {
  char *peers = box_get_pointer(channel->channel, BOX_CHANNEL_PEERS);
  if (box_place(BOX_CHANNEL_PEERS)->stars == 1) return peers + (size_t)rank * box_struct_bytes(BOX_PEER);
  return ((char **)(void *)peers)[rank];
}

static void open_pipe(struct box_slots *s, struct box_pipe *p, char *conn, bool receives) {
  *p = (struct box_pipe){
      .conn = conn,
      .buffer = ((char **)(void *)box_at(conn, BOX_CONN_BUFFERS))[s->protocol],
      .fifo = box_get_pointer(conn, BOX_CONN_FIFO),
      .sizes = box_get_pointer(conn, BOX_CONN_SIZES),
      .offsets = box_get_pointer(conn, BOX_CONN_OFFSETS),
      .head = box_get_pointer(conn, BOX_CONN_HEAD),
      .tail = box_get_pointer(conn, BOX_CONN_TAIL),
      .step = box_get(conn, BOX_CONN_STEP),
  };
  if (s->protocol != BOX_SIMPLE) {
    p->stride = buffer_bytes(s->channel->kernel, s->protocol) / BOX_STEPS;
    return;
  }
  int64_t step_bytes = s->step_elements * (int64_t)box_func_element_bytes(s->func);
  p->stride = box_has(BOX_CONN_STEP_SIZE) ? box_get_signed(conn, BOX_CONN_STEP_SIZE) : step_bytes;
  /* A chunk begins at a whole number of its steps; the slots in between are returned unused. */
  uint64_t chunk = (uint64_t)(s->slices * s->steps_per_slice);
  uint64_t rounded = (p->step + chunk - 1) / chunk * chunk;
  if (receives && rounded != p->step) publish(p->head, rounded);
  p->step = rounded;
}

void box_slots_open(struct box_slots *s, struct box_channel *channel, const struct box_func *func,
                    enum box_protocol protocol, const struct box_peers *peers, int steps_per_chunk,
                    uint64_t argument) {
  /* A chunk of four steps is two slices of two. */
  int half = steps_per_chunk == 4 ? 2 : 1;
  *s = (struct box_slots){.channel = channel,
                          .func = func,
                          .protocol = protocol,
                          .slices = half,
                          .steps_per_slice = half,
                          .argument = argument};
  int64_t step_bytes = buffer_bytes(channel->kernel, protocol) / BOX_STEPS;
  s->step_elements =
      (peers->p2p_step_bytes ? peers->p2p_step_bytes : step_bytes) / (int64_t)box_func_element_bytes(func);
  size_t offset = (size_t)peers->connection * box_struct_bytes(BOX_CONN);
  for (; s->in_count < peers->receive_count; s->in_count++) {
    char *peer = peer_at(channel, peers->receive_from[s->in_count]);
    open_pipe(s, &s->in[s->in_count], box_at(peer, BOX_PEER_RECV) + offset, true);
  }
  for (; s->out_count < peers->send_count; s->out_count++) {
    char *peer = peer_at(channel, peers->send_to[s->out_count]);
    open_pipe(s, &s->out[s->out_count], box_at(peer, BOX_PEER_SEND) + offset, false);
  }
}

void box_slots_close(struct box_slots *s) {
  for (int i = 0; i < s->in_count; i++) memcpy(box_at(s->in[i].conn, BOX_CONN_STEP), &s->in[i].step, 8);
  for (int i = 0; i < s->out_count; i++) memcpy(box_at(s->out[i].conn, BOX_CONN_STEP), &s->out[i].step, 8);
}

/* ---- data ---- */

void box_slots_combine(struct box_slots *s, const struct box_spans *spans, struct box_step step,
                       int64_t elements) {
  if (elements <= 0 || !spans->source_count || !spans->target_count) return;
  const struct box_func *func = s->func;
  const struct box_reducer *reducer = func->type < BOX_TYPE_COUNT ? box_reducer_of(func->type) : NULL;
  bool before = reducer && step.source && step.is_input && func->reduction == BOX_PRE_MUL_SUM;
  bool after = reducer && step.is_result && func->reduction == BOX_SUM_POST_DIV;
  size_t element = box_func_element_bytes(func), tile = TILE_BYTES / element;
  for (size_t done = 0; done < (size_t)elements; done += tile) {
    size_t count = HARP_MIN(tile, (size_t)elements - done), offset = done * element, bytes = count * element;
    char *out = spans->target[0] + offset;
    const char *from = spans->source[0] + offset;
    if (before) {
      reducer->before(out, from, count, s->argument);
      from = out;
    }
    for (int i = 1; i < spans->source_count; i++) {
      reducer->combine[func->reduction](out, from, spans->source[i] + offset, count, s->argument);
      from = out;
    }
    if (after) {
      reducer->after(out, from, count, s->argument);
      from = out;
    }
    if (from != out) memmove(out, from, bytes);
    for (int i = 1; i < spans->target_count; i++)
      if (spans->target[i] + offset != out) memcpy(spans->target[i] + offset, out, bytes);
  }
}

/* ---- Simple ---- */

static char *fifo_slot(const struct box_pipe *p) {
  return p->fifo + (p->step % BOX_STEPS) * box_struct_bytes(BOX_FIFO);
}

/* Connections may share a buffer; the proxy then sets where in it a slot is. */
static char *slot(const struct box_pipe *p) {
  if (p->fifo && box_get(fifo_slot(p), BOX_FIFO_MODE) == SHARED_BUFFER)
    return p->buffer + box_get_signed(fifo_slot(p), BOX_FIFO_OFFSET);
  if (p->offsets) return p->buffer + __atomic_load_n(&p->offsets[p->step % BOX_STEPS], __ATOMIC_RELAXED);
  return p->buffer + (int64_t)(p->step % BOX_STEPS) * p->stride;
}

void box_slots_set_size(struct box_pipe *p, int64_t bytes) {
  if (p->fifo) {
    void *size = box_at(fifo_slot(p), BOX_FIFO_SIZE);
    if (box_place(BOX_FIFO_SIZE)->bytes == 8)
      __atomic_store_n((int64_t *)size, bytes, __ATOMIC_RELAXED);
    else
      __atomic_store_n((int *)size, (int)bytes, __ATOMIC_RELAXED);
  }
  if (p->sizes) __atomic_store_n(&p->sizes[p->step % BOX_STEPS], (int)bytes, __ATOMIC_RELAXED);
}

static int64_t slice_elements(const struct box_slots *s, int64_t elements) {
  const int64_t unit = 16;
  int64_t most = s->step_elements * s->steps_per_slice;
  int64_t even = (elements + unit * s->slices - 1) / (unit * s->slices) * unit;
  return HARP_MAX(even, most / 32);
}

static void do_slice(struct box_slots *s, int in_count, int out_count, struct box_step step, int64_t done,
                     int64_t elements) {
  const uint64_t steps = (uint64_t)s->steps_per_slice;
  const int64_t element = (int64_t)box_func_element_bytes(s->func);
  struct box_spans spans = {.source_count = 0};
  for (int i = 0; i < in_count; i++) box_slots_wait(s, s->in[i].tail, s->in[i].step + steps);
  for (int i = 0; i < out_count; i++) {
    box_slots_wait(s, s->out[i].head, s->out[i].step + steps - BOX_STEPS);
    box_slots_set_size(&s->out[i], elements * element);
  }
  if (step.source) spans.source[spans.source_count++] = step.source + done * element;
  for (int i = 0; i < in_count; i++) spans.source[spans.source_count++] = slot(&s->in[i]);
  if (step.target) spans.target[spans.target_count++] = step.target + done * element;
  for (int i = 0; i < out_count; i++) spans.target[spans.target_count++] = slot(&s->out[i]);
  box_slots_combine(s, &spans, step, elements);
  for (int i = 0; i < in_count; i++) publish(s->in[i].head, s->in[i].step += steps);
  for (int i = 0; i < out_count; i++) publish(s->out[i].tail, s->out[i].step += steps);
}

void box_slots_do(struct box_slots *s, struct box_step step, int64_t elements) {
  int in_count = step.receive ? s->in_count : 0, out_count = step.send ? s->out_count : 0;
  elements = HARP_MAX(elements, 0);
  if (s->protocol != BOX_SIMPLE) {
    box_lines_do(s, in_count, out_count, step, elements);
    return;
  }
  int64_t slice = slice_elements(s, elements), done = 0;
  for (int i = 0; i < s->slices; i++) { /* also empty ones: the proxy counts them */
    int64_t count = HARP_MAX(HARP_MIN(slice, elements - done), 0);
    do_slice(s, in_count, out_count, step, done, count);
    done += count;
  }
}
