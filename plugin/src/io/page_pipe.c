/* SPDX-License-Identifier: Apache-2.0 */
/* See page_pipe.h. */
#include "io/page_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/files.h"

void harp_page_pipe_init(struct harp_page_pipe *p) {
  *p = (struct harp_page_pipe){.in = -1, .out = -1, .null = -1};
}

/* Data that begins within a page takes one slot more. */
static int set_size(int fd, uint32_t bytes) {
  long wanted = (long)bytes + sysconf(_SC_PAGESIZE);
  return fcntl(fd, F_SETPIPE_SZ, (int)wanted) < 0 ? -errno : 0;
}

int harp_page_pipe_open(struct harp_page_pipe *p, uint32_t bytes) {
  int ends[2];
  HARP_ASSERT(!harp_page_pipe_is_open(p));
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC)) return -errno;
  harp_files_own(ends[0]);
  harp_files_own(ends[1]);
  *p =
      (struct harp_page_pipe){.in = ends[1], .out = ends[0], .null = open("/dev/null", O_WRONLY | O_CLOEXEC)};
  int err = p->null < 0 ? -errno : set_size(p->in, bytes);
  if (err) harp_page_pipe_close(p);
  return err;
}

void harp_page_pipe_close(struct harp_page_pipe *p) {
  if (p->in >= 0) harp_files_close(p->in);
  if (p->out >= 0) harp_files_close(p->out);
  if (p->null >= 0) close(p->null);
  harp_page_pipe_init(p);
}

/* Gives back the references: /dev/null takes all at once and copies nothing. Where it does not, the pipe is
 * closed, which gives them back as well. */
static void drop_all(struct harp_page_pipe *p) {
  while (p->bytes) {
    ssize_t n = splice(p->out, NULL, p->null, NULL, p->bytes, SPLICE_F_NONBLOCK);
    if (n < 0 && errno == EINTR) continue;
    HARP_ASSERT(n <= (ssize_t)p->bytes);
    if (n > 0)
      p->bytes -= (uint32_t)n;
    else
      harp_page_pipe_close(p);
  }
}

void harp_page_pipe_drop(struct harp_page_pipe *p, const void *holder) {
  if (p->holder == holder) drop_all(p);
}

int harp_page_pipe_fill(struct harp_page_pipe *p, const void *holder, const void *data, uint32_t bytes) {
  HARP_ASSERT(harp_page_pipe_is_open(p) && bytes);
  struct iovec iov = {(void *)(uintptr_t)data, bytes};
  if (p->bytes && p->holder == holder) return 0;
  drop_all(p);
  ssize_t n = vmsplice(p->in, &iov, 1, SPLICE_F_NONBLOCK);
  if (n < 0) return -errno;
  HARP_ASSERT(n && (size_t)n <= bytes);
  p->bytes = (uint32_t)n;
  p->holder = holder;
  return 0;
}

/* Takes a SIGPIPE that is pending for this thread, and blocked. */
static void take_sigpipe(const sigset_t *sigpipe) {
  const struct timespec at_once = {0};
  while (sigtimedwait(sigpipe, NULL, &at_once) < 0 && errno == EINTR) {
  }
}

/* Returns whether a SIGPIPE would reach the process. */
static bool heeds_sigpipe(struct harp_page_pipe *p, harp_ns now) {
  struct sigaction action;
  if (p->looked_ns && now - p->looked_ns < HARP_PAGE_PIPE_LOOK_NS) return p->masks_sigpipe;
  p->looked_ns = now;
  p->masks_sigpipe = sigaction(SIGPIPE, NULL, &action) || action.sa_handler != SIG_IGN;
  return p->masks_sigpipe;
}

static ssize_t splice_all(const struct harp_page_pipe *p, int fd, unsigned flags) {
  ssize_t n = splice(p->out, NULL, fd, NULL, p->bytes, flags);
  return n < 0 ? -errno : n;
}

/* splice has no MSG_NOSIGNAL, and SIGPIPE could end the process. So the signal is blocked during the call, in
 * this thread alone, to which the kernel sends it. Only a call that moved less than all bytes can have raised
 * it. A signal that was pending before stays pending. */
static ssize_t splice_masked(const struct harp_page_pipe *p, int fd, unsigned flags) {
  sigset_t sigpipe, old, pending;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &sigpipe, &old);
  bool was_blocked = sigismember(&old, SIGPIPE) == 1;
  bool was_pending = was_blocked && !sigpending(&pending) && sigismember(&pending, SIGPIPE) == 1;
  ssize_t n = splice_all(p, fd, flags);
  if (n != (ssize_t)p->bytes && !was_pending) take_sigpipe(&sigpipe);
  if (!was_blocked) pthread_sigmask(SIG_SETMASK, &old, NULL);
  return n;
}

ssize_t harp_page_pipe_move(struct harp_page_pipe *p, int fd, bool more, harp_ns now) {
  unsigned flags = SPLICE_F_NONBLOCK | (more ? SPLICE_F_MORE : 0);
  HARP_ASSERT(p->bytes);
  ssize_t n = heeds_sigpipe(p, now) ? splice_masked(p, fd, flags) : splice_all(p, fd, flags);
  if (n > 0) p->bytes -= (uint32_t)n;
  return n;
}
