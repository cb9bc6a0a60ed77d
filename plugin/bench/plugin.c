/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include "fail.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ABI_OLDEST = 4, ABI_NEWEST = 12, WARN_BYTES = 1024, STALE_BYTE = 0xA5 };

/* ---- the logger ---- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_last_warn[WARN_BYTES];
static int log_level_shown;

static void on_log(enum harp_nccl_log_level level, unsigned long flags, const char *where, int line,
                   const char *fmt, ...) HARP_PRINTF(5, 6);

static void on_log(enum harp_nccl_log_level level, unsigned long flags, const char *where, int line,
                   const char *fmt, ...) {
  (void)flags;
  bool shown = (int)level <= log_level_shown;
  if (!shown && level != HARP_NCCL_LOG_WARN) return;
  char text[WARN_BYTES];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  pthread_mutex_lock(&log_lock);
  if (level == HARP_NCCL_LOG_WARN) memcpy(log_last_warn, text, sizeof text);
  if (shown) {
    static const char *const names[] = {"none", "VERSION", "WARN", "INFO", "ABORT", "TRACE", "ATTN"};
    fprintf(stderr, "%s %s:%d %s\n", (size_t)level < HARP_ARRAY_COUNT(names) ? names[level] : "LOG",
            where ? where : "-", line, text);
  }
  pthread_mutex_unlock(&log_lock);
}

static enum harp_nccl_result on_profile(void **event, int type, void *phandle, int64_t plugin_id,
                                        void *data) {
  (void)type, (void)phandle, (void)plugin_id, (void)data;
  if (event) *event = NULL;
  return HARP_NCCL_SUCCESS;
}

static const char *result_name(enum harp_nccl_result result) {
  switch (result) {
  case HARP_NCCL_SUCCESS:
    return "success";
  case HARP_NCCL_UNHANDLED_CUDA_ERROR:
    return "unhandled CUDA error";
  case HARP_NCCL_SYSTEM_ERROR:
    return "system error";
  case HARP_NCCL_INTERNAL_ERROR:
    return "internal error";
  case HARP_NCCL_INVALID_ARGUMENT:
    return "invalid argument";
  case HARP_NCCL_INVALID_USAGE:
    return "invalid usage";
  case HARP_NCCL_REMOTE_ERROR:
    return "remote error";
  case HARP_NCCL_IN_PROGRESS:
    return "in progress";
  case HARP_NCCL_TIMEOUT:
    return "timeout";
  }
  return "unknown result";
}

int harp_plugin_fail(const struct harp_plugin *net, const char *function, enum harp_nccl_result result) {
  pthread_mutex_lock(&log_lock);
  const char *warn = log_last_warn[0] ? log_last_warn : "(the plugin logged no WARN)";
  harp_fail(HARP_EXIT_PLUGIN, "%s v%d: %s failed: %s (%d); last WARN: %s", net->name, net->abi, function,
            result_name(result), (int)result, warn);
  pthread_mutex_unlock(&log_lock);
  return -1;
}

/* ---- one shape for all versions ---- */

#define TABLE(v) ((const struct harp_nccl_net_v##v *)net->table)

/* Returns from the calling function what `call`, a field with its arguments, returns in this table's
 * version. */
#define RETURN_CALL(call)                                                                                    \
  switch (net->abi) {                                                                                        \
  case 4:                                                                                                    \
    return TABLE(4)->call;                                                                                   \
  case 5:                                                                                                    \
    return TABLE(5)->call;                                                                                   \
  case 6:                                                                                                    \
    return TABLE(6)->call;                                                                                   \
  case 7:                                                                                                    \
    return TABLE(7)->call;                                                                                   \
  case 8:                                                                                                    \
    return TABLE(8)->call;                                                                                   \
  case 9:                                                                                                    \
    return TABLE(9)->call;                                                                                   \
  case 10:                                                                                                   \
    return TABLE(10)->call;                                                                                  \
  case 11:                                                                                                   \
    return TABLE(11)->call;                                                                                  \
  default:                                                                                                   \
    return TABLE(12)->call;                                                                                  \
  }

static enum harp_nccl_result send_v4(const struct harp_plugin *net, void *comm, void *data, size_t size,
                                     int tag, void *mhandle, void **request) {
  (void)tag;
  if (size > HARP_NCCL_P2P_BYTES_V8) return HARP_NCCL_INTERNAL_ERROR;
  return TABLE(4)->isend(comm, data, (int)size, mhandle, request);
}

static enum harp_nccl_result recv_v4(const struct harp_plugin *net, void *comm, void *data, size_t size,
                                     int tag, void *mhandle, void **request) {
  (void)tag;
  if (size > HARP_NCCL_P2P_BYTES_V8) return HARP_NCCL_INTERNAL_ERROR;
  return TABLE(4)->irecv(comm, data, (int)size, mhandle, request);
}

#define SEND_INT(v)                                                                                          \
  static enum harp_nccl_result send_v##v(const struct harp_plugin *net, void *comm, void *data, size_t size, \
                                         int tag, void *mhandle, void **request) {                           \
    if (size > HARP_NCCL_P2P_BYTES_V8) return HARP_NCCL_INTERNAL_ERROR;                                      \
    return TABLE(v)->isend(comm, data, (int)size, tag, mhandle, request);                                    \
  }                                                                                                          \
  static enum harp_nccl_result recv_v##v(const struct harp_plugin *net, void *comm, void *data, size_t size, \
                                         int tag, void *mhandle, void **request) {                           \
    int int_size = (int)size;                                                                                \
    if (size > HARP_NCCL_P2P_BYTES_V8) return HARP_NCCL_INTERNAL_ERROR;                                      \
    return TABLE(v)->irecv(comm, 1, &data, &int_size, &tag, &mhandle, request);                              \
  }
SEND_INT(5)
SEND_INT(6)
SEND_INT(7)
SEND_INT(8)

static enum harp_nccl_result send_v9(const struct harp_plugin *net, void *comm, void *data, size_t size,
                                     int tag, void *mhandle, void **request) {
  return TABLE(9)->isend(comm, data, size, tag, mhandle, request);
}

static enum harp_nccl_result recv_v9(const struct harp_plugin *net, void *comm, void *data, size_t size,
                                     int tag, void *mhandle, void **request) {
  return TABLE(9)->irecv(comm, 1, &data, &size, &tag, &mhandle, request);
}

#define SEND_PHANDLE(v)                                                                                      \
  static enum harp_nccl_result send_v##v(const struct harp_plugin *net, void *comm, void *data, size_t size, \
                                         int tag, void *mhandle, void **request) {                           \
    return TABLE(v)->isend(comm, data, size, tag, mhandle, NULL, request);                                   \
  }                                                                                                          \
  static enum harp_nccl_result recv_v##v(const struct harp_plugin *net, void *comm, void *data, size_t size, \
                                         int tag, void *mhandle, void **request) {                           \
    void *phandle = NULL;                                                                                    \
    return TABLE(v)->irecv(comm, 1, &data, &size, &tag, &mhandle, &phandle, request);                        \
  }
SEND_PHANDLE(10)
SEND_PHANDLE(11)
SEND_PHANDLE(12)

#define TAKE_TABLE(v)                                                                                        \
  net->name = TABLE(v)->name;                                                                                \
  net->poll = TABLE(v)->test;                                                                                \
  net->send = send_v##v;                                                                                     \
  net->recv = recv_v##v;                                                                                     \
  break

int harp_plugin_open(struct harp_plugin *net, const char *path, int abi) {
  *net = (struct harp_plugin){.name = path};
  /* A name without a slash would be searched for; harp-perf is given files. */
  char file[4096];
  int n = snprintf(file, sizeof file, "%s%s", strchr(path, '/') ? "" : "./", path);
  if (n < 0 || (size_t)n >= sizeof file) return harp_fail(HARP_EXIT_USAGE, "--plugin: path too long");
  net->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!net->library) return harp_fail(HARP_EXIT_PLUGIN, "cannot load the plugin: %s", dlerror());
  for (int v = abi ? abi : ABI_NEWEST; v >= (abi ? abi : ABI_OLDEST) && !net->table; v--) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", v);
    net->table = dlsym(net->library, symbol);
    net->abi = v;
  }
  if (!net->table && abi)
    return harp_fail(HARP_EXIT_PLUGIN, "%s does not export ncclNetPlugin_v%d", path, abi);
  if (!net->table) return harp_fail(HARP_EXIT_PLUGIN, "%s exports no ncclNetPlugin_v4 to v12", path);
  net->handle_bytes = net->abi == 4 ? HARP_NCCL_HANDLE_BYTES_V4 : HARP_NCCL_HANDLE_BYTES;
  switch (net->abi) {
  case 4:
    TAKE_TABLE(4);
  case 5:
    TAKE_TABLE(5);
  case 6:
    TAKE_TABLE(6);
  case 7:
    TAKE_TABLE(7);
  case 8:
    TAKE_TABLE(8);
  case 9:
    TAKE_TABLE(9);
  case 10:
    TAKE_TABLE(10);
  case 11:
    TAKE_TABLE(11);
  default:
    TAKE_TABLE(12);
  }
  return 0;
}

static enum harp_nccl_result call_init(struct harp_plugin *net, uint64_t comm_id) {
  struct harp_nccl_comm_config_v10 config = {.trafficClass = HARP_NCCL_UNDEFINED};
  switch (net->abi) {
  case 4:
    return TABLE(4)->init(on_log);
  case 5:
    return TABLE(5)->init(on_log);
  case 6:
    return TABLE(6)->init(on_log);
  case 7:
    return TABLE(7)->init(on_log);
  case 8:
    return TABLE(8)->init(on_log);
  case 9:
    return TABLE(9)->init(on_log);
  case 10:
    return TABLE(10)->init(on_log, on_profile);
  case 11:
    return TABLE(11)->init(&net->ctx, comm_id, &config, on_log, on_profile);
  default:
    return TABLE(12)->init(&net->ctx, comm_id, &config, on_log, on_profile);
  }
}

static enum harp_nccl_result call_devices(const struct harp_plugin *net, int *ndev) {
  RETURN_CALL(devices(ndev))
}

/* Passes the plugin the hint about traffic that NCCL passes before it connects, with nothing stated. */
static enum harp_nccl_result call_set_attr(struct harp_plugin *net) {
  struct harp_nccl_attr_v11 attr;
  memset(&attr, 0xff, sizeof attr); /* every field HARP_NCCL_UNDEFINED */
  if (net->abi == 11 && TABLE(11)->setNetAttr) return TABLE(11)->setNetAttr(net->ctx, &attr);
  if (net->abi == 12 && TABLE(12)->setNetAttr) return TABLE(12)->setNetAttr(net->ctx, &attr);
  return HARP_NCCL_SUCCESS;
}

int harp_plugin_init(struct harp_plugin *net, uint64_t comm_id, int log_level) {
  log_level_shown = log_level;
  enum harp_nccl_result result = call_init(net, comm_id);
  if (result) return harp_plugin_fail(net, "init", result);
  net->initialized = true;
  if ((result = call_devices(net, &net->ndev))) return harp_plugin_fail(net, "devices", result);
  if (net->ndev <= 0) return harp_fail(HARP_EXIT_PLUGIN, "%s v%d: no devices", net->name, net->abi);
  if ((result = call_set_attr(net))) return harp_plugin_fail(net, "setNetAttr", result);
  return 0;
}

#define READ_PROPERTIES(v, props_v, bytes_max)                                                               \
  do {                                                                                                       \
    struct harp_nccl_properties_##props_v p;                                                                 \
    memset(&p, STALE_BYTE, sizeof p);                                                                        \
    result = TABLE(v)->getProperties(dev, &p);                                                               \
    *device = (struct harp_plugin_device){.name = p.name,                                                    \
                                          .speed_mbps = p.speed,                                             \
                                          .ptr_support = p.ptrSupport,                                       \
                                          .message_bytes_max = (bytes_max)};                                 \
  } while (0)

int harp_plugin_device_read(struct harp_plugin *net, int dev, struct harp_plugin_device *device) {
  enum harp_nccl_result result;
  if (dev >= net->ndev)
    return harp_fail(HARP_EXIT_USAGE, "--dev %d: %s has %d device%s", dev, net->name, net->ndev,
                     net->ndev == 1 ? "" : "s");
  switch (net->abi) {
  case 4:
    READ_PROPERTIES(4, v4, HARP_NCCL_P2P_BYTES_V8);
    break;
  case 5:
    READ_PROPERTIES(5, v6, HARP_NCCL_P2P_BYTES_V8);
    break;
  case 6:
    READ_PROPERTIES(6, v6, HARP_NCCL_P2P_BYTES_V8);
    break;
  case 7:
    READ_PROPERTIES(7, v7, HARP_NCCL_P2P_BYTES_V8);
    break;
  case 8:
    READ_PROPERTIES(8, v8, HARP_NCCL_P2P_BYTES_V8);
    break;
  case 9:
    READ_PROPERTIES(9, v9, p.maxP2pBytes);
    break;
  case 10:
    READ_PROPERTIES(10, v9, p.maxP2pBytes);
    break;
  case 11:
    READ_PROPERTIES(11, v11, p.maxP2pBytes);
    break;
  default:
    READ_PROPERTIES(12, v12, p.maxP2pBytes);
    break;
  }
  if (result) return harp_plugin_fail(net, "getProperties", result);
  if (!(device->ptr_support & HARP_NCCL_PTR_HOST))
    return harp_fail(HARP_EXIT_PLUGIN, "%s v%d: device %d does not take host memory", net->name, net->abi,
                     dev);
  if (!device->message_bytes_max || device->message_bytes_max > HARP_NCCL_P2P_BYTES_MAX)
    return harp_fail(HARP_EXIT_PLUGIN, "%s v%d: device %d states maxP2pBytes %zu: NCCL takes 1 to 2^40",
                     net->name, net->abi, dev, device->message_bytes_max);
  return 0;
}

void harp_plugin_close(struct harp_plugin *net) {
  enum harp_nccl_result result = HARP_NCCL_SUCCESS;
  if (net->initialized && net->abi == 11) result = TABLE(11)->finalize(net->ctx);
  if (net->initialized && net->abi == 12) result = TABLE(12)->finalize(net->ctx);
  if (result) harp_plugin_fail(net, "finalize", result);
  net->initialized = false;
  if (net->library) dlclose(net->library);
  net->library = NULL;
}

enum harp_nccl_result harp_plugin_listen(struct harp_plugin *net, int dev, void *handle, void **comm) {
  *comm = NULL;
  switch (net->abi) {
  case 4:
    return TABLE(4)->listen(dev, handle, comm);
  case 5:
    return TABLE(5)->listen(dev, handle, comm);
  case 6:
    return TABLE(6)->listen(dev, handle, comm);
  case 7:
    return TABLE(7)->listen(dev, handle, comm);
  case 8:
    return TABLE(8)->listen(dev, handle, comm);
  case 9:
    return TABLE(9)->listen(dev, handle, comm);
  case 10:
    return TABLE(10)->listen(dev, handle, comm);
  case 11:
    return TABLE(11)->listen(net->ctx, dev, handle, comm);
  default:
    return TABLE(12)->listen(net->ctx, dev, handle, comm);
  }
}

enum harp_nccl_result harp_plugin_connect(struct harp_plugin *net, int dev, void *handle, void **comm) {
  struct harp_nccl_comm_config_v10 config = {.trafficClass = HARP_NCCL_UNDEFINED};
  struct harp_nccl_device_handle_v7 *offload = NULL;
  *comm = NULL;
  switch (net->abi) {
  case 4:
    return TABLE(4)->connect(dev, handle, comm);
  case 5:
    return TABLE(5)->connect(dev, handle, comm);
  case 6:
    return TABLE(6)->connect(dev, handle, comm);
  case 7:
    return TABLE(7)->connect(dev, handle, comm, &offload);
  case 8:
    return TABLE(8)->connect(dev, handle, comm, &offload);
  case 9:
    return TABLE(9)->connect(dev, handle, comm, &offload);
  case 10:
    return TABLE(10)->connect(dev, &config, handle, comm, &offload);
  case 11:
    return TABLE(11)->connect(net->ctx, dev, handle, comm, &offload);
  default:
    return TABLE(12)->connect(net->ctx, dev, handle, comm, &offload);
  }
}

enum harp_nccl_result harp_plugin_accept(struct harp_plugin *net, void *listen_comm, void **comm) {
  struct harp_nccl_device_handle_v7 *offload = NULL;
  *comm = NULL;
  switch (net->abi) {
  case 4:
    return TABLE(4)->accept(listen_comm, comm);
  case 5:
    return TABLE(5)->accept(listen_comm, comm);
  case 6:
    return TABLE(6)->accept(listen_comm, comm);
  case 7:
    return TABLE(7)->accept(listen_comm, comm, &offload);
  case 8:
    return TABLE(8)->accept(listen_comm, comm, &offload);
  case 9:
    return TABLE(9)->accept(listen_comm, comm, &offload);
  case 10:
    return TABLE(10)->accept(listen_comm, comm, &offload);
  case 11:
    return TABLE(11)->accept(listen_comm, comm, &offload);
  default:
    return TABLE(12)->accept(listen_comm, comm, &offload);
  }
}

enum harp_nccl_result harp_plugin_reg(struct harp_plugin *net, void *comm, void *data, size_t bytes,
                                      void **mhandle) {
  int type = HARP_NCCL_PTR_HOST;
  *mhandle = NULL;
  if (net->abi < 8 && bytes > INT_MAX) return HARP_NCCL_INTERNAL_ERROR;
  switch (net->abi) {
  case 4:
    return TABLE(4)->regMr(comm, data, (int)bytes, type, mhandle);
  case 5:
    return TABLE(5)->regMr(comm, data, (int)bytes, type, mhandle);
  case 6:
    return TABLE(6)->regMr(comm, data, (int)bytes, type, mhandle);
  case 7:
    return TABLE(7)->regMr(comm, data, (int)bytes, type, mhandle);
  case 8:
    return TABLE(8)->regMr(comm, data, bytes, type, mhandle);
  case 9:
    return TABLE(9)->regMr(comm, data, bytes, type, mhandle);
  case 10:
    return TABLE(10)->regMr(comm, data, bytes, type, mhandle);
  case 11:
    return TABLE(11)->regMr(comm, data, bytes, type, mhandle);
  default:
    return TABLE(12)->regMr(comm, data, bytes, type, mhandle);
  }
}

enum harp_nccl_result harp_plugin_dereg(struct harp_plugin *net, void *comm, void *mhandle) {
  RETURN_CALL(deregMr(comm, mhandle))
}
enum harp_nccl_result harp_plugin_close_send(struct harp_plugin *net, void *comm) {
  RETURN_CALL(closeSend(comm))
}
enum harp_nccl_result harp_plugin_close_recv(struct harp_plugin *net, void *comm) {
  RETURN_CALL(closeRecv(comm))
}
enum harp_nccl_result harp_plugin_close_listen(struct harp_plugin *net, void *comm) {
  RETURN_CALL(closeListen(comm))
}
