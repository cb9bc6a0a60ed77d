/* Files of drivers that a forked child must not keep: a copy of a queue's or a port's socket, or of an XDP
 * program's link, holds that for as long as the child lives, though its parent has closed it or was killed.
 *
 * Drivers name them here; the engine's handler in forked children (engine/orphan.h) closes the copies. Any
 * thread. A file whose number is HARP_FILES_MAX or more is not looked after. */
#ifndef HARP_IO_FILES_H
#define HARP_IO_FILES_H

#include "base/base.h"

enum { HARP_FILES_MAX = 65536 };

/* Makes children forked from now on close their copies of a file. */
void harp_files_own(int fd);

/* Closes a file, whether it was named or not. */
void harp_files_close(int fd);

/* In a child: closes the copies, and forgets them. Takes no lock and calls nothing but close. */
void harp_files_close_copies(void);

#endif
