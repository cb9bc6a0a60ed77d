/* SPDX-License-Identifier: Apache-2.0 */
/* A pipe through which pages of memory go to a TCP socket: vmsplice puts references to the pages into it,
 * splice moves them to the socket, and the kernel sends from these pages. No byte is copied at the sender, on
 * virtual devices either.
 *
 * The kernel may read a page again until the other side's TCP has acknowledged its bytes, and where both ends
 * are on one host until the other side has read them. The caller keeps the memory unchanged until then, or
 * knows that nobody wants the bytes.
 *
 * One pipe serves many sockets in turn. What a socket did not take stays in the pipe while the same holder
 * comes again; it is dropped when another one comes. Owned by one engine, under its lock. */
#ifndef HARP_PAGE_PIPE_H
#define HARP_PAGE_PIPE_H

#include <sys/types.h>

#include "base/base.h"

/* The time between two looks whether the process ignores SIGPIPE, as Python's programs do. */
#define HARP_PAGE_PIPE_LOOK_NS HARP_MS(10)

struct harp_page_pipe {
  int in, out;        /* its ends: references are written to `in`; -1: not open */
  int null;           /* /dev/null, which takes what is dropped */
  bool masks_sigpipe; /* a SIGPIPE would not be ignored */
  harp_ns looked_ns;  /* the time when that was looked up; 0: never */
  uint32_t bytes;     /* the bytes that it holds */
  const void *holder; /* the file of these bytes; it means nothing while the pipe holds none */
};

/* Begins with a pipe that is not open. */
void harp_page_pipe_init(struct harp_page_pipe *p);

/* Opens it for as many bytes at once. Returns 0, or -errno: -EMFILE, -ENFILE without files, -EPERM where the
 * limits of pipes (/proc/sys/fs/pipe-max-size, pipe-user-pages-soft) are in the way. */
int harp_page_pipe_open(struct harp_page_pipe *p, uint32_t bytes) HARP_MUST_CHECK;

/* Closes it; what it holds is dropped. It may be closed already. */
void harp_page_pipe_close(struct harp_page_pipe *p);

static inline bool harp_page_pipe_is_open(const struct harp_page_pipe *p) {
  return p->in >= 0;
}

/* Puts references to data[0, bytes) into the pipe, as many as fit, unless it holds bytes of the holder: these
 * are the first of the data. Returns 0, or -errno: -EFAULT for memory that cannot be referenced, -ENOSYS or
 * -EPERM where vmsplice is denied. */
int harp_page_pipe_fill(struct harp_page_pipe *p, const void *holder, const void *data,
                        uint32_t bytes) HARP_MUST_CHECK;

/* Moves what the pipe holds to a non-blocking socket; `more`: the rest of a record follows. Returns how many
 * bytes the socket took, or -errno: -EAGAIN when it takes none now, -EINVAL, -ENOSYS or -EPERM where splice
 * is denied, else why the connection is of no use. Raises no SIGPIPE, but where the process has ceased to
 * ignore it within the last HARP_PAGE_PIPE_LOOK_NS. */
ssize_t harp_page_pipe_move(struct harp_page_pipe *p, int fd, bool more, harp_ns now) HARP_MUST_CHECK;

/* Drops what the pipe holds of a holder. */
void harp_page_pipe_drop(struct harp_page_pipe *p, const void *holder);

#endif
