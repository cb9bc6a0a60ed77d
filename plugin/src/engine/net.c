#include "engine/net.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/assert.h"
#include "base/log.h"
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

enum {
  DEVICES_MAX = HARP_ENGINES_MAX,
  DEVICE_NAME_BYTES = 64,
};

/* What NCCL knows by a number; complete before made_count tells of it, and unchanged from then on but for
 * its use. */
struct device {
  char name[DEVICE_NAME_BYTES];
  struct harp_engine_enis enis;
  unsigned part_count;
  int parts[HARP_NET_PARTS_MAX];
  struct harp_engine *engine;
  unsigned users; /* listens, connects under way and comms */
};

struct registration {
  void *data;
  size_t bytes;
};

/* All of a process. The lock guards contexts, their lists, new devices and the engines' use counts; never
 * taken on the data path. */
static struct {
  pthread_mutex_t lock;
  struct harp_context *contexts;
  struct harp_config config;
  uint64_t cookie_next;
  _Atomic int device_count; /* those that NCCL is told of when it asks */
  _Atomic int made_count;   /* and those that it may know from before the last context went; never fewer */
  struct device devices[DEVICES_MAX];
} net = {.lock = PTHREAD_MUTEX_INITIALIZER, .cookie_next = 1};

static enum harp_status in_child(const char *what) {
  HARP_WARN("%s in a forked child: connections belong to the process that made them", what);
  return HARP_ERR_INTERNAL;
}

/* ---- engines ---- */

/* Starts the device's engine if it doesn't run, and counts a user. The lock is held. */
static struct harp_engine *engine_use(int dev) {
  char error[640]; /* a sentence for each rung */
  if (!net.devices[dev].engine) {
    struct harp_engine *e;
    int err = harp_engine_open(&e, &net.devices[dev].enis, net.config.congestion, error, sizeof error);
    if (!err && (err = harp_runner_start(e, error, sizeof error))) harp_engine_close(e);
    if (err) {
      HARP_WARN("%s", error);
      return NULL;
    }
    net.devices[dev].engine = e;
  }
  net.devices[dev].users++;
  return net.devices[dev].engine;
}

/* Takes one user off; the last one stops the engine, so that an idle process has no thread, file or mapping
 * of ours. */
static void engine_drop(int dev) {
  HARP_ASSERT(net.devices[dev].users);
  if (--net.devices[dev].users) return;
  struct harp_engine *e = net.devices[dev].engine;
  net.devices[dev].engine = NULL;
  harp_runner_stop(e);
  harp_engine_close(e);
}

/* ---- devices ---- */

static void set_counts(int told, int made) {
  atomic_store_explicit(&net.made_count, made, memory_order_release);
  atomic_store_explicit(&net.device_count, told, memory_order_release);
}

/* Adds a device over these ENIs, which NCCL sees from here on. Others of that number or a higher one, which
 * it is not told of any more, are forgotten. */
static int add_device(const struct harp_engine_enis *enis, const int *parts, unsigned part_count) {
  int dev = atomic_load_explicit(&net.device_count, memory_order_relaxed);
  struct device *d = &net.devices[dev];
  size_t length = 0;
  HARP_ASSERT(dev < DEVICES_MAX);
  *d = (struct device){.enis = *enis, .part_count = part_count};
  for (unsigned i = 0; i < part_count; i++) d->parts[i] = parts[i];
  for (unsigned i = 0; i < enis->count && length < sizeof d->name; i++)
    length += (size_t)snprintf(d->name + length, sizeof d->name - length, "%s%s", i ? "+" : "",
                               enis->at[i]->ifname);
  set_counts(dev + 1, dev + 1);
  return dev;
}

/* Offers the configured ENIs: one by one, or in as few devices as can hold them all. */
static void offer_devices(void) {
  unsigned count = net.config.instance_count, most = 1;
  if (net.config.devices == HARP_DEVICES_STRIPED) {
    unsigned devices = (count + HARP_ENGINE_ENIS_MAX - 1) / HARP_ENGINE_ENIS_MAX;
    most = (count + devices - 1) / devices;
  }
  set_counts(0, 0);
  for (unsigned i = 0; i < count; i += most) {
    struct harp_engine_enis enis = {.count = HARP_MIN(most, count - i)};
    for (unsigned k = 0; k < enis.count; k++) enis.at[k] = &net.config.instances[i + k];
    add_device(&enis, NULL, 0);
  }
}

int harp_net_device_count(void) {
  return atomic_load_explicit(&net.device_count, memory_order_acquire);
}

static bool device_exists(int dev, const char *what) {
  int count = atomic_load_explicit(&net.made_count, memory_order_acquire);
  if (dev >= 0 && dev < count) return true;
  HARP_WARN("%s: there is no device %d; HARP has %d", what, dev, count);
  return false;
}

/* Returns the PCI device of these ENIs, NULL where they have none or several: NICs in different places are
 * near to no GPU in particular, and NCCL then puts the device at the CPU. */
static const char *place_of(const struct harp_engine_enis *enis) {
  const char *first = enis->at[0]->pci_path;
  for (unsigned i = 0; i < enis->count; i++)
    if (strcmp(enis->at[i]->pci_path, first) != 0) return NULL;
  return first[0] ? first : NULL;
}

enum harp_status harp_net_device(int dev, struct harp_device *d) {
  if (!device_exists(dev, "properties")) return HARP_ERR_ARGUMENT;
  const struct device *device = &net.devices[dev];
  const struct harp_instance *first = device->enis.at[0];
  uint64_t guid = 0;
  memcpy(&guid, first->mac, sizeof first->mac);
  *d = (struct harp_device){
      .name = device->name,
      .pci_path = place_of(&device->enis),
      .port = 0,
      .latency_us = 0, /* NCCL adds its own constant; ours is not known before a peer is */
      .guid = (guid ? guid : (uint64_t)dev) | (uint64_t)(device->enis.count - 1) << 48,
      .part_count = device->part_count,
  };
  memcpy(d->parts, device->parts, sizeof d->parts);
  for (unsigned i = 0; i < device->enis.count; i++) d->speed_mbps += device->enis.at[i]->speed_mbps;
  return HARP_OK;
}

/* Gathers the ENIs of all parts, each once; false when they are too many for one engine. */
static bool gather_enis(const int *parts, int part_count, struct harp_engine_enis *enis) {
  enis->count = 0;
  for (int i = 0; i < part_count; i++) {
    const struct harp_engine_enis *more = &net.devices[parts[i]].enis;
    for (unsigned k = 0; k < more->count; k++) {
      unsigned at = 0;
      while (at < enis->count && enis->at[at] != more->at[k]) at++;
      if (at < enis->count) continue;
      if (enis->count == HARP_ENGINE_ENIS_MAX) return false;
      enis->at[enis->count++] = more->at[k];
    }
  }
  return true;
}

/* NCCL hangs a merged device below the PCI device that its parts have in common. Where a part is at none it
 * loses the device and fails, while parts that we refuse only stay unmerged. */
static bool parts_have_places(const int *parts, int part_count) {
  for (int i = 0; i < part_count; i++) {
    const struct device *d = &net.devices[parts[i]];
    if (place_of(&d->enis)) continue;
    HARP_INFO("makeVDevice: %s is not merged with others, because it has no place on the PCI bus and NCCL "
              "loses a merged device that has none; `devices = striped` is one over all without NCCL's help",
              d->name);
    return false;
  }
  return true;
}

static bool is_made_of(const struct device *d, const int *parts, int part_count) {
  return d->part_count == (unsigned)part_count &&
         memcmp(d->parts, parts, (size_t)part_count * sizeof parts[0]) == 0;
}

/* Returns the device that was made of these parts before, -1 if there is none. NCCL merges in the same order
 * again, so that one which it is not told of any more gets its number back. */
static int find_merged(const int *parts, int part_count) {
  int told = harp_net_device_count(), made = atomic_load_explicit(&net.made_count, memory_order_relaxed);
  for (int dev = 0; dev < told; dev++)
    if (is_made_of(&net.devices[dev], parts, part_count)) return dev;
  if (told == made) return -1;
  bool again = is_made_of(&net.devices[told], parts, part_count);
  if (again)
    set_counts(told + 1, made);
  else if (net.devices[told].users) /* its number is taken */
    set_counts(made, made);
  return again ? told : -1;
}

enum harp_status harp_net_merge(const int *parts, int part_count, int *dev) {
  struct harp_engine_enis enis;
  if (harp_fork_is_child()) return in_child("makeVDevice");
  if (part_count < 1 || part_count > HARP_NET_PARTS_MAX) {
    HARP_WARN("makeVDevice: a device of %d others; HARP merges 1 to %d", part_count, HARP_NET_PARTS_MAX);
    return HARP_ERR_ARGUMENT;
  }
  for (int i = 0; i < part_count; i++)
    if (!device_exists(parts[i], "makeVDevice")) return HARP_ERR_ARGUMENT;
  if (part_count > 1 && !parts_have_places(parts, part_count)) return HARP_ERR_ARGUMENT;
  pthread_mutex_lock(&net.lock);
  enum harp_status status = HARP_ERR_ARGUMENT;
  *dev = find_merged(parts, part_count);
  if (*dev >= 0)
    status = HARP_OK;
  else if (!gather_enis(parts, part_count, &enis))
    HARP_WARN("makeVDevice: more than the %d interfaces that one device can have", HARP_ENGINE_ENIS_MAX);
  else if (harp_net_device_count() == DEVICES_MAX)
    HARP_WARN("makeVDevice: there are %d devices already, HARP can have no more", DEVICES_MAX);
  else {
    *dev = add_device(&enis, parts, (unsigned)part_count);
    status = HARP_OK;
  }
  pthread_mutex_unlock(&net.lock);
  return status;
}

/* ---- contexts ---- */

/* Whether the configuration has the same interfaces as another, offered in the same way. */
static bool offers_the_same(const struct harp_config *a, const struct harp_config *b) {
  if (a->instance_count != b->instance_count || a->devices != b->devices) return false;
  for (unsigned i = 0; i < a->instance_count; i++)
    if (strcmp(a->instances[i].ifname, b->instances[i].ifname) != 0) return false;
  return true;
}

/* Reads the configuration. NCCL may have unloaded us meanwhile, and then counts devices and merges them anew;
 * or it has kept us, and goes on with the numbers of those that were merged: so those stay, untold. */
static enum harp_status configure(void) {
  static struct harp_config fresh; /* under the lock */
  char error[HARP_CONFIG_ERROR_BYTES];
  int made = atomic_load_explicit(&net.made_count, memory_order_relaxed);
  for (int i = 0; i < made; i++) {
    if (net.devices[i].users) return HARP_OK; /* comms outlived their context: keep what they use */
  }
  int err = harp_config_load(&fresh, error, sizeof error);
  if (err) {
    HARP_WARN("%s", error);
    set_counts(0, 0);
    return HARP_ERR_SYSTEM;
  }
  bool same = offers_the_same(&fresh, &net.config);
  net.config = fresh;
  offer_devices();
  if (same) set_counts(harp_net_device_count(), HARP_MAX(made, harp_net_device_count()));
  return HARP_OK;
}

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
  if (!net.contexts) status = configure();
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
  harp_listener_close(l->listener);
  engine_drop(l->dev);
  free(l);
}

static void pending_free(struct pending *p) {
  harp_dial_close(p->dial);
  engine_drop(p->dev);
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
  if (!ctx || !device_exists(dev, "listen")) return HARP_ERR_ARGUMENT;
  struct harp_listen *l = calloc(1, sizeof *l);
  if (!l) {
    HARP_WARN("no memory for a listener");
    return HARP_ERR_SYSTEM;
  }
  enum harp_status status = HARP_ERR_SYSTEM;
  pthread_mutex_lock(&net.lock);
  struct harp_engine *e = engine_use(dev);
  if (e && (status = harp_listener_open(&l->listener, e, handle))) engine_drop(dev);
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
  net.devices[listen->dev].users++;
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
  struct harp_engine *e = engine_use(dev);
  if (e &&
      (status = harp_dial_open(&p->dial, e, handle, traffic_class < 0 ? ctx->traffic_class : traffic_class)))
    engine_drop(dev);
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
  if (!ctx || !device_exists(dev, "connect")) return HARP_ERR_ARGUMENT;
  memcpy(&cookie, h->cookie, sizeof cookie);
  pthread_mutex_lock(&net.lock);
  struct pending *p = cookie ? find_pending(ctx, handle, cookie) : NULL;
  if (!p) status = begin_connect(ctx, dev, h, traffic_class, &p);
  pthread_mutex_unlock(&net.lock);
  if (status != HARP_OK) return status;

  status = harp_dial_poll(p->dial, &link); /* only this thread polls this connect */
  if (status == HARP_OK && !link) return HARP_OK;
  if (link) *comm = comm_of(dev, link);
  pthread_mutex_lock(&net.lock);
  end_connect(ctx, h, p);
  harp_dial_close(p->dial);
  if (!*comm) engine_drop(dev); /* else the comm takes over its use of the engine */
  pthread_mutex_unlock(&net.lock);
  free(p);
  return link && !*comm ? HARP_ERR_SYSTEM : status;
}

void harp_net_close_comm(struct harp_comm *comm) {
  if (!comm || harp_fork_is_child()) return;
  harp_link_destroy(comm->link);
  pthread_mutex_lock(&net.lock);
  engine_drop(comm->dev);
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
