/* SPDX-License-Identifier: Apache-2.0 */
/* Looks whether interfaces that had no address when the engine opened have one at last, and has them join its
 * connections.
 *
 * Called by the engine's own thread without the lock: the kernel lists the interfaces under a lock of its
 * own, which may take long. */
#ifndef HARP_NUMBERING_H
#define HARP_NUMBERING_H

#include "base/base.h"

struct harp_engine;

/* The time between two looks. */
#define HARP_NUMBERING_NS HARP_SEC(1)

void harp_numbering_on_time(struct harp_engine *e, harp_ns now);

#endif
