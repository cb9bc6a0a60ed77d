/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl/ops.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/identity.h"
#include "base/log.h"
#include "nccl/log.h"
#include "nccl/profile.h"
#include "nccl/result.h"

/* The context of the versions without contexts. It is set once, by an exchange and not under a lock: a
 * lock could be held by another thread at the moment the trainer forks. */
static _Atomic(struct harp_context *) process_context;

/* NCCL passes no hint which receives are watched. Read when a context is opened. */
static _Atomic bool is_without_hints;

/* The request that flush returns: never dereferenced. */
static const char flush_request;

enum harp_nccl_result harp_nccl_misuse(const char *what) {
  HARP_WARN("%s", what);
  return HARP_NCCL_INTERNAL_ERROR;
}

enum harp_nccl_result harp_nccl_negative(const char *what, int size) {
  HARP_WARN("%s of %d bytes", what, size);
  return HARP_NCCL_INVALID_ARGUMENT;
}

/* ---- contexts ---- */

/* Logs version and build. Returns whether HARP is enabled. */
static bool begin_process(void) {
  char build[HARP_BUILD_ID_TEXT_BYTES];
  if (harp_net_is_disabled()) {
    HARP_INFO("HARP %s is disabled by HARP_DISABLE=1; %s uses another network", harp_version(),
              harp_user_name());
    return false;
  }
  harp_build_id(build);
  HARP_INFO("HARP %s, build %s", harp_version(), build);
  return true;
}

static void learn_hints(void) {
  const char *optional = getenv("NCCL_NET_OPTIONAL_RECV_COMPLETION");
  atomic_store_explicit(&is_without_hints, optional && strcmp(optional, "0") == 0, memory_order_relaxed);
}

bool harp_nccl_is_watched(void *const *request) {
  return *request == (void *)(uintptr_t)HARP_NCCL_RECV_COMPLETION_IS_OPTIONAL ||
         atomic_load_explicit(&is_without_hints, memory_order_relaxed);
}

enum harp_nccl_result harp_nccl_open(void **ctx, int traffic_class, harp_nccl_logger log,
                                     harp_nccl_profiler profiler) {
  struct harp_context *c = NULL;
  learn_hints();
  harp_user_learn((uintptr_t)log);
  harp_nccl_log_use(log);
  harp_nccl_profile_use(profiler);
  if (!ctx) return harp_nccl_misuse("init: no place for the context");
  *ctx = NULL;
  if (!begin_process()) return HARP_NCCL_SYSTEM_ERROR;
  enum harp_status status = harp_net_open(&c, traffic_class);
  if (status == HARP_OK) *ctx = c;
  return harp_nccl_result_of(status);
}

enum harp_nccl_result harp_nccl_close(void *ctx) {
  harp_net_close(ctx);
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_open_process(harp_nccl_logger log, harp_nccl_profiler profiler) {
  struct harp_context *mine = NULL, *none = NULL;
  learn_hints();
  harp_user_learn((uintptr_t)log);
  harp_nccl_log_use(log);
  harp_nccl_profile_use(profiler);
  if (!begin_process()) return HARP_NCCL_SYSTEM_ERROR;
  enum harp_status status = harp_net_open(&mine, HARP_NCCL_UNDEFINED);
  if (status == HARP_OK && !atomic_compare_exchange_strong(&process_context, &none, mine))
    harp_net_close(mine);
  return harp_nccl_result_of(status);
}

struct harp_context *harp_nccl_process(void) {
  return atomic_load(&process_context);
}

enum harp_nccl_result harp_nccl_devices(int *ndev) {
  *ndev = harp_net_device_count();
  return *ndev > 0 ? HARP_NCCL_SUCCESS : harp_nccl_misuse("devices: called before init");
}

enum harp_nccl_result harp_nccl_merge(int *dev, const int *parts, int count, int most) {
  if (count > most) {
    HARP_WARN("makeVDevice: a device of %d others, more than this version can name", count);
    return HARP_NCCL_INVALID_ARGUMENT;
  }
  return harp_nccl_result_of(harp_net_merge(parts, count, dev));
}

/* ---- connections ---- */

enum harp_nccl_result harp_nccl_listen(struct harp_context *ctx, int dev, void *handle, size_t handle_bytes,
                                       void **listen) {
  struct harp_listen *l = NULL;
  *listen = NULL;
  if (!ctx) return harp_nccl_misuse("listen: called without a successful init");
  if (!handle) return harp_nccl_misuse("listen: no handle");
  enum harp_status status = harp_net_listen(ctx, dev, handle, handle_bytes, &l);
  *listen = l;
  return harp_nccl_result_of(status);
}

enum harp_nccl_result harp_nccl_connect(struct harp_context *ctx, int dev, void *handle, size_t handle_bytes,
                                        int traffic_class, void **comm) {
  struct harp_comm *c = NULL;
  *comm = NULL;
  if (!ctx) return harp_nccl_misuse("connect: called without a successful init");
  if (!handle) return harp_nccl_misuse("connect: no handle");
  enum harp_status status = harp_net_connect(ctx, dev, handle, handle_bytes, traffic_class, &c);
  *comm = c;
  return harp_nccl_result_of(status);
}

enum harp_nccl_result harp_nccl_accept(void *listen, void **comm) {
  struct harp_comm *c = NULL;
  *comm = NULL;
  if (!listen) return harp_nccl_misuse("accept: no listening comm");
  enum harp_status status = harp_net_accept(listen, &c);
  *comm = c;
  return harp_nccl_result_of(status);
}

enum harp_nccl_result harp_nccl_close_comm(void *comm) {
  harp_nccl_profile_stop_all(comm);
  harp_net_close_comm(comm);
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_close_listen(void *listen) {
  harp_net_close_listen(listen);
  return HARP_NCCL_SUCCESS;
}

/* ---- memory ---- */

enum harp_nccl_result harp_nccl_register(void *comm, void *data, size_t bytes, int type, void **mhandle) {
  *mhandle = NULL;
  if (!comm) return harp_nccl_misuse("regMr: no comm");
  if (type != HARP_NCCL_PTR_HOST) {
    HARP_WARN("regMr: memory of type %d: HARP moves host memory only, as its properties say", type);
    return HARP_NCCL_INTERNAL_ERROR;
  }
  return harp_nccl_result_of(harp_net_register(comm, data, bytes, mhandle));
}

enum harp_nccl_result harp_nccl_deregister(void *comm, void *mhandle) {
  if (comm) (void)harp_net_deregister(comm, mhandle);
  return HARP_NCCL_SUCCESS;
}

/* ---- data ---- */

enum harp_nccl_result harp_nccl_send(void *comm, void *data, size_t bytes, void *phandle, void **request) {
  struct harp_request *r = NULL;
  *request = NULL;
  if (harp_unlikely(!comm)) return harp_nccl_misuse("isend: no comm");
  enum harp_status status = harp_net_send(comm, data, bytes, &r);
  if (r) harp_nccl_profile_start(r, HARP_NCCL_PROFILE_SEND, phandle, bytes);
  *request = r;
  return harp_nccl_result_of(status);
}

enum harp_nccl_result harp_nccl_receive(void *comm, int n, void **data, const size_t *sizes, bool is_watched,
                                        void *phandle, void **request) {
  struct harp_request *r = NULL;
  *request = NULL;
  if (harp_unlikely(!comm)) return harp_nccl_misuse("irecv: no comm");
  if (harp_unlikely(n != 1)) {
    HARP_WARN("irecv: %d receives in one call; HARP takes 1, as maxRecvs in its properties says", n);
    return HARP_NCCL_INTERNAL_ERROR;
  }
  enum harp_status status = harp_net_receive(comm, data[0], sizes[0], is_watched, &r);
  if (r) harp_nccl_profile_start(r, HARP_NCCL_PROFILE_RECEIVE, phandle, sizes[0]);
  *request = r;
  return harp_nccl_result_of(status);
}

enum harp_nccl_result harp_nccl_flush(void **request) {
  *request = (void *)(uintptr_t)&flush_request;
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_test(void *request, int *done, int *sizes) {
  bool is_done = false;
  size_t bytes = 0;
  *done = 0;
  if (harp_unlikely(!request)) return harp_nccl_misuse("test: no request");
  if (harp_unlikely(request == &flush_request)) {
    *done = 1;
    return HARP_NCCL_SUCCESS;
  }
  enum harp_status status = harp_net_test(request, &is_done, &bytes);
  if (is_done || status != HARP_OK) harp_nccl_profile_stop(request);
  *done = is_done;
  if (is_done && sizes) sizes[0] = (int)bytes; /* at most HARP_NET_MAX_BYTES, an int */
  return harp_nccl_result_of(status);
}
