/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl/profile.h"

#include <stdatomic.h>

#include "base/identity.h"
#include "base/log.h"

enum { EVENT_TRANSFER = 1, NO_FD = -1 };

static _Atomic(harp_nccl_profiler) process_profiler; /* the profiler of the first NCCL; set once */
static _Atomic bool is_ambiguous;                    /* a second NCCL has another profiler */

static harp_nccl_profiler in_use(void) {
  return atomic_load_explicit(&process_profiler, memory_order_relaxed);
}

void harp_nccl_profile_use(harp_nccl_profiler profiler) {
  harp_nccl_profiler first = NULL;
  if (!profiler || atomic_compare_exchange_strong(&process_profiler, &first, profiler)) return;
  if (first != profiler && !atomic_exchange(&is_ambiguous, true))
    HARP_INFO("two %ss in this process have profilers: network events are no longer recorded",
              harp_user_name());
}

void harp_nccl_profile_start(struct harp_request *request, enum harp_nccl_profile_op op, void *phandle,
                             size_t bytes) {
  harp_nccl_profiler profiler = in_use();
  if (harp_likely(!profiler)) return;
  void **event = harp_net_profiler_event(request);
  *event = NULL;
  if (!phandle || atomic_load_explicit(&is_ambiguous, memory_order_relaxed)) return;
  struct harp_nccl_profiler_socket what = {.type = EVENT_TRANSFER,
                                           .sock = {.fd = NO_FD, .op = (int)op, .length = bytes}};
  (void)profiler(event, HARP_NCCL_PROFILER_START, phandle, HARP_NCCL_PROFILER_SOCKET, &what);
}

/* NCCL passes an event only where the profiler plugin wants such ones. */
static void stop_event(void **event) {
  if (!*event) return;
  (void)in_use()(event, HARP_NCCL_PROFILER_STOP, NULL, 0, NULL);
  *event = NULL;
}

void harp_nccl_profile_stop(struct harp_request *request) {
  if (harp_likely(!in_use())) return;
  stop_event(harp_net_profiler_event(request));
}

void harp_nccl_profile_stop_all(struct harp_comm *comm) {
  if (in_use()) harp_net_each_profiler_event(comm, stop_event);
}
