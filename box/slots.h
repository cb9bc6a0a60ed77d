/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a thread block with NCCL's proxy: rings of slots in memory that both see. A kernel fills
 * a slot and advances the tail, the proxy sends it and advances the head; the reverse for receiving.
 *
 * With Simple, sizes stand in a FIFO beside the slots, and counters say what is filled. With LL each 8 bytes
 * in a slot are 4 of data and 4 of flag, with LL128 each 128 bytes are 120 of data and 8 of flag, and the
 * receiver polls the flags. */
#ifndef HARP_BOX_SLOTS_H
#define HARP_BOX_SLOTS_H

#include "kernel.h"

enum { BOX_STEPS = 8, BOX_PEERS_MAX = 3 }; /* slots of a ring; a tree has three children at most */

/* One direction of a connection. */
struct box_pipe {
  char *conn, *buffer, *fifo;
  int *sizes, *offsets; /* the FIFO's form up to 2.19 */
  volatile uint64_t *head, *tail;
  uint64_t step;
  int64_t stride; /* bytes from slot to slot */
};

struct box_slots {
  struct box_channel *channel;
  const struct box_func *func;
  enum box_protocol protocol;
  int slices, steps_per_slice; /* the slices of a chunk, and the steps of a slice */
  int64_t step_elements;
  uint64_t argument;
  int in_count, out_count;
  struct box_pipe in[BOX_PEERS_MAX], out[BOX_PEERS_MAX];
};

/* Peers by rank; -1 ends a list. `connection` is 0 for collectives, 1 for point to point, which also gives
 * the bytes of a step. */
struct box_peers {
  const int *receive_from, *send_to;
  int receive_count, send_count;
  int connection;
  int64_t p2p_step_bytes;
};

void box_slots_open(struct box_slots *s, struct box_channel *channel, const struct box_func *func,
                    enum box_protocol protocol, const struct box_peers *peers, int steps_per_chunk,
                    uint64_t argument);

/* Leaves the step counters where the next kernel finds them. */
void box_slots_close(struct box_slots *s);

/* One step of a collective: takes from all that it receives from, and from `source` if there is one; reduces;
 * and gives the result to all that it sends to, and to `target` if there is one. */
struct box_step {
  bool receive, send;
  const char *source;
  char *target;
  bool is_input;  /* the source has not been reduced with others' yet */
  bool is_result; /* all ranks' are in it */
};
void box_slots_do(struct box_slots *s, struct box_step step, int64_t elements);

/* With NCCL's own protocols beyond Simple: in lines.c. */
void box_lines_do(struct box_slots *s, int in_count, int out_count, struct box_step step, int64_t elements);

/* Called by lines.c. */
void box_slots_set_size(struct box_pipe *pipe, int64_t bytes);
void box_slots_wait(struct box_slots *s, volatile uint64_t *counter, uint64_t value);
struct box_spans {
  const char *source[BOX_PEERS_MAX + 1];
  char *target[BOX_PEERS_MAX + 1];
  int source_count, target_count;
};
void box_slots_combine(struct box_slots *s, const struct box_spans *spans, struct box_step step,
                       int64_t elements);

#endif
