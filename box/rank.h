/* SPDX-License-Identifier: Apache-2.0 */
/* One rank: a process with a GPU, its communicators, and the loop over the sizes. */
#ifndef HARP_BOX_RANK_H
#define HARP_BOX_RANK_H

#include "elf.h"
#include "operation.h"
#include "plan.h"
#include "shared.h"

/* Runs a rank to its end, with the options' libraries. Returns the exit code of its process. */
int box_rank_run(const struct box_options *options, const struct box_plan *plan, const struct box_elf *elfs,
                 struct box_shared *shared, int rank);

/* Repeats the operation until another rank has been killed and NCCL reports an error, then aborts, and prints
 * both. */
int box_survive(const struct box_operation *op, struct box_shared *shared, box_comm comm,
                const struct box_buffers *buffers);

#endif
