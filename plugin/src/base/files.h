/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets and files that a forked child closes, and whether this process is such a child.
 *
 * A child that never execs (a data loader's worker) holds copies of all files of its parent. When the parent
 * is killed, a copy of a control connection keeps it open, and the peer takes the ended process for a paused
 * one and waits; a copy of a listener lets peers connect to nobody; a copy of a driver's socket or of an XDP
 * program's link holds a port or a queue, also after its parent has closed it. So the child
 * closes its copies in a pthread_atfork handler. (exec closes them anyway: close-on-exec.)
 *
 * The caller that opens such a file passes it to harp_files_own at once. Any thread. A fork between the
 * system call and harp_files_own still copies it. Files numbered HARP_FILES_MAX or higher are not closed.
 *
 * A child inherits handles, too, and must use no socket, ring or frame: each call of the plugin asks whether
 * it runs in one. Where there is no memory for the handler we go on as if there were no children. */
#ifndef HARP_FILES_H
#define HARP_FILES_H

#include <errno.h>

#include "base/base.h"

enum { HARP_FILES_MAX = 65536 };

/* Has children that are forked from now on know that they are. Further calls, also in a child, do nothing. */
void harp_files_mark_children(void);

/* Returns whether this is a child forked since harp_files_mark_children, or harp_files_own, was called. */
bool harp_files_in_child(void);

/* Has children forked from now on close their copies of a file. Ignores -1. */
void harp_files_own(int fd);

/* The error of what does without a file so that others can have one. */
#define HARP_EFEWFILES ENODATA

/* Returns whether a file that was just opened leaves less than a quarter of what the process may have. The
 * kernel gives the lowest number that is free, so as many are open. */
bool harp_files_are_scarce(int fd);

/* Closes a file, whether harp_files_own was called for it or not. */
void harp_files_close(int fd);

#endif
