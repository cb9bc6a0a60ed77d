/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a block up to NCCL 2.21: a list of pieces, each of several elements. */
#ifndef HARP_BOX_OLD_H
#define HARP_BOX_OLD_H

#include "kernel.h"

void box_old_run(struct box_channel *channel);

#endif
