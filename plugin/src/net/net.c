/* SPDX-License-Identifier: Apache-2.0 */
#include "net/net.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/assert.h"
#include "base/files.h"
#include "base/identity.h"
#include "base/log.h"
#include "base/shortage.h"
#include "engine/control/connect.h"
#include "engine/control/listener.h"
#include "engine/link_close.h"
#include "engine/runner.h"
#include "host/config.h"
#include "host/env.h"
#include "net/device.h"
#include "wire/crc32c.h"
#include "wire/polyval.h"

struct harp_context {
  struct harp_context *next;
  int traffic_class;
  unsigned call_count;         /* listens and connects that are at work, outside the lock */
  struct harp_listen *listens; /* open ones */
  struct pending *pendings;    /* connects under way, but for those that a call is at work on */
};

/* Returns whether an accept is at work on a listen, whether one was since the engine's thread looked last, or
 * whether that thread has closed the listener, which no accept may touch then. */
enum listen_state { LISTEN_IDLE, LISTEN_POLLED, LISTEN_BUSY, LISTEN_GIVEN_UP };

struct harp_listen {
  struct harp_listen *next;
  struct harp_context *ctx;
  int dev;
  struct harp_listener *listener;
  _Atomic int state; /* enum listen_state */
  bool was_polled;   /* ever; the engine's thread writes it, as the next */
  unsigned idle;     /* its looks since then that found no accept */
};

/* A connect that has not become a comm yet. NCCL keeps nothing of it but the handle, in which we note its
 * cookie. */
struct pending {
  struct pending *next;
  uint64_t cookie;
  const void *handle; /* the very buffer it was begun with */
  int dev;
  struct harp_connect *connect;
  unsigned idle; /* looks of the engine's thread since a call was at work on it */
};

/* NCCL has given up, since an abort only ceases to poll it:
 * - a connect that was not polled for so many peer timeouts;
 * - a listen that was polled, and then not for so many peer timeouts;
 * - a listen that was never polled for so long: it is there from the time when NCCL sets its channels up, and
 *   polled from when the last of its ranks has done so, which may be busy with other things. */
enum { CONNECT_TIMEOUTS = 2, LISTEN_TIMEOUTS = 5 };
#define LISTEN_UNPOLLED_NS HARP_SEC(3600)

struct harp_comm {
  int dev;
  struct harp_link *link;
};

struct registration {
  void *data;
  size_t bytes;
};

/* All of a process, beside its devices. The lock guards contexts, their lists and the table of devices; never
 * taken on the data path, and never held while an engine is opened or closed. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t call_over;
  struct harp_context *contexts;
  uint64_t cookie_next;
} net = {.lock = PTHREAD_MUTEX_INITIALIZER, .call_over = PTHREAD_COND_INITIALIZER, .cookie_next = 1};

static bool engine_ticked(struct harp_engine *e);

static enum harp_status in_child(const char *what) {
  HARP_WARN("%s in a forked child: connections belong to the process that made them", what);
  return HARP_ERR_INTERNAL;
}

/* ---- devices: device.c has the rest ---- */

enum harp_status harp_net_merge(const int *parts, int part_count, int *dev) {
  if (harp_files_in_child()) return in_child("makeVDevice");
  pthread_mutex_lock(&net.lock);
  enum harp_status status = harp_devices_merge(parts, part_count, dev);
  pthread_mutex_unlock(&net.lock);
  return status;
}

/* ---- contexts ---- */

bool harp_net_is_disabled(void) {
  return harp_env_is_disabled(harp_config_sources_system().environment);
}

enum harp_status harp_net_open(struct harp_context **out, int traffic_class) {
  enum harp_status status = HARP_OK;
  *out = NULL;
  if (harp_files_in_child()) return in_child("init"); /* a lock below may have been held at the fork */
  struct harp_context *ctx = calloc(1, sizeof *ctx);
  if (!ctx) {
    harp_shortage_warn_memory("make a context");
    return HARP_ERR_SYSTEM;
  }
  ctx->traffic_class = traffic_class;
  pthread_mutex_lock(&net.lock);
  if (!net.contexts) status = harp_devices_configure();
  if (status == HARP_OK) {
    harp_files_mark_children();
    harp_crc32c_init(getauxval(AT_HWCAP));
    harp_polyval_init(getauxval(AT_HWCAP));
    ctx->next = net.contexts;
    net.contexts = ctx;
  }
  pthread_mutex_unlock(&net.lock);
  if (status != HARP_OK) {
    free(ctx);
    return status;
  }
  *out = ctx;
  return HARP_OK;
}

/* Releases what something on a device had of it: the engine (NULL: it got none), then the device itself.
 * Returns whether that closed the engine. */
static bool leave_device(int dev, struct harp_engine *e) {
  bool closed = e && harp_devices_drop(dev, e);
  pthread_mutex_lock(&net.lock);
  harp_devices_release(dev);
  pthread_mutex_unlock(&net.lock);
  return closed;
}

static void listen_free(struct harp_listen *l) {
  struct harp_engine *e = l->listener->engine;
  harp_listener_close(l->listener);
  leave_device(l->dev, e);
  free(l);
}

static bool is_given_up(const struct harp_listen *l) {
  return atomic_load_explicit(&l->state, memory_order_acquire) == LISTEN_GIVEN_UP;
}

/* Returns whether that closed its engine. */
static bool pending_free(struct pending *p) {
  struct harp_engine *e = p->connect->engine;
  harp_connect_close(p->connect);
  bool closed = leave_device(p->dev, e);
  free(p);
  return closed;
}

/* Returns where the list of contexts has it; NULL: it is not there. Under the lock. */
static struct harp_context **find_context(const struct harp_context *ctx) {
  struct harp_context **at = &net.contexts;
  while (*at && *at != ctx) at = &(*at)->next;
  return *at ? at : NULL;
}

void harp_net_close(struct harp_context *ctx) {
  struct harp_context **at;
  if (!ctx || harp_files_in_child()) return;
  pthread_mutex_lock(&net.lock);
  while ((at = find_context(ctx)) && ctx->call_count) pthread_cond_wait(&net.call_over, &net.lock);
  if (at) *at = ctx->next;
  pthread_mutex_unlock(&net.lock);
  if (!at) return;
  while (ctx->listens) {
    struct harp_listen *l = ctx->listens;
    ctx->listens = l->next;
    listen_free(l);
  }
  while (ctx->pendings) {
    struct pending *p = ctx->pendings;
    ctx->pendings = p->next;
    pending_free(p);
  }
  free(ctx);
}

/* ---- listen, connect, accept ---- */

/* Finalizing waits for calls that are at work, so that it finds what they made. Both under the lock. */
static void begin_call(struct harp_context *ctx) {
  ctx->call_count++;
}

static void end_call(struct harp_context *ctx) {
  if (!--ctx->call_count) pthread_cond_broadcast(&net.call_over);
}

enum harp_status harp_net_listen(struct harp_context *ctx, int dev, void *handle, size_t handle_bytes,
                                 struct harp_listen **listen) {
  *listen = NULL;
  if (harp_files_in_child()) return in_child("listen");
  if (!ctx || !harp_devices_have(dev, "listen")) return HARP_ERR_ARGUMENT;
  struct harp_listen *l = calloc(1, sizeof *l);
  if (!l) {
    harp_shortage_warn_memory("listen for connections");
    return HARP_ERR_SYSTEM;
  }
  enum harp_status status = HARP_ERR_SYSTEM;
  pthread_mutex_lock(&net.lock);
  begin_call(ctx);
  harp_devices_hold(dev);
  pthread_mutex_unlock(&net.lock);
  struct harp_engine *e = harp_devices_use(dev, NULL, engine_ticked);
  if (e) status = harp_listener_open(&l->listener, e, handle, handle_bytes, ctx->traffic_class);
  if (status != HARP_OK) goto fail;
  pthread_mutex_lock(&net.lock);
  l->ctx = ctx;
  l->dev = dev;
  l->next = ctx->listens;
  ctx->listens = l;
  end_call(ctx);
  pthread_mutex_unlock(&net.lock);
  *listen = l;
  return HARP_OK;
fail:
  leave_device(dev, e);
  pthread_mutex_lock(&net.lock);
  end_call(ctx);
  pthread_mutex_unlock(&net.lock);
  free(l);
  return status;
}

void harp_net_close_listen(struct harp_listen *listen) {
  if (!listen || harp_files_in_child()) return;
  pthread_mutex_lock(&net.lock);
  bool was_given_up = is_given_up(listen);
  struct harp_listen **at = was_given_up ? NULL : &listen->ctx->listens;
  while (at && *at != listen) {
    HARP_ASSERT(*at); /* one that is open is in its context's list */
    at = &(*at)->next;
  }
  if (at) *at = listen->next;
  pthread_mutex_unlock(&net.lock);
  if (was_given_up)
    free(listen);
  else
    listen_free(listen);
}

/* Wraps a finished link. That the comm uses device and engine is for the caller to count. */
static struct harp_comm *comm_of(int dev, struct harp_link *link) {
  struct harp_comm *c = malloc(sizeof *c);
  if (!c) {
    harp_shortage_warn_memory("make a connection");
    harp_link_destroy(link);
    return NULL;
  }
  *c = (struct harp_comm){dev, link};
  return c;
}

enum harp_status harp_net_accept(struct harp_listen *listen, struct harp_comm **comm) {
  *comm = NULL;
  if (harp_files_in_child()) return in_child("accept");
  if (atomic_exchange_explicit(&listen->state, LISTEN_BUSY, memory_order_acq_rel) == LISTEN_GIVEN_UP) {
    atomic_store_explicit(&listen->state, LISTEN_GIVEN_UP, memory_order_release);
    HARP_WARN("accept: nobody has called it for so long that HARP has closed its listener");
    return HARP_ERR_INTERNAL;
  }
  struct harp_link *link;
  enum harp_status status = harp_listener_poll(listen->listener, &link);
  atomic_store_explicit(&listen->state, LISTEN_POLLED, memory_order_release);
  if (!link) return status;
  *comm = comm_of(listen->dev, link);
  if (!*comm) return HARP_ERR_SYSTEM;
  pthread_mutex_lock(&net.lock);
  harp_devices_hold(listen->dev);
  pthread_mutex_unlock(&net.lock);
  harp_devices_share(listen->dev, link->engine);
  return HARP_OK;
}

/* Takes the connect that was begun with this very handle buffer out of its list; NULL: there is none. The
 * cookie alone could be a foreign byte pattern. Under the lock. */
static struct pending *take_pending(struct harp_context *ctx, const struct harp_handle *handle) {
  uint64_t cookie;
  memcpy(&cookie, handle->cookie, sizeof cookie);
  struct pending **at = &ctx->pendings, *p;
  while ((p = *at) && (p->cookie != cookie || p->handle != handle)) at = &p->next;
  if (p) *at = p->next;
  return p;
}

/* Leaves a connect for the next call, which finds it by what is noted in the handle. Under the lock. */
static void put_pending(struct harp_context *ctx, struct pending *p, struct harp_handle *handle) {
  if (!p->cookie) p->cookie = net.cookie_next++;
  memcpy(handle->cookie, &p->cookie, sizeof p->cookie);
  p->idle = 0;
  p->next = ctx->pendings;
  ctx->pendings = p;
}

/* Looks whether a connect of this engine is given up. Time passes by looks, each HARP_RUNNER_TICK_NS after
 * the last one: none pass while the process is stopped. */
static bool has_expired(struct pending *p, const struct harp_engine *e) {
  if (p->connect->engine != e) return false;
  return ++p->idle >= CONNECT_TIMEOUTS * e->instance.peer_timeout_ns / HARP_RUNNER_TICK_NS;
}

/* Takes one of the engine's connects that were given up out of its list; NULL: there is none. */
static struct pending *take_given_up_connect(const struct harp_engine *e) {
  struct pending *found = NULL;
  pthread_mutex_lock(&net.lock);
  for (struct harp_context *ctx = net.contexts; ctx && !found; ctx = ctx->next) {
    struct pending **at = &ctx->pendings;
    while (*at && !has_expired(*at, e)) at = &(*at)->next;
    found = *at;
    if (found) *at = found->next;
  }
  pthread_mutex_unlock(&net.lock);
  return found;
}

/* Looks whether a listen of this engine is polled; claims it if it is given up. Time passes by looks, too. */
static bool claim_given_up(struct harp_listen *l, const struct harp_engine *e) {
  int idle = LISTEN_IDLE, polled = LISTEN_POLLED;
  if (l->listener->engine != e) return false;
  if (atomic_compare_exchange_strong(&l->state, &polled, LISTEN_IDLE) || polled == LISTEN_BUSY) {
    l->was_polled = true;
    l->idle = 0;
    return false;
  }
  harp_ns limit_ns = l->was_polled ? LISTEN_TIMEOUTS * e->instance.peer_timeout_ns : LISTEN_UNPOLLED_NS;
  if (++l->idle < limit_ns / HARP_RUNNER_TICK_NS) return false;
  return atomic_compare_exchange_strong(&l->state, &idle, LISTEN_GIVEN_UP);
}

/* Takes one of the engine's listens that were given up out of its list; NULL: there is none. */
static struct harp_listen *take_given_up_listen(const struct harp_engine *e) {
  struct harp_listen *found = NULL;
  pthread_mutex_lock(&net.lock);
  for (struct harp_context *ctx = net.contexts; ctx && !found; ctx = ctx->next) {
    struct harp_listen **at = &ctx->listens;
    while (*at && !claim_given_up(*at, e)) at = &(*at)->next;
    found = *at;
    if (found) *at = found->next;
  }
  pthread_mutex_unlock(&net.lock);
  return found;
}

/* Closes the engine's listens that were given up. What is left is freed by closeListen, if that comes.
 * Returns whether that closed the engine. */
static bool end_given_up_listens(struct harp_engine *e) {
  struct harp_listen *l;
  bool closed = false;
  while (!closed && (l = take_given_up_listen(e))) {
    HARP_INFO("%s: %s has not polled a listener for %llu s; closing it", e->name, harp_user_name(),
              (unsigned long long)(l->idle * HARP_RUNNER_TICK_NS / HARP_SEC(1)));
    harp_listener_close(l->listener);
    closed = leave_device(l->dev, e);
  }
  return closed;
}

/* Ends what NCCL has given up of the engine's: an abort only ceases to poll connects and listens, and tables
 * before v11 finalize nothing. As nothing may ever be called again, it is the engine's own thread that does
 * it. It waits for nobody who waits for it: nobody stops an engine while such a connect uses it. The handle
 * is not touched, it may be freed. A connect that is polled after all begins anew. */
static bool end_given_up(struct harp_engine *e) {
  struct pending *p;
  bool closed = false;
  while (!closed && (p = take_given_up_connect(e))) {
    HARP_INFO("%s: %s has not polled a connect for %llu s; closing it", e->name, harp_user_name(),
              (unsigned long long)(p->idle * HARP_RUNNER_TICK_NS / HARP_SEC(1)));
    closed = pending_free(p);
  }
  return closed || end_given_up_listens(e);
}

/* Does what the engine's thread does for its owner. Returns whether that closed the engine. */
static bool engine_ticked(struct harp_engine *e) {
  return end_given_up(e) || harp_devices_end_unused(e);
}

static enum harp_status begin_connect(struct harp_context *ctx, int dev, const struct harp_handle *handle,
                                      size_t handle_bytes, int traffic_class, struct pending **out) {
  enum harp_status status = HARP_ERR_SYSTEM;
  struct harp_engine *e = NULL;
  struct harp_contact contact;
  struct harp_error error; /* harp_connect_open logs it */
  bool is_known = harp_handle_decode(handle, handle_bytes, &contact, &error);
  struct pending *p = calloc(1, sizeof *p);
  if (!p) {
    harp_shortage_warn_memory("connect");
    goto fail;
  }
  e = harp_devices_use(dev, is_known ? &contact : NULL, engine_ticked);
  if (!e) goto fail;
  status = harp_connect_open(&p->connect, e, handle, handle_bytes,
                             traffic_class < 0 ? ctx->traffic_class : traffic_class);
  if (status != HARP_OK) goto fail;
  p->handle = handle;
  p->dev = dev;
  *out = p;
  return HARP_OK;
fail:
  leave_device(dev, e);
  free(p);
  return status;
}

/* Moves a connect on; one that is over, well or not, is freed and *at cleared. The comm takes over its use of
 * the engine. */
static enum harp_status poll_connect(struct pending **at, struct harp_handle *handle,
                                     struct harp_comm **comm) {
  struct pending *p = *at;
  struct harp_engine *e = p->connect->engine;
  struct harp_link *link;
  enum harp_status status = harp_connect_poll(p->connect, &link);
  if (status == HARP_OK && !link) return HARP_OK;
  if (link && !(*comm = comm_of(p->dev, link))) status = HARP_ERR_SYSTEM;
  harp_connect_close(p->connect);
  if (!*comm) leave_device(p->dev, e);
  memset(handle->cookie, 0, sizeof handle->cookie);
  free(p);
  *at = NULL;
  return status;
}

enum harp_status harp_net_connect(struct harp_context *ctx, int dev, void *handle, size_t handle_bytes,
                                  int traffic_class, struct harp_comm **comm) {
  enum harp_status status = HARP_OK;
  *comm = NULL;
  if (harp_files_in_child()) return in_child("connect");
  if (!ctx || !harp_devices_have(dev, "connect")) return HARP_ERR_ARGUMENT;
  pthread_mutex_lock(&net.lock);
  begin_call(ctx);
  struct pending *p = take_pending(ctx, handle);
  if (!p) harp_devices_hold(dev);
  pthread_mutex_unlock(&net.lock);
  if (!p) status = begin_connect(ctx, dev, handle, handle_bytes, traffic_class, &p);
  if (p) status = poll_connect(&p, handle, comm);
  pthread_mutex_lock(&net.lock);
  if (p) put_pending(ctx, p, handle);
  end_call(ctx);
  pthread_mutex_unlock(&net.lock);
  return status;
}

void harp_net_close_comm(struct harp_comm *comm) {
  if (!comm || harp_files_in_child()) return;
  struct harp_engine *e = comm->link->engine;
  harp_link_destroy(comm->link);
  harp_engine_wake_mt(e);
  leave_device(comm->dev, e);
  free(comm);
}

void **harp_net_profiler_event(struct harp_request *request) {
  return &request->profiler_event;
}

void harp_net_each_profiler_event(struct harp_comm *comm, void (*on_event)(void **event)) {
  if (!comm || harp_files_in_child()) return;
  for (unsigned i = 0; i < HARP_REQUESTS_MAX; i++) on_event(&comm->link->requests[i].profiler_event);
}

/* ---- memory ---- */

enum harp_status harp_net_register(struct harp_comm *comm, void *data, size_t bytes, void **mr) {
  (void)comm;
  struct registration *r = malloc(sizeof *r);
  *mr = r;
  if (!r) {
    harp_shortage_warn_memory("register memory");
    return HARP_ERR_SYSTEM;
  }
  *r = (struct registration){data, bytes};
  return HARP_OK;
}

enum harp_status harp_net_deregister(struct harp_comm *comm, void *mr) {
  struct registration *r = mr;
  if (!r) return HARP_OK;
  if (!harp_files_in_child()) harp_link_quiesce(comm->link, r->data, r->bytes);
  free(r);
  return HARP_OK;
}

/* ---- data ---- */

_Static_assert(HARP_NET_MAX_BYTES == (int)HARP_MESSAGE_MAX_BYTES, "what a comm takes, its stream carries");

/* Returns why a comm takes no request of this role, with one WARN; HARP_OK: it takes one. */
static enum harp_status check_comm(const struct harp_comm *comm, enum harp_role role) {
  struct harp_link *link = comm->link;
  if (harp_unlikely(harp_files_in_child())) return in_child("send or receive");
  enum harp_status status = harp_link_error(link);
  if (harp_unlikely(status != HARP_OK)) return status;
  if (harp_likely(link->role == role)) return HARP_OK;
  HARP_WARN("%s on the wrong end of a connection", role == HARP_ROLE_SENDER ? "send" : "receive");
  return HARP_ERR_INTERNAL;
}

enum harp_status harp_net_send(struct harp_comm *comm, void *data, size_t bytes,
                               struct harp_request **request) {
  *request = NULL;
  enum harp_status status = check_comm(comm, HARP_ROLE_SENDER);
  if (harp_unlikely(status != HARP_OK)) return status;
  if (harp_unlikely(bytes > HARP_NET_MAX_BYTES)) {
    HARP_WARN("a message of %zu bytes to %s is larger than the %d that HARP carries", bytes,
              comm->link->peer->name, HARP_NET_MAX_BYTES);
    return HARP_ERR_USAGE;
  }
  *request = harp_request_send(comm->link, data, (uint32_t)bytes);
  return HARP_OK;
}

enum harp_status harp_net_receive(struct harp_comm *comm, void *data, size_t bytes, bool is_watched,
                                  struct harp_request **request) {
  *request = NULL;
  enum harp_status status = check_comm(comm, HARP_ROLE_RECEIVER);
  if (harp_unlikely(status != HARP_OK)) return status;
  bytes = HARP_MIN(bytes, (size_t)HARP_NET_MAX_BYTES); /* a receive may be larger than any message */
  *request = harp_request_receive(comm->link, data, (uint32_t)bytes, is_watched);
  return HARP_OK;
}

enum harp_status harp_net_test(struct harp_request *request, bool *done, size_t *bytes) {
  *done = false;
  if (harp_unlikely(harp_files_in_child())) return in_child("test");
  return harp_request_test(request, done, bytes);
}
