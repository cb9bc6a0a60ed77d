/* Connections in forked children.
 *
 * A forked child holds copies of all sockets. When its parent is killed, a copy would keep the control
 * connection alive, or its listener open, and the peer would take the dead process for a paused one and wait;
 * and it would keep the drivers' ports and queues (io/files.h). So a child closes them, in a handler of its
 * own side of fork: the one thing of ours that runs there. (What is executed loses them anyway:
 * close-on-exec.) */
#ifndef HARP_ORPHAN_H
#define HARP_ORPHAN_H

#include "engine/engine.h"

/* Makes children forked from now on close the engine's TCP sockets, or no longer. At most
 * HARP_ENGINES_MAX engines at once; more are not looked after. After the first call children close what the
 * drivers have named, too. */
void harp_orphan_watch(struct harp_engine *e);
void harp_orphan_forget(struct harp_engine *e);

#endif
