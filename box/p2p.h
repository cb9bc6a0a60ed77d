/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives of a thread block: each transfer is a fiber of its own, as it has warps of its own on a
 * GPU. */
#ifndef HARP_BOX_P2P_H
#define HARP_BOX_P2P_H

#include "kernel.h"

/* Runs the pieces of work of a batch (since 2.22). */
void box_p2p_run(struct box_channel *channel, const struct box_func *func);

/* Runs a piece of work up to 2.21: a list of pairs, the even ones receive, the odd ones send. */
void box_p2p_run_old(struct box_channel *channel, const struct box_func *func, const char *work);

#endif
