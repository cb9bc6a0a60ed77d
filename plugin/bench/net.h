/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded net plugin behind one interface, whichever table version it exports.
 *
 * Owns the library, the plugin's context and the last WARN that it logged. Called from harp-perf's one
 * thread; only the logger may be called from any. Does to old versions what NCCL's own adapters do (sizes
 * above an int or 1 GiB refused), and fills arguments and results with stale values first, as NCCL leaves
 * them. */
#ifndef HARP_BENCH_NET_H
#define HARP_BENCH_NET_H

#include "base/base.h"
#include "nccl/abi.h"

struct harp_net {
  void *library;
  const void *table; /* struct harp_nccl_net_v<abi>, the library's */
  int abi;
  const char *name; /* the library's */
  void *ctx;        /* v11 on: the plugin's */
  bool initialized;
  int ndev;
  size_t handle_bytes;
  enum harp_nccl_result (*send)(const struct harp_net *, void *comm, void *data, size_t size, int tag,
                                void *mhandle, void **request);
  enum harp_nccl_result (*recv)(const struct harp_net *, void *comm, void *data, size_t size, int tag,
                                void *mhandle, void **request);
  enum harp_nccl_result (*poll)(void *request, int *done, int *sizes);
};

/* What harp-perf uses of a device's properties. */
struct harp_net_device {
  const char *name; /* the library's */
  int speed_mbps;
  int ptr_support;
  size_t message_bytes_max;
};

/* Loads the library and takes table `abi`, or the newest for 0. Returns 0 or -1. */
int harp_net_open(struct harp_net *net, const char *path, int abi) HARP_MUST_CHECK;

/* Calls the plugin's init and devices. `comm_id` is the same on all ranks; `log_level` as --log. Returns 0 or
 * -1. */
int harp_net_init(struct harp_net *net, uint64_t comm_id, int log_level) HARP_MUST_CHECK;

/* Reads the properties of device `dev`. Returns 0 or -1. */
int harp_net_device_read(struct harp_net *net, int dev, struct harp_net_device *device) HARP_MUST_CHECK;

/* Calls finalize where there is one and unloads the library. A failure is recorded. May be called at any
 * stage. */
void harp_net_close(struct harp_net *net);

/* These return the plugin's own result, or INTERNAL_ERROR for what NCCL's adapter would refuse. */
enum harp_nccl_result harp_net_listen(struct harp_net *net, int dev, void *handle, void **comm);
enum harp_nccl_result harp_net_connect(struct harp_net *net, int dev, void *handle, void **comm);
enum harp_nccl_result harp_net_accept(struct harp_net *net, void *listen_comm, void **comm);
enum harp_nccl_result harp_net_reg(struct harp_net *net, void *comm, void *data, size_t bytes,
                                   void **mhandle);
enum harp_nccl_result harp_net_dereg(struct harp_net *net, void *comm, void *mhandle);
enum harp_nccl_result harp_net_close_send(struct harp_net *net, void *comm);
enum harp_nccl_result harp_net_close_recv(struct harp_net *net, void *comm);
enum harp_nccl_result harp_net_close_listen(struct harp_net *net, void *comm);

/* Records a failed call with the result's name and the plugin's last WARN; returns -1. */
int harp_net_fail(const struct harp_net *net, const char *function, enum harp_nccl_result result);

#endif
