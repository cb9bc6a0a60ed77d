/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded net plugin behind one interface, whichever table version it exports.
 *
 * Owns the library, the plugin's context and the last WARN that it logged. Called from harp-perf's only
 * thread; the plugin may call the logger from any. Adapts old versions as NCCL does (rejects sizes above an
 * int or 1 GiB), and sets result arguments to stale values before each call, as NCCL leaves them. */
#ifndef HARP_BENCH_PLUGIN_H
#define HARP_BENCH_PLUGIN_H

#include "base/base.h"
#include "nccl/abi_v4.h"

struct harp_plugin {
  void *library;
  const void *table; /* struct harp_nccl_net_v<abi>, the library's */
  int abi;
  const char *name; /* the library's */
  void *ctx;        /* v11 on: the plugin's */
  bool initialized;
  int ndev;
  size_t handle_bytes;
  enum harp_nccl_result (*send)(const struct harp_plugin *, void *comm, void *data, size_t size, int tag,
                                void *mhandle, void **request);
  enum harp_nccl_result (*recv)(const struct harp_plugin *, void *comm, void *data, size_t size, int tag,
                                void *mhandle, void **request);
  enum harp_nccl_result (*poll)(void *request, int *done, int *sizes);
};

/* What harp-perf uses of a device's properties. */
struct harp_plugin_device {
  const char *name; /* the library's */
  int speed_mbps;
  int ptr_support;
  size_t message_bytes_max;
};

/* Loads the library and takes table `abi`, or the newest for 0. Returns 0 or -1. */
int harp_plugin_open(struct harp_plugin *net, const char *path, int abi) HARP_MUST_CHECK;

/* Calls the plugin's init and devices. `comm_id` is the same on all ranks; `log_level` as --log. Returns 0 or
 * -1. */
int harp_plugin_init(struct harp_plugin *net, uint64_t comm_id, int log_level) HARP_MUST_CHECK;

/* Reads the properties of device `dev`. Returns 0 or -1. */
int harp_plugin_device_read(struct harp_plugin *net, int dev,
                            struct harp_plugin_device *device) HARP_MUST_CHECK;

/* Calls finalize if the version has one, and unloads the library. Records an error. Callable at any stage. */
void harp_plugin_close(struct harp_plugin *net);

/* These return the plugin's result, or INTERNAL_ERROR for what NCCL's adapter rejects. */
enum harp_nccl_result harp_plugin_listen(struct harp_plugin *net, int dev, void *handle, void **comm);
enum harp_nccl_result harp_plugin_connect(struct harp_plugin *net, int dev, void *handle, void **comm);
enum harp_nccl_result harp_plugin_accept(struct harp_plugin *net, void *listen_comm, void **comm);
enum harp_nccl_result harp_plugin_reg(struct harp_plugin *net, void *comm, void *data, size_t bytes,
                                      void **mhandle);
enum harp_nccl_result harp_plugin_dereg(struct harp_plugin *net, void *comm, void *mhandle);
enum harp_nccl_result harp_plugin_close_send(struct harp_plugin *net, void *comm);
enum harp_nccl_result harp_plugin_close_recv(struct harp_plugin *net, void *comm);
enum harp_nccl_result harp_plugin_close_listen(struct harp_plugin *net, void *comm);

/* Records a failed call with the result's name and the plugin's last WARN; returns -1. */
int harp_plugin_fail(const struct harp_plugin *net, const char *function, enum harp_nccl_result result);

#endif
