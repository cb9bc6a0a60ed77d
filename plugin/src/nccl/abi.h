/* SPDX-License-Identifier: Apache-2.0 */
/* The binary interface between NCCL and a net plugin, versions 4 to 12: operations tables, properties,
 * constants.
 *
 * Owns no code and no state, only layouts. Included by the adapters of nccl/, which fill one table per
 * version, and by bench/, which calls the tables of any plugin as NCCL's proxy does. Must not include any
 * other layer but base/.
 *
 * A table is a data object with the exported name ncclNetPlugin_vN. NCCL takes the newest it knows. Nothing
 * here may be reordered or resized: the static asserts below each struct pin every offset that NCCL's own
 * builds use (LP64).
 *
 * A struct that did not change from one version to the next has one definition, named after the oldest of
 * them. abi_v4.h has what only versions 4 and 5 have. */
#ifndef HARP_NCCL_ABI_H
#define HARP_NCCL_ABI_H

#include "base/base.h"

/* ---- constants ---- */

/* Every function of a table returns one of these. NCCL knows REMOTE_ERROR since 2.13, TIMEOUT since 2.32. A
 * plugin must not return IN_PROGRESS. */
enum harp_nccl_result {
  HARP_NCCL_SUCCESS = 0,
  HARP_NCCL_UNHANDLED_CUDA_ERROR = 1,
  HARP_NCCL_SYSTEM_ERROR = 2,
  HARP_NCCL_INTERNAL_ERROR = 3,
  HARP_NCCL_INVALID_ARGUMENT = 4,
  HARP_NCCL_INVALID_USAGE = 5,
  HARP_NCCL_REMOTE_ERROR = 6,
  HARP_NCCL_IN_PROGRESS = 7,
  HARP_NCCL_TIMEOUT = 8,
};

enum {
  /* A listen handle has 64 bytes up to NCCL 2.11, which loads v4 at most, and 128 since 2.12. */
  HARP_NCCL_HANDLE_BYTES_V4 = 64,
  HARP_NCCL_HANDLE_BYTES = 128,

  /* NCCL keeps 8 requests for each comm and receive of a group up to 2.18 (v4 to v6), and 32 since 2.19. */
  HARP_NCCL_REQUESTS_MAX_V6 = 8,
  HARP_NCCL_REQUESTS_MAX = 32,

  /* *request holds this before irecv (v9, 2.24) where the GPU finds the data by itself. */
  HARP_NCCL_RECV_COMPLETION_IS_OPTIONAL = 1,

  /* A virtual device has 4 physical devices at most in v9 to v11, and 8 in v12. */
  HARP_NCCL_VDEVICES_MAX_V9 = 4,
  HARP_NCCL_VDEVICES_MAX = 8,

  HARP_NCCL_DEVICES_MAX = 128, /* NCCL supports no more net devices. */
  HARP_NCCL_STEPS = 8,         /* A connection's buffer has 8 slots, so NCCL keeps 8 messages in flight. */
};

/* A kind of memory is a bit of `ptrSupport`, and the `type` of regMr. */
enum harp_nccl_ptr { HARP_NCCL_PTR_HOST = 1, HARP_NCCL_PTR_CUDA = 2, HARP_NCCL_PTR_DMABUF = 4 };

/* The largest message that NCCL sends through a plugin of v8 or older, and the largest maxP2pBytes that a
 * plugin of v9 or newer may have: NCCL refuses to connect with 0 or more than that. */
#define HARP_NCCL_P2P_BYTES_V8  ((size_t)1 << 30)
#define HARP_NCCL_P2P_BYTES_MAX ((size_t)1 << 40)

/* `*request` may hold one of these before irecv since v9. The first is a hint that `done` may be reported
 * early, because the GPU itself polls the arriving lines; a plugin may ignore it. Only CollNet uses the
 * second. */
#define HARP_NCCL_OPTIONAL_RECV_COMPLETION ((void *)0x1)
#define HARP_NCCL_MULTI_REQUEST            ((void *)0x2)

#define HARP_NCCL_UNDEFINED (-1) /* The traffic class, rail, plane or attribute is not set. */

enum harp_nccl_device_type {
  HARP_NCCL_DEVICE_HOST = 0, /* The proxy thread moves the data. HARP implements no other. */
  HARP_NCCL_DEVICE_UNPACK = 1,
  HARP_NCCL_DEVICE_GIN_PROXY = 2,
  HARP_NCCL_DEVICE_GIN_GDAKI = 3,
  HARP_NCCL_DEVICE_GIN_GPI = 4,
  HARP_NCCL_DEVICE_GIN_EFA_GDA = 5,
};
enum { HARP_NCCL_DEVICE_VERSION_INVALID = 0, HARP_NCCL_DEVICE_VERSION_UNPACK = 7 };

/* ---- callbacks that NCCL passes to init ---- */

enum harp_nccl_log_level {
  HARP_NCCL_LOG_NONE = 0,
  HARP_NCCL_LOG_VERSION = 1,
  HARP_NCCL_LOG_WARN =
      2, /* NCCL also keeps the text as the process's last error, whether it is printed or not. */
  HARP_NCCL_LOG_INFO = 3,
  HARP_NCCL_LOG_ABORT = 4,
  HARP_NCCL_LOG_TRACE = 5,
  HARP_NCCL_LOG_ATTN = 6,
};

/* A bit of a log line's `flags` names the part of NCCL that logs. A net plugin uses INIT and NET. */
#define HARP_NCCL_LOG_INIT       0x1UL
#define HARP_NCCL_LOG_COLL       0x2UL
#define HARP_NCCL_LOG_P2P        0x4UL
#define HARP_NCCL_LOG_SHM        0x8UL
#define HARP_NCCL_LOG_NET        0x10UL
#define HARP_NCCL_LOG_GRAPH      0x20UL
#define HARP_NCCL_LOG_TUNING     0x40UL
#define HARP_NCCL_LOG_ENV        0x80UL
#define HARP_NCCL_LOG_ALLOC      0x100UL
#define HARP_NCCL_LOG_CALL       0x200UL
#define HARP_NCCL_LOG_PROXY      0x400UL
#define HARP_NCCL_LOG_NVLS       0x800UL
#define HARP_NCCL_LOG_BOOTSTRAP  0x1000UL
#define HARP_NCCL_LOG_REG        0x2000UL
#define HARP_NCCL_LOG_PROFILE    0x4000UL
#define HARP_NCCL_LOG_RAS        0x8000UL
#define HARP_NCCL_LOG_DESTROY    0x10000UL
#define HARP_NCCL_LOG_ALLOC_HOST 0x20000UL
#define HARP_NCCL_LOG_ALL        (~0UL)

/* Writes one line, from any thread, under a process-wide mutex: the data path must not call it. `where` is a
 * file for a WARN, a function for a TRACE, else unused. */
typedef void (*harp_nccl_logger)(enum harp_nccl_log_level level, unsigned long flags, const char *where,
                                 int line, const char *fmt, ...) HARP_PRINTF(5, 6);

/* The `type` of a profiler call. */
enum harp_nccl_profiler_type {
  HARP_NCCL_PROFILER_START = 0,
  HARP_NCCL_PROFILER_STOP = 1,
  HARP_NCCL_PROFILER_UPDATE = 2,
  HARP_NCCL_PROFILER_UPDATE_STOP = 3,
};

/* The `plugin_id` of events in the format of NCCL's own Socket: type in the upper, version in the lower 16
 * bits. */
#define HARP_NCCL_PROFILER_SOCKET ((int64_t)2 << 16 | 1)

/* The `data` at the start of such an event. */
struct harp_nccl_profiler_socket {
  uint8_t type; /* 1 is a transfer. */
  union {
    struct {
      int fd;
      int op; /* 0 is a send, 1 a receive. */
      size_t length;
    } sock;
  };
};

/* Records an event under the message's `phandle` (v10 on). The pointer may be NULL; its use is optional. */
typedef enum harp_nccl_result (*harp_nccl_profiler)(void **event, int type, void *phandle, int64_t plugin_id,
                                                    void *data);

/* ---- structs beside the properties ---- */

struct harp_nccl_vdevice_props_v9 {
  int ndevs;
  int devs[HARP_NCCL_VDEVICES_MAX_V9];
};
struct harp_nccl_vdevice_props_v12 {
  int ndevs;
  int devs[HARP_NCCL_VDEVICES_MAX];
};

struct harp_nccl_comm_config_v10 {
  int trafficClass; /* HARP_NCCL_UNDEFINED: it is not set. */
};

struct harp_nccl_comm_attr_v11 {
  int32_t maxConcurrentPeers;
  int32_t minConcurrentPeers;
  int32_t maxFlowsPerPeer;
  int32_t minFlowsPerPeer;
};
struct harp_nccl_attr_v11 {
  struct harp_nccl_comm_attr_v11 sendCommAttr;
  struct harp_nccl_comm_attr_v11 recvCommAttr;
  uint32_t op; /* This and the next two are bit masks. */
  uint32_t algo;
  uint32_t proto;
};

/* connect and accept of a plugin with device offload return this for the GPU. A HOST plugin does not write
 * the pointer to it, which may be NULL. */
struct harp_nccl_device_handle_v7 {
  enum harp_nccl_device_type netDeviceType;
  int netDeviceVersion;
  void *handle;
  size_t size;
  int needsProxyProgress;
};

#define HARP_NCCL_AT(tag, field, offset)                                                                     \
  _Static_assert(offsetof(struct harp_nccl_##tag, field) == (offset), #tag "." #field " moved")
#define HARP_NCCL_SIZE(tag, bytes)                                                                           \
  _Static_assert(sizeof(struct harp_nccl_##tag) == (bytes), #tag " changed size")

_Static_assert(sizeof(enum harp_nccl_result) == 4 && sizeof(enum harp_nccl_device_type) == 4,
               "enums are ints");
HARP_NCCL_SIZE(vdevice_props_v9, 20);
HARP_NCCL_SIZE(vdevice_props_v12, 36);
HARP_NCCL_AT(vdevice_props_v9, devs, 4);
HARP_NCCL_AT(vdevice_props_v12, devs, 4);
HARP_NCCL_SIZE(comm_config_v10, 4);
HARP_NCCL_SIZE(comm_attr_v11, 16);
HARP_NCCL_SIZE(attr_v11, 44);
HARP_NCCL_AT(attr_v11, recvCommAttr, 16);
HARP_NCCL_AT(attr_v11, op, 32);
HARP_NCCL_AT(attr_v11, algo, 36);
HARP_NCCL_AT(attr_v11, proto, 40);
HARP_NCCL_AT(device_handle_v7, netDeviceType, 0);
HARP_NCCL_AT(device_handle_v7, netDeviceVersion, 4);
HARP_NCCL_AT(device_handle_v7, handle, 8);
HARP_NCCL_AT(device_handle_v7, size, 16);
HARP_NCCL_AT(device_handle_v7, needsProxyProgress, 24);

/* ---- properties of a device ----
 * getProperties gets uninitialised memory of the caller, and sets every field. */

struct harp_nccl_properties_v6 {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
};
HARP_NCCL_AT(properties_v6, name, 0);
HARP_NCCL_AT(properties_v6, pciPath, 8);
HARP_NCCL_AT(properties_v6, guid, 16);
HARP_NCCL_AT(properties_v6, ptrSupport, 24);
HARP_NCCL_AT(properties_v6, speed, 28);
HARP_NCCL_AT(properties_v6, port, 32);
HARP_NCCL_AT(properties_v6, latency, 36);
HARP_NCCL_AT(properties_v6, maxComms, 40);
HARP_NCCL_AT(properties_v6, maxRecvs, 44);
HARP_NCCL_SIZE(properties_v6, 48);

struct harp_nccl_properties_v7 {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  enum harp_nccl_device_type netDeviceType;
  int netDeviceVersion;
};
HARP_NCCL_AT(properties_v7, name, 0);
HARP_NCCL_AT(properties_v7, pciPath, 8);
HARP_NCCL_AT(properties_v7, guid, 16);
HARP_NCCL_AT(properties_v7, ptrSupport, 24);
HARP_NCCL_AT(properties_v7, speed, 28);
HARP_NCCL_AT(properties_v7, port, 32);
HARP_NCCL_AT(properties_v7, latency, 36);
HARP_NCCL_AT(properties_v7, maxComms, 40);
HARP_NCCL_AT(properties_v7, maxRecvs, 44);
HARP_NCCL_AT(properties_v7, netDeviceType, 48);
HARP_NCCL_AT(properties_v7, netDeviceVersion, 52);
HARP_NCCL_SIZE(properties_v7, 56);

struct harp_nccl_properties_v8 {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  enum harp_nccl_device_type netDeviceType;
  int netDeviceVersion;
};
HARP_NCCL_AT(properties_v8, name, 0);
HARP_NCCL_AT(properties_v8, pciPath, 8);
HARP_NCCL_AT(properties_v8, guid, 16);
HARP_NCCL_AT(properties_v8, ptrSupport, 24);
HARP_NCCL_AT(properties_v8, regIsGlobal, 28);
HARP_NCCL_AT(properties_v8, speed, 32);
HARP_NCCL_AT(properties_v8, port, 36);
HARP_NCCL_AT(properties_v8, latency, 40);
HARP_NCCL_AT(properties_v8, maxComms, 44);
HARP_NCCL_AT(properties_v8, maxRecvs, 48);
HARP_NCCL_AT(properties_v8, netDeviceType, 52);
HARP_NCCL_AT(properties_v8, netDeviceVersion, 56);
HARP_NCCL_SIZE(properties_v8, 64);

struct harp_nccl_properties_v9 {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  enum harp_nccl_device_type netDeviceType;
  int netDeviceVersion;
  struct harp_nccl_vdevice_props_v9 vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
};
HARP_NCCL_AT(properties_v9, name, 0);
HARP_NCCL_AT(properties_v9, pciPath, 8);
HARP_NCCL_AT(properties_v9, guid, 16);
HARP_NCCL_AT(properties_v9, ptrSupport, 24);
HARP_NCCL_AT(properties_v9, regIsGlobal, 28);
HARP_NCCL_AT(properties_v9, forceFlush, 32);
HARP_NCCL_AT(properties_v9, speed, 36);
HARP_NCCL_AT(properties_v9, port, 40);
HARP_NCCL_AT(properties_v9, latency, 44);
HARP_NCCL_AT(properties_v9, maxComms, 48);
HARP_NCCL_AT(properties_v9, maxRecvs, 52);
HARP_NCCL_AT(properties_v9, netDeviceType, 56);
HARP_NCCL_AT(properties_v9, netDeviceVersion, 60);
HARP_NCCL_AT(properties_v9, vProps, 64);
HARP_NCCL_AT(properties_v9, maxP2pBytes, 88);
HARP_NCCL_AT(properties_v9, maxCollBytes, 96);
HARP_NCCL_SIZE(properties_v9, 104);

struct harp_nccl_properties_v11 {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  enum harp_nccl_device_type netDeviceType;
  int netDeviceVersion;
  struct harp_nccl_vdevice_props_v9 vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
};
HARP_NCCL_AT(properties_v11, name, 0);
HARP_NCCL_AT(properties_v11, pciPath, 8);
HARP_NCCL_AT(properties_v11, guid, 16);
HARP_NCCL_AT(properties_v11, ptrSupport, 24);
HARP_NCCL_AT(properties_v11, regIsGlobal, 28);
HARP_NCCL_AT(properties_v11, forceFlush, 32);
HARP_NCCL_AT(properties_v11, speed, 36);
HARP_NCCL_AT(properties_v11, port, 40);
HARP_NCCL_AT(properties_v11, latency, 44);
HARP_NCCL_AT(properties_v11, maxComms, 48);
HARP_NCCL_AT(properties_v11, maxRecvs, 52);
HARP_NCCL_AT(properties_v11, netDeviceType, 56);
HARP_NCCL_AT(properties_v11, netDeviceVersion, 60);
HARP_NCCL_AT(properties_v11, vProps, 64);
HARP_NCCL_AT(properties_v11, maxP2pBytes, 88);
HARP_NCCL_AT(properties_v11, maxCollBytes, 96);
HARP_NCCL_AT(properties_v11, maxMultiRequestSize, 104);
HARP_NCCL_SIZE(properties_v11, 112);

struct harp_nccl_properties_v12 {
  char *name;      /* This and the next stay valid until the plugin is unloaded. */
  char *pciPath;   /* A real path in sysfs that ends in a PCI address, or NULL. */
  uint64_t guid;   /* Devices of one guid and port share a physical port. */
  int ptrSupport;  /* Bits of enum harp_nccl_ptr. */
  int regIsGlobal; /* A registration serves every comm. */
  int forceFlush;  /* NCCL flushes received GPU memory even where it would not otherwise. */
  int speed;       /* The unit is Mbit/s. */
  int port;
  float latency; /* The unit is µs. */
  int maxComms;
  int maxRecvs; /* A group has no more receives; 1 means no groups. */
  enum harp_nccl_device_type netDeviceType;
  int netDeviceVersion;
  struct harp_nccl_vdevice_props_v12
      vProps;         /* The physical devices in this one: itself where it is not virtual. */
  size_t maxP2pBytes; /* One message has no more bytes. */
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId; /* This and the next are HARP_NCCL_UNDEFINED where unknown. */
  int16_t planeId;
};
HARP_NCCL_AT(properties_v12, name, 0);
HARP_NCCL_AT(properties_v12, pciPath, 8);
HARP_NCCL_AT(properties_v12, guid, 16);
HARP_NCCL_AT(properties_v12, ptrSupport, 24);
HARP_NCCL_AT(properties_v12, regIsGlobal, 28);
HARP_NCCL_AT(properties_v12, forceFlush, 32);
HARP_NCCL_AT(properties_v12, speed, 36);
HARP_NCCL_AT(properties_v12, port, 40);
HARP_NCCL_AT(properties_v12, latency, 44);
HARP_NCCL_AT(properties_v12, maxComms, 48);
HARP_NCCL_AT(properties_v12, maxRecvs, 52);
HARP_NCCL_AT(properties_v12, netDeviceType, 56);
HARP_NCCL_AT(properties_v12, netDeviceVersion, 60);
HARP_NCCL_AT(properties_v12, vProps, 64);
HARP_NCCL_AT(properties_v12, maxP2pBytes, 104);
HARP_NCCL_AT(properties_v12, maxCollBytes, 112);
HARP_NCCL_AT(properties_v12, maxMultiRequestSize, 120);
HARP_NCCL_AT(properties_v12, railId, 124);
HARP_NCCL_AT(properties_v12, planeId, 126);
HARP_NCCL_SIZE(properties_v12, 128);

/* ---- operations tables ----
 * Rules of all versions:
 *  - connect and accept return SUCCESS with a NULL comm for "not yet, call again" (v4 may block instead), and
 *    get the same handle buffer at each call;
 *  - isend, irecv and iflush always write `*request`, which has a stale value on entry; NULL means not now;
 *  - test always writes `*done`, and, on done of a receive, `sizes[0..n-1]` where sizes isn't NULL;
 *  - a request is invalid once reported done; messages match in FIFO order per comm;
 *  - a receive may be larger than its message;
 *  - NCCL calls deregMr, frees the buffer, then closes the comm: no access to a buffer after deregMr.
 *
 * regMrDmaBuf, getDeviceMr, irecvConsumed, makeVDevice and setNetAttr may be NULL, `finalize` may not. */

/* NCCL 2.13.4 added regMrDmaBuf. */
struct harp_nccl_net_v6 {
  const char *name;
  enum harp_nccl_result (*init)(harp_nccl_logger log);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v6 *props);
  enum harp_nccl_result (*listen)(int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(int dev, void *handle, void **sendComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
  enum harp_nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                                       void **mhandle);
  enum harp_nccl_result (*deregMr)(void *comm, void *mhandle);
  enum harp_nccl_result (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle,
                                 void **request);
  enum harp_nccl_result (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
                                 void **request);
  enum harp_nccl_result (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                                  void **request);
  enum harp_nccl_result (*test)(void *request, int *done, int *sizes);
  enum harp_nccl_result (*closeSend)(void *sendComm);
  enum harp_nccl_result (*closeRecv)(void *recvComm);
  enum harp_nccl_result (*closeListen)(void *listenComm);
};
HARP_NCCL_AT(net_v6, name, 0);
HARP_NCCL_AT(net_v6, init, 8);
HARP_NCCL_AT(net_v6, devices, 16);
HARP_NCCL_AT(net_v6, getProperties, 24);
HARP_NCCL_AT(net_v6, listen, 32);
HARP_NCCL_AT(net_v6, connect, 40);
HARP_NCCL_AT(net_v6, accept, 48);
HARP_NCCL_AT(net_v6, regMr, 56);
HARP_NCCL_AT(net_v6, regMrDmaBuf, 64);
HARP_NCCL_AT(net_v6, deregMr, 72);
HARP_NCCL_AT(net_v6, isend, 80);
HARP_NCCL_AT(net_v6, irecv, 88);
HARP_NCCL_AT(net_v6, iflush, 96);
HARP_NCCL_AT(net_v6, test, 104);
HARP_NCCL_AT(net_v6, closeSend, 112);
HARP_NCCL_AT(net_v6, closeRecv, 120);
HARP_NCCL_AT(net_v6, closeListen, 128);
HARP_NCCL_SIZE(net_v6, 136);

/* NCCL 2.19.1 added device offload to connect and accept. */
struct harp_nccl_net_v7 {
  const char *name;
  enum harp_nccl_result (*init)(harp_nccl_logger log);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v7 *props);
  enum harp_nccl_result (*listen)(int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(int dev, void *handle, void **sendComm,
                                   struct harp_nccl_device_handle_v7 **sendDevComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm,
                                  struct harp_nccl_device_handle_v7 **recvDevComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
  enum harp_nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                                       void **mhandle);
  enum harp_nccl_result (*deregMr)(void *comm, void *mhandle);
  enum harp_nccl_result (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle,
                                 void **request);
  enum harp_nccl_result (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
                                 void **request);
  enum harp_nccl_result (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                                  void **request);
  enum harp_nccl_result (*test)(void *request, int *done, int *sizes);
  enum harp_nccl_result (*closeSend)(void *sendComm);
  enum harp_nccl_result (*closeRecv)(void *recvComm);
  enum harp_nccl_result (*closeListen)(void *listenComm);
  enum harp_nccl_result (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
  enum harp_nccl_result (*irecvConsumed)(void *recvComm, int n, void *request);
};
HARP_NCCL_AT(net_v7, name, 0);
HARP_NCCL_AT(net_v7, init, 8);
HARP_NCCL_AT(net_v7, devices, 16);
HARP_NCCL_AT(net_v7, getProperties, 24);
HARP_NCCL_AT(net_v7, listen, 32);
HARP_NCCL_AT(net_v7, connect, 40);
HARP_NCCL_AT(net_v7, accept, 48);
HARP_NCCL_AT(net_v7, regMr, 56);
HARP_NCCL_AT(net_v7, regMrDmaBuf, 64);
HARP_NCCL_AT(net_v7, deregMr, 72);
HARP_NCCL_AT(net_v7, isend, 80);
HARP_NCCL_AT(net_v7, irecv, 88);
HARP_NCCL_AT(net_v7, iflush, 96);
HARP_NCCL_AT(net_v7, test, 104);
HARP_NCCL_AT(net_v7, closeSend, 112);
HARP_NCCL_AT(net_v7, closeRecv, 120);
HARP_NCCL_AT(net_v7, closeListen, 128);
HARP_NCCL_AT(net_v7, getDeviceMr, 136);
HARP_NCCL_AT(net_v7, irecvConsumed, 144);
HARP_NCCL_SIZE(net_v7, 152);

/* NCCL 2.20.3 made the size of regMr a size_t. */
struct harp_nccl_net_v8 {
  const char *name;
  enum harp_nccl_result (*init)(harp_nccl_logger log);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v8 *props);
  enum harp_nccl_result (*listen)(int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(int dev, void *handle, void **sendComm,
                                   struct harp_nccl_device_handle_v7 **sendDevComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm,
                                  struct harp_nccl_device_handle_v7 **recvDevComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  enum harp_nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                                       void **mhandle);
  enum harp_nccl_result (*deregMr)(void *comm, void *mhandle);
  enum harp_nccl_result (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle,
                                 void **request);
  enum harp_nccl_result (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
                                 void **request);
  enum harp_nccl_result (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                                  void **request);
  enum harp_nccl_result (*test)(void *request, int *done, int *sizes);
  enum harp_nccl_result (*closeSend)(void *sendComm);
  enum harp_nccl_result (*closeRecv)(void *recvComm);
  enum harp_nccl_result (*closeListen)(void *listenComm);
  enum harp_nccl_result (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
  enum harp_nccl_result (*irecvConsumed)(void *recvComm, int n, void *request);
};
HARP_NCCL_AT(net_v8, name, 0);
HARP_NCCL_AT(net_v8, init, 8);
HARP_NCCL_AT(net_v8, devices, 16);
HARP_NCCL_AT(net_v8, getProperties, 24);
HARP_NCCL_AT(net_v8, listen, 32);
HARP_NCCL_AT(net_v8, connect, 40);
HARP_NCCL_AT(net_v8, accept, 48);
HARP_NCCL_AT(net_v8, regMr, 56);
HARP_NCCL_AT(net_v8, regMrDmaBuf, 64);
HARP_NCCL_AT(net_v8, deregMr, 72);
HARP_NCCL_AT(net_v8, isend, 80);
HARP_NCCL_AT(net_v8, irecv, 88);
HARP_NCCL_AT(net_v8, iflush, 96);
HARP_NCCL_AT(net_v8, test, 104);
HARP_NCCL_AT(net_v8, closeSend, 112);
HARP_NCCL_AT(net_v8, closeRecv, 120);
HARP_NCCL_AT(net_v8, closeListen, 128);
HARP_NCCL_AT(net_v8, getDeviceMr, 136);
HARP_NCCL_AT(net_v8, irecvConsumed, 144);
HARP_NCCL_SIZE(net_v8, 152);

/* NCCL 2.24.3 added messages of size_t, virtual devices, and limits to the properties. */
struct harp_nccl_net_v9 {
  const char *name;
  enum harp_nccl_result (*init)(harp_nccl_logger log);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v9 *props);
  enum harp_nccl_result (*listen)(int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(int dev, void *handle, void **sendComm,
                                   struct harp_nccl_device_handle_v7 **sendDevComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm,
                                  struct harp_nccl_device_handle_v7 **recvDevComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  enum harp_nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                                       void **mhandle);
  enum harp_nccl_result (*deregMr)(void *comm, void *mhandle);
  enum harp_nccl_result (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                                 void **request);
  enum harp_nccl_result (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                                 void **mhandles, void **request);
  enum harp_nccl_result (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                                  void **request);
  enum harp_nccl_result (*test)(void *request, int *done, int *sizes);
  enum harp_nccl_result (*closeSend)(void *sendComm);
  enum harp_nccl_result (*closeRecv)(void *recvComm);
  enum harp_nccl_result (*closeListen)(void *listenComm);
  enum harp_nccl_result (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
  enum harp_nccl_result (*irecvConsumed)(void *recvComm, int n, void *request);
  enum harp_nccl_result (*makeVDevice)(int *dev, struct harp_nccl_vdevice_props_v9 *props);
};
HARP_NCCL_AT(net_v9, name, 0);
HARP_NCCL_AT(net_v9, init, 8);
HARP_NCCL_AT(net_v9, devices, 16);
HARP_NCCL_AT(net_v9, getProperties, 24);
HARP_NCCL_AT(net_v9, listen, 32);
HARP_NCCL_AT(net_v9, connect, 40);
HARP_NCCL_AT(net_v9, accept, 48);
HARP_NCCL_AT(net_v9, regMr, 56);
HARP_NCCL_AT(net_v9, regMrDmaBuf, 64);
HARP_NCCL_AT(net_v9, deregMr, 72);
HARP_NCCL_AT(net_v9, isend, 80);
HARP_NCCL_AT(net_v9, irecv, 88);
HARP_NCCL_AT(net_v9, iflush, 96);
HARP_NCCL_AT(net_v9, test, 104);
HARP_NCCL_AT(net_v9, closeSend, 112);
HARP_NCCL_AT(net_v9, closeRecv, 120);
HARP_NCCL_AT(net_v9, closeListen, 128);
HARP_NCCL_AT(net_v9, getDeviceMr, 136);
HARP_NCCL_AT(net_v9, irecvConsumed, 144);
HARP_NCCL_AT(net_v9, makeVDevice, 152);
HARP_NCCL_SIZE(net_v9, 160);

/* NCCL 2.26.2 added the profiler's callback and handles, and the comm's configuration to connect. */
struct harp_nccl_net_v10 {
  const char *name;
  enum harp_nccl_result (*init)(harp_nccl_logger log, harp_nccl_profiler profiler);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v9 *props);
  enum harp_nccl_result (*listen)(int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(int dev, struct harp_nccl_comm_config_v10 *config, void *handle,
                                   void **sendComm, struct harp_nccl_device_handle_v7 **sendDevComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm,
                                  struct harp_nccl_device_handle_v7 **recvDevComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  enum harp_nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                                       void **mhandle);
  enum harp_nccl_result (*deregMr)(void *comm, void *mhandle);
  enum harp_nccl_result (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                                 void *phandle, void **request);
  enum harp_nccl_result (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                                 void **mhandles, void **phandles, void **request);
  enum harp_nccl_result (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                                  void **request);
  enum harp_nccl_result (*test)(void *request, int *done, int *sizes);
  enum harp_nccl_result (*closeSend)(void *sendComm);
  enum harp_nccl_result (*closeRecv)(void *recvComm);
  enum harp_nccl_result (*closeListen)(void *listenComm);
  enum harp_nccl_result (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
  enum harp_nccl_result (*irecvConsumed)(void *recvComm, int n, void *request);
  enum harp_nccl_result (*makeVDevice)(int *dev, struct harp_nccl_vdevice_props_v9 *props);
};
HARP_NCCL_AT(net_v10, name, 0);
HARP_NCCL_AT(net_v10, init, 8);
HARP_NCCL_AT(net_v10, devices, 16);
HARP_NCCL_AT(net_v10, getProperties, 24);
HARP_NCCL_AT(net_v10, listen, 32);
HARP_NCCL_AT(net_v10, connect, 40);
HARP_NCCL_AT(net_v10, accept, 48);
HARP_NCCL_AT(net_v10, regMr, 56);
HARP_NCCL_AT(net_v10, regMrDmaBuf, 64);
HARP_NCCL_AT(net_v10, deregMr, 72);
HARP_NCCL_AT(net_v10, isend, 80);
HARP_NCCL_AT(net_v10, irecv, 88);
HARP_NCCL_AT(net_v10, iflush, 96);
HARP_NCCL_AT(net_v10, test, 104);
HARP_NCCL_AT(net_v10, closeSend, 112);
HARP_NCCL_AT(net_v10, closeRecv, 120);
HARP_NCCL_AT(net_v10, closeListen, 128);
HARP_NCCL_AT(net_v10, getDeviceMr, 136);
HARP_NCCL_AT(net_v10, irecvConsumed, 144);
HARP_NCCL_AT(net_v10, makeVDevice, 152);
HARP_NCCL_SIZE(net_v10, 160);

/* NCCL 2.28.3 added a context for each communicator, finalize and setNetAttr. */
struct harp_nccl_net_v11 {
  const char *name;
  enum harp_nccl_result (*init)(void **ctx, uint64_t commId, struct harp_nccl_comm_config_v10 *config,
                                harp_nccl_logger log, harp_nccl_profiler profiler);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v11 *props);
  enum harp_nccl_result (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(void *ctx, int dev, void *handle, void **sendComm,
                                   struct harp_nccl_device_handle_v7 **sendDevComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm,
                                  struct harp_nccl_device_handle_v7 **recvDevComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  enum harp_nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                                       void **mhandle);
  enum harp_nccl_result (*deregMr)(void *comm, void *mhandle);
  enum harp_nccl_result (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                                 void *phandle, void **request);
  enum harp_nccl_result (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                                 void **mhandles, void **phandles, void **request);
  enum harp_nccl_result (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                                  void **request);
  enum harp_nccl_result (*test)(void *request, int *done, int *sizes);
  enum harp_nccl_result (*closeSend)(void *sendComm);
  enum harp_nccl_result (*closeRecv)(void *recvComm);
  enum harp_nccl_result (*closeListen)(void *listenComm);
  enum harp_nccl_result (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
  enum harp_nccl_result (*irecvConsumed)(void *recvComm, int n, void *request);
  enum harp_nccl_result (*makeVDevice)(int *dev, struct harp_nccl_vdevice_props_v9 *props);
  enum harp_nccl_result (*finalize)(void *ctx);
  enum harp_nccl_result (*setNetAttr)(void *ctx, struct harp_nccl_attr_v11 *attr);
};
HARP_NCCL_AT(net_v11, name, 0);
HARP_NCCL_AT(net_v11, init, 8);
HARP_NCCL_AT(net_v11, devices, 16);
HARP_NCCL_AT(net_v11, getProperties, 24);
HARP_NCCL_AT(net_v11, listen, 32);
HARP_NCCL_AT(net_v11, connect, 40);
HARP_NCCL_AT(net_v11, accept, 48);
HARP_NCCL_AT(net_v11, regMr, 56);
HARP_NCCL_AT(net_v11, regMrDmaBuf, 64);
HARP_NCCL_AT(net_v11, deregMr, 72);
HARP_NCCL_AT(net_v11, isend, 80);
HARP_NCCL_AT(net_v11, irecv, 88);
HARP_NCCL_AT(net_v11, iflush, 96);
HARP_NCCL_AT(net_v11, test, 104);
HARP_NCCL_AT(net_v11, closeSend, 112);
HARP_NCCL_AT(net_v11, closeRecv, 120);
HARP_NCCL_AT(net_v11, closeListen, 128);
HARP_NCCL_AT(net_v11, getDeviceMr, 136);
HARP_NCCL_AT(net_v11, irecvConsumed, 144);
HARP_NCCL_AT(net_v11, makeVDevice, 152);
HARP_NCCL_AT(net_v11, finalize, 160);
HARP_NCCL_AT(net_v11, setNetAttr, 168);
HARP_NCCL_SIZE(net_v11, 176);

/* NCCL 2.30.3 added larger virtual devices, rail and plane. */
struct harp_nccl_net_v12 {
  const char *name;
  enum harp_nccl_result (*init)(void **ctx, uint64_t commId, struct harp_nccl_comm_config_v10 *config,
                                harp_nccl_logger log, harp_nccl_profiler profiler);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v12 *props);
  enum harp_nccl_result (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(void *ctx, int dev, void *handle, void **sendComm,
                                   struct harp_nccl_device_handle_v7 **sendDevComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm,
                                  struct harp_nccl_device_handle_v7 **recvDevComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  enum harp_nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                                       void **mhandle);
  enum harp_nccl_result (*deregMr)(void *comm, void *mhandle);
  enum harp_nccl_result (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                                 void *phandle, void **request);
  enum harp_nccl_result (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                                 void **mhandles, void **phandles, void **request);
  enum harp_nccl_result (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                                  void **request);
  enum harp_nccl_result (*test)(void *request, int *done, int *sizes);
  enum harp_nccl_result (*closeSend)(void *sendComm);
  enum harp_nccl_result (*closeRecv)(void *recvComm);
  enum harp_nccl_result (*closeListen)(void *listenComm);
  enum harp_nccl_result (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
  enum harp_nccl_result (*irecvConsumed)(void *recvComm, int n, void *request);
  enum harp_nccl_result (*makeVDevice)(int *dev, struct harp_nccl_vdevice_props_v12 *props);
  enum harp_nccl_result (*finalize)(void *ctx);
  enum harp_nccl_result (*setNetAttr)(void *ctx, struct harp_nccl_attr_v11 *attr);
};
HARP_NCCL_AT(net_v12, name, 0);
HARP_NCCL_AT(net_v12, init, 8);
HARP_NCCL_AT(net_v12, devices, 16);
HARP_NCCL_AT(net_v12, getProperties, 24);
HARP_NCCL_AT(net_v12, listen, 32);
HARP_NCCL_AT(net_v12, connect, 40);
HARP_NCCL_AT(net_v12, accept, 48);
HARP_NCCL_AT(net_v12, regMr, 56);
HARP_NCCL_AT(net_v12, regMrDmaBuf, 64);
HARP_NCCL_AT(net_v12, deregMr, 72);
HARP_NCCL_AT(net_v12, isend, 80);
HARP_NCCL_AT(net_v12, irecv, 88);
HARP_NCCL_AT(net_v12, iflush, 96);
HARP_NCCL_AT(net_v12, test, 104);
HARP_NCCL_AT(net_v12, closeSend, 112);
HARP_NCCL_AT(net_v12, closeRecv, 120);
HARP_NCCL_AT(net_v12, closeListen, 128);
HARP_NCCL_AT(net_v12, getDeviceMr, 136);
HARP_NCCL_AT(net_v12, irecvConsumed, 144);
HARP_NCCL_AT(net_v12, makeVDevice, 152);
HARP_NCCL_AT(net_v12, finalize, 160);
HARP_NCCL_AT(net_v12, setNetAttr, 168);
HARP_NCCL_SIZE(net_v12, 176);

#endif
