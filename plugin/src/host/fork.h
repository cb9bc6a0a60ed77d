/* SPDX-License-Identifier: Apache-2.0 */
/* Tells a forked child (a DataLoader worker) from the process that initialised the plugin, so that a child
 * which inherits our handles touches nothing: no socket, no ring, no frame.
 *
 * Owns one page that the kernel zeroes in every child (MADV_WIPEONFORK, Linux 4.14), so that a check is one
 * load. On an older kernel a check is getpid(). The page stays for the life of the process: another thread
 * may be looking at it whenever one finalizes. Installs no handler of its own (base/files.h has the one there
 * is). */
#ifndef HARP_HOST_FORK_H
#define HARP_HOST_FORK_H

#include "base/base.h"

/* Marks the calling process as the owner. Called at each init of the plugin, before any thread is started; a
 * second call in the same process does nothing, a call in a child does not make it an owner. Any thread.
 * Cannot fail: without the page it falls back to getpid(). */
void harp_fork_init(void);

/* Returns true in a child of the process that called harp_fork_init, false in that process itself and where
 * harp_fork_init was never called. Any thread, from any entry point. */
bool harp_fork_is_child(void);

#endif
