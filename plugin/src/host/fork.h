/* SPDX-License-Identifier: Apache-2.0 */
/* Detects a forked child (a DataLoader worker) of the process that initialised the plugin. A child inherits
 * handles, and must use no socket, ring or frame.
 *
 * Owns one page that the kernel zeroes in every child (MADV_WIPEONFORK, Linux 4.14), so that a check is one
 * load. On an older kernel a check is getpid(). The page is never unmapped, because other threads may read it
 * at any time. Installs no atfork handler (base/files.h does). */
#ifndef HARP_HOST_FORK_H
#define HARP_HOST_FORK_H

#include "base/base.h"

/* Marks the calling process as the owner. Called at each init of the plugin, before it starts a thread;
 * further calls, also in a child, do nothing. Any thread. Cannot fail: without the page checks use
 * getpid(). */
void harp_fork_init(void);

/* Returns whether this is a child of the process that called harp_fork_init. False if it was never called.
 * Any thread. */
bool harp_fork_is_child(void);

#endif
