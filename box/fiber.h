/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: the thread blocks of a kernel and their groups of warps, which a GPU runs side by side and wait for
 * one another and for NCCL's proxy, share the one thread that runs the kernel. A set belongs to that
 * thread. */
#ifndef HARP_BOX_FIBER_H
#define HARP_BOX_FIBER_H

#include "base/base.h"

struct box_fiber;
struct box_fibers {
  struct box_fiber *first, *last, *current;
  size_t alive;
  void *scheduler_stack;
  const uint32_t *abort_flag;
};

/* What a fiber waits for: tested between the others' turns, so that it is resumed only when it can
 * continue. */
struct box_wait {
  bool (*is_over)(const struct box_wait *wait);
  const void *at;
  uint64_t value;
};

/* `abort_flag` ends box_fibers_run when it is set. */
void box_fibers_init(struct box_fibers *fibers, const uint32_t *abort_flag);

/* Adds a fiber, also from inside one. */
void box_fibers_add(struct box_fibers *fibers, void (*run)(void *word), void *word);

/* Runs all fibers to their end; false if the abort flag ended it. Then the set is empty again. */
bool box_fibers_run(struct box_fibers *fibers);

/* Inside a fiber: lets the others run until the wait is over. */
void box_fibers_wait(struct box_fibers *fibers, const struct box_wait *wait);

/* Inside a fiber: waits until the counter at `at` has reached `value`, or the int at `at` is 0. */
void box_fibers_wait_at_least(struct box_fibers *fibers, const volatile uint64_t *at, uint64_t value);
void box_fibers_wait_zero(struct box_fibers *fibers, const int *at);

#endif
