/* SPDX-License-Identifier: Apache-2.0 */
/* A small net plugin over TCP that harp-perf itself is tested with. It exports v4, v8 and v12 and
 * does on request what a broken plugin would do. Correct otherwise, not fast: non-blocking sockets, moved
 * from inside test.
 *
 * Faults, from the environment, each "every or after N messages of a comm", 0 or unset for never:
 *   FAKENET_FLIP=N     flip a bit of each Nth received message
 *   FAKENET_TAIL=N     write a byte just behind each Nth received message
 *   FAKENET_SHORT=N    report each Nth received message a byte shorter
 *   FAKENET_REPEAT=N   deliver message N-1 again in place of each Nth
 *   FAKENET_FAIL=N     fail isend after N messages, with one WARN
 *   FAKENET_DIE=N      end the process in isend after N messages
 *   FAKENET_HANG=N     take no message after N, for ever
 *   FAKENET_BUSY=N     answer each Nth isend and irecv with a NULL request
 *   FAKENET_KEEP_REQUEST=N, FAKENET_KEEP_DONE=N   after N messages leave *request, *done unwritten
 *   FAKENET_INIT=1 init fails; FAKENET_CONNECT=1 connect fails; FAKENET_HANDLE=1 listen writes 65 bytes
 * FAKENET_RANK=R limits the faults to the process whose FAKENET_ME is R (or RANK, where that is unset).
 * FAKENET_IFNAME: listen on this interface's address instead of 127.0.0.1.
 * FAKENET_TRACE=FILE: each life-cycle call appends a line; FAKENET_MESSAGES=1: and each message that is
 * posted or done. */
#include "nccl/abi_v4.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUESTS = 32, HEAD_BYTES = 4, CONTEXT = 0x77 };

struct fake_request {
  struct fake_comm *comm;
  char *data;
  uint32_t bytes;      /* posted */
  uint32_t wire_bytes; /* the bytes of the message; in network order in `head` */
  char head[HEAD_BYTES];
  size_t moved; /* head included */
  bool used;
};

struct fake_comm {
  int fd;
  bool sends;
  struct fake_request requests[REQUESTS];
  uint64_t posted, moved; /* messages; requests[n % REQUESTS] */
  uint64_t offers;
  unsigned registrations;
};

struct fake_handle {
  uint32_t magic;
  int fd_plus_1; /* connect's progress, kept in the caller's buffer */
  struct sockaddr_in address;
};

static harp_nccl_logger logger;
static char previous_byte;

/* ---- faults ---- */

static bool here(void) {
  const char *rank = getenv("FAKENET_RANK"), *me = getenv("FAKENET_ME");
  if (!me) me = getenv("RANK");
  return !rank || (me && !strcmp(rank, me));
}

static uint64_t fault(const char *name) {
  const char *value = getenv(name);
  return value && here() ? strtoull(value, NULL, 10) : 0;
}

static bool every(const char *name, uint64_t count) {
  uint64_t n = fault(name);
  return n && (count + 1) % n == 0;
}

static bool after(const char *name, uint64_t count) {
  uint64_t n = fault(name);
  return n && count >= n;
}

static void trace(const char *call) {
  const char *file = getenv("FAKENET_TRACE");
  if (!file) return;
  FILE *out = fopen(file, "ae");
  if (!out) return;
  fprintf(out, "%d %s\n", (int)getpid(), call);
  fclose(out);
}

static void trace_message(const char *what) {
  if (getenv("FAKENET_MESSAGES")) trace(what);
}

static enum harp_nccl_result fail(enum harp_nccl_result result, const char *text) {
  if (logger) logger(HARP_NCCL_LOG_WARN, HARP_NCCL_LOG_NET, __FILE__, __LINE__, "fakenet: %s", text);
  return result;
}

/* ---- connections ---- */

static enum harp_nccl_result init_any(harp_nccl_logger log) {
  trace("init");
  logger = log;
  logger(HARP_NCCL_LOG_INFO, HARP_NCCL_LOG_INIT, "init", __LINE__, "fakenet: ready");
  return fault("FAKENET_INIT") ? fail(HARP_NCCL_SYSTEM_ERROR, "told to fail in init") : HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result devices(int *ndev) {
  *ndev = 1;
  return HARP_NCCL_SUCCESS;
}

static char device_name[] = "fake0";

static enum harp_nccl_result properties_v4(int dev, struct harp_nccl_properties_v4 *p) {
  (void)dev;
  *p = (struct harp_nccl_properties_v4){
      .name = device_name, .ptrSupport = HARP_NCCL_PTR_HOST, .speed = 1000, .maxComms = 64};
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result properties_v8(int dev, struct harp_nccl_properties_v8 *p) {
  (void)dev;
  *p = (struct harp_nccl_properties_v8){
      .name = device_name, .ptrSupport = HARP_NCCL_PTR_HOST, .speed = 1000, .maxComms = 64, .maxRecvs = 1};
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result properties_v12(int dev, struct harp_nccl_properties_v12 *p) {
  *p = (struct harp_nccl_properties_v12){.name = device_name,
                                         .ptrSupport = HARP_NCCL_PTR_HOST,
                                         .speed = 1000,
                                         .maxComms = 64,
                                         .maxRecvs = 1,
                                         .vProps = {.ndevs = 1, .devs = {dev}},
                                         .maxP2pBytes = HARP_NCCL_P2P_BYTES_V8,
                                         .maxCollBytes = HARP_NCCL_P2P_BYTES_V8,
                                         .maxMultiRequestSize = 1,
                                         .railId = HARP_NCCL_UNDEFINED,
                                         .planeId = HARP_NCCL_UNDEFINED};
  return HARP_NCCL_SUCCESS;
}

/* Replaces the loopback address by the one that FAKENET_IFNAME's interface has. */
static void find_address(struct in_addr *address) {
  const char *name = getenv("FAKENET_IFNAME");
  struct ifaddrs *all;
  if (!name || getifaddrs(&all)) return;
  for (struct ifaddrs *i = all; i; i = i->ifa_next)
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !strcmp(i->ifa_name, name))
      memcpy(address, &((struct sockaddr_in *)i->ifa_addr)->sin_addr, sizeof *address);
  freeifaddrs(all);
}

static enum harp_nccl_result listen_v4(int dev, void *handle, void **listen_comm) {
  (void)dev;
  trace("listen");
  struct fake_handle *h = handle;
  memset(h, 0, sizeof *h);
  h->magic = CONTEXT;
  h->address.sin_family = AF_INET;
  h->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  find_address(&h->address.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), *comm = malloc(sizeof *comm);
  socklen_t bytes = sizeof h->address;
  if (fd < 0 || !comm || bind(fd, (struct sockaddr *)&h->address, bytes) || listen(fd, 1) ||
      getsockname(fd, (struct sockaddr *)&h->address, &bytes))
    return fail(HARP_NCCL_SYSTEM_ERROR, strerror(errno));
  if (fault("FAKENET_HANDLE")) ((char *)handle)[HARP_NCCL_HANDLE_BYTES_V4] = 1;
  *comm = fd;
  *listen_comm = comm;
  return HARP_NCCL_SUCCESS;
}

static struct fake_comm *make_comm(int fd, bool sends) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  struct fake_comm *comm = calloc(1, sizeof *comm);
  if (!comm) abort();
  comm->fd = fd;
  comm->sends = sends;
  return comm;
}

static enum harp_nccl_result connect_v4(int dev, void *handle, void **send_comm) {
  (void)dev;
  struct fake_handle *h = handle;
  *send_comm = NULL;
  if (fault("FAKENET_CONNECT")) return fail(HARP_NCCL_REMOTE_ERROR, "told to fail in connect");
  if (h->magic != CONTEXT) return fail(HARP_NCCL_INVALID_ARGUMENT, "not a handle of mine");
  if (!h->fd_plus_1) h->fd_plus_1 = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) + 1;
  int fd = h->fd_plus_1 - 1;
  if (connect(fd, (struct sockaddr *)&h->address, sizeof h->address) && errno != EISCONN) {
    if (errno == EINPROGRESS || errno == EALREADY) return HARP_NCCL_SUCCESS; /* not yet: call again */
    return fail(HARP_NCCL_SYSTEM_ERROR, strerror(errno));
  }
  trace("connect");
  *send_comm = make_comm(fd, true);
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result accept_v4(void *listen_comm, void **recv_comm) {
  int fd = accept4(*(int *)listen_comm, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  *recv_comm = NULL;
  if (fd < 0) return errno == EAGAIN ? HARP_NCCL_SUCCESS : fail(HARP_NCCL_SYSTEM_ERROR, strerror(errno));
  trace("accept");
  *recv_comm = make_comm(fd, false);
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result connect_v8(int dev, void *handle, void **send_comm,
                                        struct harp_nccl_device_handle_v7 **offload) {
  (void)offload;
  return connect_v4(dev, handle, send_comm);
}

static enum harp_nccl_result accept_v8(void *listen_comm, void **recv_comm,
                                       struct harp_nccl_device_handle_v7 **offload) {
  (void)offload;
  return accept_v4(listen_comm, recv_comm);
}

static enum harp_nccl_result reg_v8(void *comm, void *data, size_t bytes, int type, void **mhandle) {
  trace("regMr");
  if (type != HARP_NCCL_PTR_HOST || !bytes || (uintptr_t)data % 4096)
    return fail(HARP_NCCL_INVALID_ARGUMENT, "regMr: not page-aligned host memory");
  ((struct fake_comm *)comm)->registrations++;
  *mhandle = comm;
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result reg_v4(void *comm, void *data, int bytes, int type, void **mhandle) {
  return reg_v8(comm, data, (size_t)bytes, type, mhandle);
}

static enum harp_nccl_result dereg(void *comm, void *mhandle) {
  trace("deregMr");
  if (comm != mhandle) return fail(HARP_NCCL_INVALID_ARGUMENT, "deregMr: not a registration of mine");
  ((struct fake_comm *)comm)->registrations--;
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result close_comm(void *comm) {
  struct fake_comm *c = comm;
  trace(c->sends ? "closeSend" : "closeRecv");
  if (c->registrations) return fail(HARP_NCCL_INVALID_USAGE, "closed before deregMr");
  shutdown(c->fd, SHUT_WR);
  close(c->fd);
  free(c);
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result close_listen(void *comm) {
  trace("closeListen");
  close(*(int *)comm);
  free(comm);
  return HARP_NCCL_SUCCESS;
}

/* ---- messages ---- */

static enum harp_nccl_result offer(struct fake_comm *comm, void *data, size_t bytes, void *mhandle,
                                   void **request) {
  if (after("FAKENET_KEEP_REQUEST", comm->posted)) return HARP_NCCL_SUCCESS;
  *request = NULL;
  if (mhandle != comm) return fail(HARP_NCCL_INVALID_ARGUMENT, "data not registered");
  if (comm->sends && after("FAKENET_FAIL", comm->posted))
    return fail(HARP_NCCL_REMOTE_ERROR, "told to fail in isend");
  if (comm->sends && after("FAKENET_DIE", comm->posted)) _exit(0);
  if (after("FAKENET_HANG", comm->posted)) return HARP_NCCL_SUCCESS;
  if (every("FAKENET_BUSY", comm->offers++)) return HARP_NCCL_SUCCESS;
  struct fake_request *r = &comm->requests[comm->posted % REQUESTS];
  if (r->used) return fail(HARP_NCCL_INTERNAL_ERROR, "more than 32 requests");
  *r = (struct fake_request){.comm = comm, .data = data, .bytes = (uint32_t)bytes, .used = true};
  if (comm->sends) {
    uint32_t wire = htonl(r->bytes);
    memcpy(r->head, &wire, sizeof wire);
    r->wire_bytes = r->bytes;
  }
  comm->posted++;
  trace_message(comm->sends ? "isend" : "irecv");
  *request = r;
  return HARP_NCCL_SUCCESS;
}

/* Moves what the socket takes or has. Returns whether the request is complete, or -1. */
static int move(struct fake_request *r) {
  for (;;) {
    bool head = r->moved < HEAD_BYTES;
    char *at = head ? r->head + r->moved : r->data + (r->moved - HEAD_BYTES);
    size_t left = head ? HEAD_BYTES - r->moved : HEAD_BYTES + r->wire_bytes - r->moved;
    if (!head && !left) return 1;
    ssize_t n = r->comm->sends ? send(r->comm->fd, at, left, MSG_NOSIGNAL) : recv(r->comm->fd, at, left, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) return -1;
    r->moved += (size_t)n;
    if (r->comm->sends || r->moved != HEAD_BYTES) continue;
    uint32_t wire;
    memcpy(&wire, r->head, sizeof wire);
    r->wire_bytes = ntohl(wire);
    if (r->wire_bytes > r->bytes) return -1;
  }
}

static void spoil(struct fake_request *r, uint64_t number, int *bytes) {
  char first = r->wire_bytes ? r->data[0] : 0;
  if (every("FAKENET_FLIP", number) && r->wire_bytes) r->data[r->wire_bytes * 2 / 3] ^= 0x10;
  if (every("FAKENET_TAIL", number) && r->wire_bytes < r->bytes) r->data[r->wire_bytes] ^= 0x10;
  if (every("FAKENET_REPEAT", number) && r->wire_bytes) r->data[0] = previous_byte;
  if (every("FAKENET_SHORT", number)) --*bytes;
  previous_byte = first;
}

static enum harp_nccl_result test(void *request, int *done, int *sizes) {
  struct fake_request *r = request;
  struct fake_comm *comm = r->comm;
  if (after("FAKENET_KEEP_DONE", comm->moved)) return HARP_NCCL_SUCCESS;
  *done = 0;
  if (!r->used || r != &comm->requests[comm->moved % REQUESTS])
    return fail(HARP_NCCL_INTERNAL_ERROR, "not the oldest request was tested");
  int rc = move(r);
  if (rc < 0) return fail(HARP_NCCL_REMOTE_ERROR, "the peer left");
  if (!rc) return HARP_NCCL_SUCCESS;
  int bytes = (int)r->wire_bytes;
  if (!comm->sends) spoil(r, comm->moved, &bytes);
  if (sizes) sizes[0] = bytes;
  comm->moved++;
  r->used = false;
  *done = 1;
  trace_message(comm->sends ? "sent" : "received");
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result isend_v4(void *comm, void *data, int bytes, void *mhandle, void **request) {
  return offer(comm, data, (size_t)bytes, mhandle, request);
}

static enum harp_nccl_result irecv_v4(void *comm, void *data, int bytes, void *mhandle, void **request) {
  return offer(comm, data, (size_t)bytes, mhandle, request);
}

static enum harp_nccl_result isend_v8(void *comm, void *data, int bytes, int tag, void *mhandle,
                                      void **request) {
  (void)tag;
  return offer(comm, data, (size_t)bytes, mhandle, request);
}

static enum harp_nccl_result irecv_v8(void *comm, int n, void **data, int *bytes, int *tags, void **mhandles,
                                      void **request) {
  (void)tags;
  return n == 1 ? offer(comm, data[0], (size_t)bytes[0], mhandles[0], request) : HARP_NCCL_INVALID_USAGE;
}

static enum harp_nccl_result isend_v12(void *comm, void *data, size_t bytes, int tag, void *mhandle,
                                       void *phandle, void **request) {
  (void)tag, (void)phandle;
  return offer(comm, data, bytes, mhandle, request);
}

static enum harp_nccl_result irecv_v12(void *comm, int n, void **data, size_t *bytes, int *tags,
                                       void **mhandles, void **phandles, void **request) {
  (void)tags, (void)phandles;
  return n == 1 ? offer(comm, data[0], bytes[0], mhandles[0], request) : HARP_NCCL_INVALID_USAGE;
}

/* ---- v12's context ---- */

static int the_context;

static enum harp_nccl_result init_v12(void **ctx, uint64_t comm_id, struct harp_nccl_comm_config_v10 *config,
                                      harp_nccl_logger log, harp_nccl_profiler profiler) {
  (void)comm_id, (void)profiler;
  *ctx = &the_context;
  return config->trafficClass == HARP_NCCL_UNDEFINED ? init_any(log) : HARP_NCCL_INVALID_ARGUMENT;
}

static enum harp_nccl_result listen_v12(void *ctx, int dev, void *handle, void **listen_comm) {
  return ctx == &the_context ? listen_v4(dev, handle, listen_comm) : HARP_NCCL_INTERNAL_ERROR;
}

static enum harp_nccl_result connect_v12(void *ctx, int dev, void *handle, void **send_comm,
                                         struct harp_nccl_device_handle_v7 **offload) {
  (void)offload;
  return ctx == &the_context ? connect_v4(dev, handle, send_comm) : HARP_NCCL_INTERNAL_ERROR;
}

static enum harp_nccl_result finalize(void *ctx) {
  trace("finalize");
  return ctx == &the_context ? HARP_NCCL_SUCCESS : HARP_NCCL_INTERNAL_ERROR;
}

#define EXPORT __attribute__((visibility("default"))) extern
EXPORT const struct harp_nccl_net_v4 ncclNetPlugin_v4;
EXPORT const struct harp_nccl_net_v8 ncclNetPlugin_v8;
EXPORT const struct harp_nccl_net_v12 ncclNetPlugin_v12;

const struct harp_nccl_net_v4 ncclNetPlugin_v4 = {.name = "Fake",
                                                  .init = init_any,
                                                  .devices = devices,
                                                  .getProperties = properties_v4,
                                                  .listen = listen_v4,
                                                  .connect = connect_v4,
                                                  .accept = accept_v4,
                                                  .regMr = reg_v4,
                                                  .deregMr = dereg,
                                                  .isend = isend_v4,
                                                  .irecv = irecv_v4,
                                                  .test = test,
                                                  .closeSend = close_comm,
                                                  .closeRecv = close_comm,
                                                  .closeListen = close_listen};
const struct harp_nccl_net_v8 ncclNetPlugin_v8 = {.name = "Fake",
                                                  .init = init_any,
                                                  .devices = devices,
                                                  .getProperties = properties_v8,
                                                  .listen = listen_v4,
                                                  .connect = connect_v8,
                                                  .accept = accept_v8,
                                                  .regMr = reg_v8,
                                                  .deregMr = dereg,
                                                  .isend = isend_v8,
                                                  .irecv = irecv_v8,
                                                  .test = test,
                                                  .closeSend = close_comm,
                                                  .closeRecv = close_comm,
                                                  .closeListen = close_listen};
const struct harp_nccl_net_v12 ncclNetPlugin_v12 = {.name = "Fake",
                                                    .init = init_v12,
                                                    .devices = devices,
                                                    .getProperties = properties_v12,
                                                    .listen = listen_v12,
                                                    .connect = connect_v12,
                                                    .accept = accept_v8,
                                                    .regMr = reg_v8,
                                                    .deregMr = dereg,
                                                    .isend = isend_v12,
                                                    .irecv = irecv_v12,
                                                    .test = test,
                                                    .closeSend = close_comm,
                                                    .closeRecv = close_comm,
                                                    .closeListen = close_listen,
                                                    .finalize = finalize};
