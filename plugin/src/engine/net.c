#include "engine/net.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/device.h"
#include "engine/meet.h"
#include "engine/runner.h"
#include "host/fork.h"
#include "wire/crc32c.h"

struct harp_context {
  struct harp_context *next;
  int traffic_class;
  struct harp_listen *listens; /* open ones */
  struct pending *pendings;    /* connects under way */
};

struct harp_listen {
  struct harp_listen *next;
  struct harp_context *ctx;
  int dev;
  struct harp_listener *listener;
};

/* A connect that has not become a comm yet. NCCL keeps nothing of it but the handle, in which we note its
 * cookie. */
struct pending {
  struct pending *next;
  uint64_t cookie;
  const void *handle; /* the very buffer it was begun with */
  int dev;
  struct harp_dial *dial;
};

struct harp_comm {
  int dev;
  struct harp_link *link;
};

struct registration {
  void *data;
  size_t bytes;
};

/* All of a process, beside its devices. The lock guards contexts, their lists and the table of devices; never
 * taken on the data path. */
static struct {
  pthread_mutex_t lock;
  struct harp_context *contexts;
  uint64_t cookie_next;
} net = {.lock = PTHREAD_MUTEX_INITIALIZER, .cookie_next = 1};

static enum harp_status in_child(const char *what) {
  HARP_WARN("%s in a forked child: connections belong to the process that made them", what);
  return HARP_ERR_INTERNAL;
}

/* ---- devices: device.c has the rest ---- */

enum harp_status harp_net_merge(const int *parts, int part_count, int *dev) {
  if (harp_fork_is_child()) return in_child("makeVDevice");
  pthread_mutex_lock(&net.lock);
  enum harp_status status = harp_devices_merge(parts, part_count, dev);
  pthread_mutex_unlock(&net.lock);
  return status;
}

/* ---- contexts ---- */

enum harp_status harp_net_open(struct harp_context **out, int traffic_class) {
  enum harp_status status = HARP_OK;
  *out = NULL;
  if (harp_fork_is_child()) return in_child("init"); /* not past a lock that was perhaps held at the fork */
  struct harp_context *ctx = calloc(1, sizeof *ctx);
  if (!ctx) {
    HARP_WARN("no memory for a context");
    return HARP_ERR_SYSTEM;
  }
  ctx->traffic_class = traffic_class;
  pthread_mutex_lock(&net.lock);
  if (!net.contexts) status = harp_devices_configure();
  if (status == HARP_OK) {
    harp_fork_init();
    harp_crc32c_init(getauxval(AT_HWCAP));
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

static void listen_free(struct harp_listen *l) {
  struct harp_engine *e = l->listener->engine;
  harp_listener_close(l->listener);
  harp_devices_drop(l->dev, e);
  free(l);
}

static void pending_free(struct pending *p) {
  struct harp_engine *e = p->dial->engine;
  harp_dial_close(p->dial);
  harp_devices_drop(p->dev, e);
  free(p);
}

void harp_net_close(struct harp_context *ctx) {
  if (!ctx || harp_fork_is_child()) return;
  pthread_mutex_lock(&net.lock);
  struct harp_context **at = &net.contexts;
  while (*at && *at != ctx) at = &(*at)->next;
  bool known = *at == ctx;
  if (known) *at = ctx->next;
  while (known && ctx->listens) {
    struct harp_listen *l = ctx->listens;
    ctx->listens = l->next;
    listen_free(l);
  }
  while (known && ctx->pendings) {
    struct pending *p = ctx->pendings;
    ctx->pendings = p->next;
    pending_free(p);
  }
  pthread_mutex_unlock(&net.lock);
  if (known) free(ctx);
}

/* ---- meeting ---- */

enum harp_status harp_net_listen(struct harp_context *ctx, int dev, void *handle,
                                 struct harp_listen **listen) {
  *listen = NULL;
  if (harp_fork_is_child()) return in_child("listen");
  if (!ctx || !harp_devices_have(dev, "listen")) return HARP_ERR_ARGUMENT;
  struct harp_listen *l = calloc(1, sizeof *l);
  if (!l) {
    HARP_WARN("no memory for a listener");
    return HARP_ERR_SYSTEM;
  }
  enum harp_status status = HARP_ERR_SYSTEM;
  pthread_mutex_lock(&net.lock);
  struct harp_engine *e = harp_devices_use(dev);
  if (e && (status = harp_listener_open(&l->listener, e, handle))) harp_devices_drop(dev, e);
  if (status == HARP_OK) {
    l->ctx = ctx;
    l->dev = dev;
    l->next = ctx->listens;
    ctx->listens = l;
  }
  pthread_mutex_unlock(&net.lock);
  if (status != HARP_OK) {
    free(l);
    return status;
  }
  *listen = l;
  return HARP_OK;
}

void harp_net_close_listen(struct harp_listen *listen) {
  if (!listen || harp_fork_is_child()) return;
  pthread_mutex_lock(&net.lock);
  struct harp_listen **at = &listen->ctx->listens;
  while (*at && *at != listen) at = &(*at)->next;
  HARP_ASSERT(*at);
  *at = listen->next;
  listen_free(listen);
  pthread_mutex_unlock(&net.lock);
}

/* Wraps a finished link. That the comm uses the engine is for the caller to count. */
static struct harp_comm *comm_of(int dev, struct harp_link *link) {
  struct harp_comm *c = malloc(sizeof *c);
  if (!c) {
    HARP_WARN("no memory for a connection");
    harp_link_destroy(link);
    return NULL;
  }
  *c = (struct harp_comm){dev, link};
  return c;
}

enum harp_status harp_net_accept(struct harp_listen *listen, struct harp_comm **comm) {
  *comm = NULL;
  if (harp_fork_is_child()) return in_child("accept");
  struct harp_link *link = harp_listener_take(listen->listener);
  if (!link) return HARP_OK;
  *comm = comm_of(listen->dev, link);
  if (!*comm) return HARP_ERR_SYSTEM;
  pthread_mutex_lock(&net.lock);
  harp_devices_share(listen->dev, link->engine);
  pthread_mutex_unlock(&net.lock);
  return HARP_OK;
}

/* The connect that was begun with this very handle buffer, or NULL. The cookie alone could be a foreign byte
 * pattern. */
static struct pending *find_pending(struct harp_context *ctx, const void *handle, uint64_t cookie) {
  struct pending *p = ctx->pendings;
  while (p && (p->cookie != cookie || p->handle != handle)) p = p->next;
  return p;
}

static enum harp_status begin_connect(struct harp_context *ctx, int dev, struct harp_handle *handle,
                                      int traffic_class, struct pending **out) {
  struct pending *p = calloc(1, sizeof *p);
  if (!p) {
    HARP_WARN("no memory to connect");
    return HARP_ERR_SYSTEM;
  }
  enum harp_status status = HARP_ERR_SYSTEM;
  struct harp_engine *e = harp_devices_use(dev);
  if (e &&
      (status = harp_dial_open(&p->dial, e, handle, traffic_class < 0 ? ctx->traffic_class : traffic_class)))
    harp_devices_drop(dev, e);
  if (status != HARP_OK) {
    free(p);
    return status;
  }
  p->cookie = net.cookie_next++;
  p->handle = handle;
  p->dev = dev;
  p->next = ctx->pendings;
  ctx->pendings = p;
  memcpy(handle->cookie, &p->cookie, sizeof p->cookie);
  *out = p;
  return HARP_OK;
}

static void end_connect(struct harp_context *ctx, struct harp_handle *handle, struct pending *p) {
  struct pending **at = &ctx->pendings;
  while (*at != p) at = &(*at)->next;
  *at = p->next;
  memset(handle->cookie, 0, sizeof handle->cookie);
}

enum harp_status harp_net_connect(struct harp_context *ctx, int dev, void *handle, int traffic_class,
                                  struct harp_comm **comm) {
  struct harp_handle *h = handle;
  struct harp_link *link = NULL;
  uint64_t cookie;
  enum harp_status status = HARP_OK;
  *comm = NULL;
  if (harp_fork_is_child()) return in_child("connect");
  if (!ctx || !harp_devices_have(dev, "connect")) return HARP_ERR_ARGUMENT;
  memcpy(&cookie, h->cookie, sizeof cookie);
  pthread_mutex_lock(&net.lock);
  struct pending *p = cookie ? find_pending(ctx, handle, cookie) : NULL;
  if (!p) status = begin_connect(ctx, dev, h, traffic_class, &p);
  pthread_mutex_unlock(&net.lock);
  if (status != HARP_OK) return status;
  struct harp_engine *e = p->dial->engine;
  dev = p->dev;

  status = harp_dial_poll(p->dial, &link); /* only this thread polls this connect */
  if (status == HARP_OK && !link) return HARP_OK;
  if (link) *comm = comm_of(dev, link);
  pthread_mutex_lock(&net.lock);
  end_connect(ctx, h, p);
  harp_dial_close(p->dial);
  if (!*comm) harp_devices_drop(dev, e); /* else the comm takes over its use of the engine */
  pthread_mutex_unlock(&net.lock);
  free(p);
  return link && !*comm ? HARP_ERR_SYSTEM : status;
}

void harp_net_close_comm(struct harp_comm *comm) {
  if (!comm || harp_fork_is_child()) return;
  struct harp_engine *e = comm->link->engine;
  harp_link_destroy(comm->link);
  pthread_mutex_lock(&net.lock);
  harp_devices_drop(comm->dev, e);
  pthread_mutex_unlock(&net.lock);
  free(comm);
}

/* ---- memory ---- */

enum harp_status harp_net_register(struct harp_comm *comm, void *data, size_t bytes, void **mr) {
  (void)comm;
  struct registration *r = malloc(sizeof *r);
  *mr = r;
  if (!r) {
    HARP_WARN("no memory for a registration");
    return HARP_ERR_SYSTEM;
  }
  *r = (struct registration){data, bytes};
  return HARP_OK;
}

enum harp_status harp_net_deregister(struct harp_comm *comm, void *mr) {
  struct registration *r = mr;
  if (!r) return HARP_OK;
  if (!harp_fork_is_child()) harp_link_quiesce(comm->link, r->data, r->bytes);
  free(r);
  return HARP_OK;
}

/* ---- data ---- */

/* Returns the link's error, and logs it the first time: the one WARN, just before it is returned. */
static enum harp_status link_error(struct harp_link *link) {
  enum harp_status status = atomic_load_explicit(&link->status, memory_order_acquire); /* (H) */
  if (harp_likely(status == HARP_OK) || link->warned) return status;
  link->warned = true;
  HARP_WARN("%s", link->error);
  return status;
}

/* Runs a pass in NCCL's thread, if this engine works that way and nobody else is at it. A watchdog that fell
 * asleep before does not know of the deadlines that the pass made. */
static void help(struct harp_engine *e, unsigned (*pass)(struct harp_engine *)) {
  if (e->threaded || !harp_engine_try_lock(e)) return;
  unsigned moved = pass(e);
  harp_engine_unlock(e);
  if (moved) harp_runner_wake_mt(e);
}

static enum harp_status submit(struct harp_comm *comm, enum harp_role role, void *data, size_t bytes,
                               struct harp_request **request) {
  struct harp_link *link = comm->link;
  *request = NULL;
  if (harp_unlikely(harp_fork_is_child())) return in_child("send or receive");
  enum harp_status status = link_error(link);
  if (harp_unlikely(status != HARP_OK)) return status;
  if (harp_unlikely(link->role != role)) {
    HARP_WARN("%s on the wrong end of the connection with %s", role == HARP_ROLE_SENDER ? "send" : "receive",
              link->peer);
    return HARP_ERR_INTERNAL;
  }
  if (harp_unlikely(bytes > HARP_NET_MAX_BYTES)) {
    if (role == HARP_ROLE_SENDER) {
      HARP_WARN("a message of %zu bytes to %s is larger than the %d that HARP carries", bytes, link->peer,
                HARP_NET_MAX_BYTES);
      return HARP_ERR_USAGE;
    }
    bytes = HARP_NET_MAX_BYTES; /* a receive may be larger than any message */
  }
  if (!link->requests_free) return HARP_OK;
  struct harp_request *r = &link->requests[__builtin_ctzll(link->requests_free)];
  link->requests_free &= link->requests_free - 1;
  r->data = data;
  r->capacity = (uint32_t)bytes;
  r->bytes = 0;
  atomic_store_explicit(&r->state, HARP_REQUEST_POSTED, memory_order_relaxed);
  bool pushed = harp_spsc_push(&link->submit, r);
  HARP_ASSERT(pushed); /* the ring has a slot for every request */
  harp_engine_ring_mt(link->engine, link->slot);
  *request = r;
  return HARP_OK;
}

enum harp_status harp_net_send(struct harp_comm *comm, void *data, size_t bytes,
                               struct harp_request **request) {
  enum harp_status status = submit(comm, HARP_ROLE_SENDER, data, bytes, request);
  if (!*request) return status;
  help(comm->link->engine, harp_engine_pass_transmit);
  harp_runner_wake_mt(comm->link->engine);
  return status;
}

enum harp_status harp_net_receive(struct harp_comm *comm, void *data, size_t bytes,
                                  struct harp_request **request) {
  enum harp_status status = submit(comm, HARP_ROLE_RECEIVER, data, bytes, request);
  if (*request) harp_runner_wake_mt(comm->link->engine);
  return status;
}

static bool take_done(struct harp_request *r, size_t *bytes) {
  if (atomic_load_explicit(&r->state, memory_order_acquire) != HARP_REQUEST_DONE) return false; /* (F) */
  *bytes = r->bytes;
  atomic_store_explicit(&r->state, HARP_REQUEST_FREE, memory_order_relaxed);
  r->link->requests_free |= 1ull << (r - r->link->requests);
  return true;
}

enum harp_status harp_net_test(struct harp_request *r, bool *done, size_t *bytes) {
  *done = false;
  if (harp_unlikely(harp_fork_is_child())) return in_child("test");
  *done = take_done(r, bytes);
  if (*done) return HARP_OK;
  help(r->link->engine, harp_engine_pass);
  *done = take_done(r, bytes);
  return *done ? HARP_OK : link_error(r->link);
}
