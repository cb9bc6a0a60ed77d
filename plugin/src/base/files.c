/* SPDX-License-Identifier: Apache-2.0 */
/* See files.h. Owns one bit for each file, and whether a fork made this process.
 *
 * The handler runs in the child, whose only thread is the one that forked; others may have been in the middle
 * of anything. It takes no lock, and of libc it calls close alone. */
#include "base/files.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"

static _Atomic uint64_t owned[HARP_FILES_MAX / 64];
static bool is_child; /* written by the only thread of a child */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Closed files are forgotten: their numbers are other files' by the time the child forks. */
static void in_child(void) {
  harp_log_in_child();
  is_child = true;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(owned); i++)
    for (uint64_t bits = atomic_exchange(&owned[i], 0); bits; bits &= bits - 1)
      close((int)(i * 64) + __builtin_ctzll(bits));
}

static void install_tables(void) {
  (void)!pthread_atfork(NULL, NULL, in_child);
}

void harp_files_mark_children(void) {
  pthread_once(&once, install_tables);
}

bool harp_files_in_child(void) {
  return is_child;
}

void harp_files_own(int fd) {
  if (fd < 0 || fd >= HARP_FILES_MAX) return;
  harp_files_mark_children();
  atomic_fetch_or(&owned[fd / 64], 1ull << (fd % 64));
}

bool harp_files_are_scarce(int fd) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return false;
  return (rlim_t)fd >= limit.rlim_cur - limit.rlim_cur / 4;
}

void harp_files_close(int fd) {
  /* First: the number may be another thread's file as soon as it is closed. */
  if (fd >= 0 && fd < HARP_FILES_MAX) atomic_fetch_and(&owned[fd / 64], ~(1ull << (fd % 64)));
  close(fd);
}
