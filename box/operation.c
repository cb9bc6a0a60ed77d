/* SPDX-License-Identifier: Apache-2.0 */
#include "operation.h"

#include "layout.h"
#include "library.h"
#include "log.h"
#include "memory.h"
#include "stream.h"

enum { MARGIN_BYTES = 4096 };

struct box_operation box_operation_of(const struct box_options *o, enum box_op kind, int rank, int ranks,
                                      size_t bytes) {
  struct box_operation op = {.options = o,
                             .op = kind,
                             .rank = rank,
                             .ranks = ranks,
                             .root = HARP_MIN(o->root, ranks - 1),
                             .bytes = bytes,
                             .count = box_op_count(o, kind, ranks, bytes)};
  size_t all = op.count * (size_t)ranks;
  op.send_elements = op.op == BOX_OP_REDUCESCATTER || op.op == BOX_OP_ALLTOALL ? all : op.count;
  op.receive_elements = op.op == BOX_OP_ALLGATHER || op.op == BOX_OP_ALLTOALL ? all : op.count;
  return op;
}

void box_buffers_take(struct box_buffers *buffers, size_t bytes) {
  buffers->send = box_memory_take(bytes + MARGIN_BYTES, false, 0);
  buffers->receive = box_memory_take(bytes + MARGIN_BYTES, false, 0);
  buffers->stream = box_stream_create(0);
  if (!buffers->send || !buffers->receive) box_die("no memory for buffers of %zu bytes", bytes);
}

void box_buffers_give(struct box_buffers *buffers) {
  box_stream_destroy(buffers->stream);
  box_memory_give(buffers->send);
  box_memory_give(buffers->receive);
  *buffers = (struct box_buffers){0};
}

static int exchange(const struct box_operation *op, box_comm comm, const struct box_buffers *b) {
  const struct box_options *o = op->options;
  int type = (int)o->type, next = (op->rank + 1) % op->ranks,
      previous = (op->rank + op->ranks - 1) % op->ranks;
  size_t part = op->count * box_types[o->type].bytes;
  int error = box_nccl()->GroupStart();
  if (op->op == BOX_OP_SENDRECV) {
    if (!error) error = box_nccl()->Send(b->send, op->count, type, next, comm, b->stream);
    if (!error) error = box_nccl()->Recv(b->receive, op->count, type, previous, comm, b->stream);
  } else {
    for (int peer = 0; peer < op->ranks && !error; peer++) {
      error = box_nccl()->Send(b->send + (size_t)peer * part, op->count, type, peer, comm, b->stream);
      if (!error)
        error = box_nccl()->Recv(b->receive + (size_t)peer * part, op->count, type, peer, comm, b->stream);
    }
  }
  int end = box_nccl()->GroupEnd();
  return error ? error : end;
}

int box_operation_start(const struct box_operation *op, box_comm comm, const struct box_buffers *b) {
  const struct box_options *o = op->options;
  const int type = (int)o->type, redop = (int)o->redop;
  if (!box_layout_is_known())
    box_die("the debug information of NCCL %d does not describe its device structures: only communicators "
            "can be made, with --iters 0",
            box_library_version());
  switch (op->op) {
  case BOX_OP_ALLREDUCE:
    return box_nccl()->AllReduce(b->send, b->receive, op->count, type, redop, comm, b->stream);
  case BOX_OP_ALLGATHER:
    return box_nccl()->AllGather(b->send, b->receive, op->count, type, comm, b->stream);
  case BOX_OP_REDUCESCATTER:
    return box_nccl()->ReduceScatter(b->send, b->receive, op->count, type, redop, comm, b->stream);
  case BOX_OP_BROADCAST:
    return box_nccl()->Broadcast(b->send, b->receive, op->count, type, op->root, comm, b->stream);
  case BOX_OP_REDUCE:
    return box_nccl()->Reduce(b->send, b->receive, op->count, type, redop, op->root, comm, b->stream);
  default:
    return exchange(op, comm, b);
  }
}

double box_operation_bus_factor(const struct box_options *o) {
  double others = (double)(o->ranks - 1) / o->ranks;
  if (o->op == BOX_OP_ALLREDUCE) return 2 * others;
  return box_op_is_divided(o->op) ? others : 1;
}
