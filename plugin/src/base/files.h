/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and files that a forked child must not keep.
 *
 * A child that never execs (a data loader's worker) holds copies of all files of its parent. When the parent
 * is killed, a copy of a control connection keeps it open, and the peer takes the ended process for a paused
 * one and waits; a copy of a listener lets peers connect to nobody; a copy of a driver's socket or of an XDP
 * program's link holds a port or a queue, also after its parent has closed it. So a child closes these
 * copies, in a handler of its own side of fork: the one thing of ours that runs there. (What is executed
 * loses them anyway: close-on-exec.)
 *
 * Whoever opens such a file names it at once. Any thread. A fork in between, within the few instructions from
 * the system call to harp_files_own, still copies it. A file whose number is HARP_FILES_MAX or more is not
 * looked after. */
#ifndef HARP_FILES_H
#define HARP_FILES_H

#include "base/base.h"

enum { HARP_FILES_MAX = 65536 };

/* Makes children forked from now on close their copies of a file. Does nothing to -1. */
void harp_files_own(int fd);

/* Closes a file, whether it was named or not. */
void harp_files_close(int fd);

#endif
