/* SPDX-License-Identifier: Apache-2.0 */
/* The exported tables of versions 6 to 12, and the adapters between each version's signatures and ops.h.
 *
 * An adapter is named after the oldest version whose signature it has, and serves all until the next. It
 * converts sizes and result codes, drops what HARP does not use (tags: with n = 1 order alone decides;
 * device handles, which a HOST plugin leaves alone), and nothing more. */
#include "nccl/adapters.h"
#include "nccl/ops.h"
#include "nccl/properties.h"
#include "nccl/result.h"

/* ---- init ---- */

enum harp_nccl_result harp_nccl_init_v4(harp_nccl_logger log) {
  return harp_nccl_open_process(log, NULL);
}

static enum harp_nccl_result init_v10(harp_nccl_logger log, harp_nccl_profiler profiler) {
  return harp_nccl_open_process(log, profiler);
}

static int traffic_class_of(const struct harp_nccl_comm_config_v10 *config) {
  return config ? config->trafficClass : HARP_NCCL_UNDEFINED;
}

static enum harp_nccl_result init_v11(void **ctx, uint64_t comm_id, struct harp_nccl_comm_config_v10 *config,
                                      harp_nccl_logger log, harp_nccl_profiler profiler) {
  (void)comm_id;
  return harp_nccl_open(ctx, traffic_class_of(config), log, profiler);
}

static enum harp_nccl_result finalize_v11(void *ctx) {
  return harp_nccl_close(ctx);
}

static enum harp_nccl_result set_net_attr_v11(void *ctx, struct harp_nccl_attr_v11 *attr) {
  (void)ctx;
  (void)attr; /* a hint; nothing here depends on it */
  return HARP_NCCL_SUCCESS;
}

static enum harp_nccl_result make_vdevice_v9(int *dev, struct harp_nccl_vdevice_props_v9 *props) {
  return harp_nccl_merge(dev, props->devs, props->ndevs, HARP_NCCL_VDEVICES_MAX_V9);
}

static enum harp_nccl_result make_vdevice_v12(int *dev, struct harp_nccl_vdevice_props_v12 *props) {
  return harp_nccl_merge(dev, props->devs, props->ndevs, HARP_NCCL_VDEVICES_MAX);
}

/* ---- listen, connect, accept ---- */

enum harp_nccl_result harp_nccl_listen_v5(int dev, void *handle, void **listen) {
  return harp_nccl_listen(harp_nccl_process(), dev, handle, HARP_NCCL_HANDLE_BYTES, listen);
}

static enum harp_nccl_result listen_v11(void *ctx, int dev, void *handle, void **listen) {
  return harp_nccl_listen(ctx, dev, handle, HARP_NCCL_HANDLE_BYTES, listen);
}

enum harp_nccl_result harp_nccl_connect_v6(int dev, void *handle, void **comm) {
  return harp_nccl_connect(harp_nccl_process(), dev, handle, HARP_NCCL_HANDLE_BYTES, HARP_NCCL_UNDEFINED,
                           comm);
}

static enum harp_nccl_result connect_v7(int dev, void *handle, void **comm,
                                        struct harp_nccl_device_handle_v7 **device) {
  (void)device;
  return harp_nccl_connect_v6(dev, handle, comm);
}

static enum harp_nccl_result connect_v10(int dev, struct harp_nccl_comm_config_v10 *config, void *handle,
                                         void **comm, struct harp_nccl_device_handle_v7 **device) {
  (void)device;
  return harp_nccl_connect(harp_nccl_process(), dev, handle, HARP_NCCL_HANDLE_BYTES, traffic_class_of(config),
                           comm);
}

static enum harp_nccl_result connect_v11(void *ctx, int dev, void *handle, void **comm,
                                         struct harp_nccl_device_handle_v7 **device) {
  (void)device;
  return harp_nccl_connect(ctx, dev, handle, HARP_NCCL_HANDLE_BYTES, HARP_NCCL_UNDEFINED, comm);
}

static enum harp_nccl_result accept_v7(void *listen, void **comm,
                                       struct harp_nccl_device_handle_v7 **device) {
  (void)device;
  return harp_nccl_accept(listen, comm);
}

/* ---- memory ---- */

enum harp_nccl_result harp_nccl_reg_mr_v4(void *comm, void *data, int size, int type, void **mhandle) {
  *mhandle = NULL;
  if (size < 0) return harp_nccl_negative("regMr: a buffer", size);
  return harp_nccl_register(comm, data, (size_t)size, type, mhandle);
}

static enum harp_nccl_result reg_mr_dma_buf_v6(void *comm, void *data, size_t size, int type, uint64_t offset,
                                               int fd, void **mhandle) {
  (void)comm, (void)data, (void)size, (void)type, (void)offset, (void)fd;
  *mhandle = NULL;
  return harp_nccl_misuse("regMrDmaBuf: HARP moves host memory only, as its properties say");
}

static enum harp_nccl_result get_device_mr_v7(void *comm, void *mhandle, void **device_mhandle) {
  (void)comm, (void)mhandle;
  *device_mhandle = NULL;
  return harp_nccl_misuse("getDeviceMr: HARP is no device transport, as its properties say");
}

/* ---- data ---- */

enum harp_nccl_result harp_nccl_isend_int(void *comm, void *data, int size, void **request) {
  *request = NULL;
  if (harp_unlikely(size < 0)) return harp_nccl_negative("isend: a message", size);
  return harp_nccl_send(comm, data, (size_t)size, NULL, request);
}

enum harp_nccl_result harp_nccl_irecv_int(void *comm, int n, void **data, const int *sizes, void **request) {
  size_t size = 0;
  *request = NULL;
  if (harp_likely(n == 1)) {
    if (harp_unlikely(sizes[0] < 0)) return harp_nccl_negative("irecv: a buffer", sizes[0]);
    size = (size_t)sizes[0];
  }
  return harp_nccl_receive(comm, n, data, &size, true, NULL, request);
}

enum harp_nccl_result harp_nccl_isend_v6(void *comm, void *data, int size, int tag, void *mhandle,
                                         void **request) {
  (void)tag, (void)mhandle;
  return harp_nccl_isend_int(comm, data, size, request);
}

static enum harp_nccl_result isend_v9(void *comm, void *data, size_t size, int tag, void *mhandle,
                                      void **request) {
  (void)tag, (void)mhandle;
  return harp_nccl_send(comm, data, size, NULL, request);
}

static enum harp_nccl_result isend_v10(void *comm, void *data, size_t size, int tag, void *mhandle,
                                       void *phandle, void **request) {
  (void)tag, (void)mhandle;
  return harp_nccl_send(comm, data, size, phandle, request);
}

enum harp_nccl_result harp_nccl_irecv_v6(void *comm, int n, void **data, int *sizes, int *tags,
                                         void **mhandles, void **request) {
  (void)tags, (void)mhandles;
  return harp_nccl_irecv_int(comm, n, data, sizes, request);
}

static enum harp_nccl_result irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags,
                                      void **mhandles, void **request) {
  (void)tags, (void)mhandles;
  return harp_nccl_receive(comm, n, data, sizes, harp_nccl_is_watched(request), NULL, request);
}

static enum harp_nccl_result irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags,
                                       void **mhandles, void **phandles, void **request) {
  (void)tags, (void)mhandles;
  return harp_nccl_receive(comm, n, data, sizes, harp_nccl_is_watched(request),
                           phandles && n == 1 ? phandles[0] : NULL, request);
}

static enum harp_nccl_result irecv_consumed_v7(void *comm, int n, void *request) {
  (void)comm, (void)n, (void)request;
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_iflush_v5(void *comm, int n, void **data, int *sizes, void **mhandles,
                                          void **request) {
  (void)comm, (void)n, (void)data, (void)sizes, (void)mhandles;
  return harp_nccl_flush(request);
}

/* ---- the tables ---- */

extern const struct harp_nccl_net_v6 ncclNetPlugin_v6;
extern const struct harp_nccl_net_v7 ncclNetPlugin_v7;
extern const struct harp_nccl_net_v8 ncclNetPlugin_v8;
extern const struct harp_nccl_net_v9 ncclNetPlugin_v9;
extern const struct harp_nccl_net_v10 ncclNetPlugin_v10;
extern const struct harp_nccl_net_v11 ncclNetPlugin_v11;
extern const struct harp_nccl_net_v12 ncclNetPlugin_v12;

HARP_EXPORT const struct harp_nccl_net_v6 ncclNetPlugin_v6 = {
    HARP_NCCL_COMMON,
    .init = harp_nccl_init_v4,
    .getProperties = harp_nccl_properties_v6,
    .listen = harp_nccl_listen_v5,
    .connect = harp_nccl_connect_v6,
    .accept = harp_nccl_accept,
    .regMr = harp_nccl_reg_mr_v4,
    .regMrDmaBuf = reg_mr_dma_buf_v6,
    .isend = harp_nccl_isend_v6,
    .irecv = harp_nccl_irecv_v6,
    .iflush = harp_nccl_iflush_v5,
    .test = harp_nccl_test,
    .closeListen = harp_nccl_close_listen,
};

/* The functions that v7 and newer add with one signature. */
#define COMMON_V7                                                                                            \
  HARP_NCCL_COMMON, .accept = accept_v7, .regMrDmaBuf = reg_mr_dma_buf_v6, .iflush = harp_nccl_iflush_v5,    \
                    .test = harp_nccl_test, .closeListen = harp_nccl_close_listen,                           \
                    .getDeviceMr = get_device_mr_v7, .irecvConsumed = irecv_consumed_v7

HARP_EXPORT const struct harp_nccl_net_v7 ncclNetPlugin_v7 = {
    COMMON_V7,
    .init = harp_nccl_init_v4,
    .getProperties = harp_nccl_properties_v7,
    .listen = harp_nccl_listen_v5,
    .connect = connect_v7,
    .regMr = harp_nccl_reg_mr_v4,
    .isend = harp_nccl_isend_v6,
    .irecv = harp_nccl_irecv_v6,
};

HARP_EXPORT const struct harp_nccl_net_v8 ncclNetPlugin_v8 = {
    COMMON_V7,
    .init = harp_nccl_init_v4,
    .getProperties = harp_nccl_properties_v8,
    .listen = harp_nccl_listen_v5,
    .connect = connect_v7,
    .regMr = harp_nccl_register,
    .isend = harp_nccl_isend_v6,
    .irecv = harp_nccl_irecv_v6,
};

HARP_EXPORT const struct harp_nccl_net_v9 ncclNetPlugin_v9 = {
    COMMON_V7,
    .init = harp_nccl_init_v4,
    .getProperties = harp_nccl_properties_v9,
    .listen = harp_nccl_listen_v5,
    .connect = connect_v7,
    .regMr = harp_nccl_register,
    .isend = isend_v9,
    .irecv = irecv_v9,
    .makeVDevice = make_vdevice_v9,
};

HARP_EXPORT const struct harp_nccl_net_v10 ncclNetPlugin_v10 = {
    COMMON_V7,
    .init = init_v10,
    .getProperties = harp_nccl_properties_v9,
    .listen = harp_nccl_listen_v5,
    .connect = connect_v10,
    .regMr = harp_nccl_register,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .makeVDevice = make_vdevice_v9,
};

/* The functions that v11 and newer add with one signature. */
#define COMMON_V11                                                                                           \
  COMMON_V7, .init = init_v11, .listen = listen_v11, .connect = connect_v11, .regMr = harp_nccl_register,    \
             .isend = isend_v10, .irecv = irecv_v10, .finalize = finalize_v11,                               \
             .setNetAttr = set_net_attr_v11

HARP_EXPORT const struct harp_nccl_net_v11 ncclNetPlugin_v11 = {
    COMMON_V11,
    .getProperties = harp_nccl_properties_v11,
    .makeVDevice = make_vdevice_v9,
};

HARP_EXPORT const struct harp_nccl_net_v12 ncclNetPlugin_v12 = {
    COMMON_V11,
    .getProperties = harp_nccl_properties_v12,
    .makeVDevice = make_vdevice_v12,
};
