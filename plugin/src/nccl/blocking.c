/* SPDX-License-Identifier: Apache-2.0 */
/* See blocking.h. No state; called from NCCL's threads, several at once, each on its own connection. */
#include "nccl/blocking.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "nccl/ops.h"

#define NAP_NS HARP_US(100)
/* Longer than ranks differ at start, short enough to be reported as an error. */
#define ACCEPT_LIMIT_NS HARP_SEC(600)

static void sleep_briefly(void) {
  nanosleep(&(struct timespec){.tv_nsec = (long)NAP_NS}, NULL);
}

enum harp_nccl_result harp_nccl_blocking_connect(int dev, void *handle, void **comm) {
  for (;;) {
    enum harp_nccl_result result = harp_nccl_connect(harp_nccl_process(), dev, handle,
                                                     HARP_NCCL_HANDLE_BYTES_V4, HARP_NCCL_UNDEFINED, comm);
    if (result != HARP_NCCL_SUCCESS || *comm) return result;
    sleep_briefly();
  }
}

enum harp_nccl_result harp_nccl_blocking_accept(void *listen, void **comm) {
  harp_ns deadline_ns = harp_clock_ns() + ACCEPT_LIMIT_NS;
  for (;;) {
    enum harp_nccl_result result = harp_nccl_accept(listen, comm);
    if (result != HARP_NCCL_SUCCESS || *comm) return result;
    if (harp_clock_ns() > deadline_ns) {
      HARP_WARN("accept: no peer has connected for %llu s",
                (unsigned long long)(ACCEPT_LIMIT_NS / HARP_SEC(1)));
      return HARP_NCCL_REMOTE_ERROR;
    }
    sleep_briefly();
  }
}
