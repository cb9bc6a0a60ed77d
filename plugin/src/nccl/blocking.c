/* See blocking.h.
 *
 * Owns a list of the v4 listeners and what was accepted on them ahead of time. Called from NCCL's threads,
 * several at once; the lock is held for one round over the list, never while waiting. */
#include "nccl/blocking.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "nccl/ops.h"

enum { READY_MAX = 64 }; /* accepted ahead on one listener; NCCL needs 1 */
#define NAP_NS HARP_US(100)
#define ACCEPT_LIMIT_NS                                                                                      \
  HARP_SEC(600) /* long enough for any skew of ranks at start, short enough to be an error */

struct blocking_listen {
  struct blocking_listen *next;
  void *listen;
  unsigned ready_count;
  void *ready[READY_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct blocking_listen *listens;

static harp_ns now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return HARP_SEC(t.tv_sec) + (harp_ns)t.tv_nsec;
}

static void nap(void) {
  nanosleep(&(struct timespec){.tv_nsec = (long)NAP_NS}, NULL);
}

/* Accepts what waits on one listener. The lock is held. */
static enum harp_nccl_result poll_listen(struct blocking_listen *l) {
  while (l->ready_count < READY_MAX) {
    void *comm;
    enum harp_nccl_result result = harp_nccl_accept(l->listen, &comm);
    if (result != HARP_NCCL_SUCCESS || !comm) return result;
    l->ready[l->ready_count++] = comm;
  }
  return HARP_NCCL_SUCCESS;
}

/* Serves the peers of every listener; an error is its own accept's to report. */
static void poll_all(const struct blocking_listen *except) {
  for (struct blocking_listen *l = listens; l; l = l->next)
    if (l != except) (void)poll_listen(l);
}

static void *take_ready(struct blocking_listen *l) {
  if (!l->ready_count) return NULL;
  void *comm = l->ready[0];
  l->ready_count--;
  for (unsigned i = 0; i < l->ready_count; i++) l->ready[i] = l->ready[i + 1];
  return comm;
}

enum harp_nccl_result harp_nccl_blocking_listen(int dev, void *handle, void **listen) {
  *listen = NULL;
  struct blocking_listen *l = calloc(1, sizeof *l);
  if (!l) {
    HARP_WARN("no memory for a listener");
    return HARP_NCCL_SYSTEM_ERROR;
  }
  enum harp_nccl_result result = harp_nccl_listen(harp_nccl_process(), dev, handle, &l->listen);
  if (result != HARP_NCCL_SUCCESS) {
    free(l);
    return result;
  }
  pthread_mutex_lock(&lock);
  l->next = listens;
  listens = l;
  pthread_mutex_unlock(&lock);
  *listen = l;
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_blocking_connect(int dev, void *handle, void **comm) {
  for (;;) {
    enum harp_nccl_result result =
        harp_nccl_connect(harp_nccl_process(), dev, handle, HARP_NCCL_UNDEFINED, comm);
    if (result != HARP_NCCL_SUCCESS || *comm) return result;
    pthread_mutex_lock(&lock);
    poll_all(NULL);
    pthread_mutex_unlock(&lock);
    nap();
  }
}

enum harp_nccl_result harp_nccl_blocking_accept(void *listen, void **comm) {
  struct blocking_listen *l = listen;
  harp_ns deadline_ns = now_ns() + ACCEPT_LIMIT_NS;
  *comm = NULL;
  if (!l) return harp_nccl_misuse("accept: no listening comm");
  for (;;) {
    pthread_mutex_lock(&lock);
    enum harp_nccl_result result = poll_listen(l);
    poll_all(l);
    *comm = take_ready(l);
    pthread_mutex_unlock(&lock);
    if (*comm) return HARP_NCCL_SUCCESS;
    if (result != HARP_NCCL_SUCCESS) return result;
    if (now_ns() > deadline_ns) {
      HARP_WARN("accept: no peer has connected for %llu s",
                (unsigned long long)(ACCEPT_LIMIT_NS / HARP_SEC(1)));
      return HARP_NCCL_REMOTE_ERROR;
    }
    nap();
  }
}

enum harp_nccl_result harp_nccl_blocking_close_listen(void *listen) {
  struct blocking_listen *l = listen;
  if (!l) return HARP_NCCL_SUCCESS;
  pthread_mutex_lock(&lock);
  struct blocking_listen **at = &listens;
  while (*at && *at != l) at = &(*at)->next;
  if (*at) *at = l->next;
  pthread_mutex_unlock(&lock);
  for (void *comm; (comm = take_ready(l));) harp_nccl_close_comm(comm);
  harp_nccl_close_listen(l->listen);
  free(l);
  return HARP_NCCL_SUCCESS;
}
