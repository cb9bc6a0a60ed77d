/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a block since NCCL 2.22: batches of pieces of one function, in the kernel's arguments or in a
 * FIFO. */
#ifndef HARP_BOX_WORK_H
#define HARP_BOX_WORK_H

#include "kernel.h"

void box_work_run(struct box_channel *channel);

#endif
