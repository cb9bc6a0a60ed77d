/* SPDX-License-Identifier: Apache-2.0 */
#include "nap.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>

enum { CALLS_IN_VAIN = 64 }; /* and then it sleeps */
#define NAP_NS 50000

static long nap_ns = NAP_NS;

void box_nap_set(int us) {
  nap_ns = us * 1000L;
}

static _Thread_local unsigned in_vain;

/* Keeps errno. */
static void count_call(bool is_in_vain) {
  int error = errno;
  in_vain = is_in_vain ? in_vain + 1 : 0;
  if (in_vain >= CALLS_IN_VAIN) nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
  errno = error;
}

static bool found_nothing(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

ssize_t box_nap_recv(int fd, void *data, size_t bytes, int flags) {
  ssize_t n = recv(fd, data, bytes, flags);
  count_call(found_nothing(n));
  return n;
}

int box_nap_accept(int fd, struct sockaddr *address, socklen_t *bytes) {
  int accepted = accept(fd, address, bytes);
  count_call(found_nothing(accepted));
  return accepted;
}

int box_nap_yield(void) {
  int result = sched_yield();
  count_call(true);
  return result;
}
