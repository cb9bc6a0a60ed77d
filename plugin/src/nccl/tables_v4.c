/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of v4 and v5, for NCCL 2.8 to 2.12, and the adapters that only they need: NCCL knows no remote
 * error there, and in v4 connect and accept wait. See tables.c. */
#include "nccl/abi_v4.h"
#include "nccl/adapters.h"
#include "nccl/blocking.h"
#include "nccl/ops.h"
#include "nccl/properties.h"
#include "nccl/result.h"

static enum harp_nccl_result listen_v4(int dev, void *handle, void **listen) {
  return harp_nccl_listen(harp_nccl_process(), dev, handle, HARP_NCCL_HANDLE_BYTES_V4, listen);
}

static enum harp_nccl_result connect_v4(int dev, void *handle, void **comm) {
  return harp_nccl_result_old(harp_nccl_blocking_connect(dev, handle, comm));
}

static enum harp_nccl_result connect_v5(int dev, void *handle, void **comm) {
  return harp_nccl_result_old(harp_nccl_connect_v6(dev, handle, comm));
}

static enum harp_nccl_result accept_v4(void *listen, void **comm) {
  return harp_nccl_result_old(harp_nccl_blocking_accept(listen, comm));
}

static enum harp_nccl_result accept_v5(void *listen, void **comm) {
  return harp_nccl_result_old(harp_nccl_accept(listen, comm));
}

static enum harp_nccl_result isend_v4(void *comm, void *data, int size, void *mhandle, void **request) {
  (void)mhandle;
  return harp_nccl_result_old(harp_nccl_isend_int(comm, data, size, request));
}

static enum harp_nccl_result isend_v5(void *comm, void *data, int size, int tag, void *mhandle,
                                      void **request) {
  return harp_nccl_result_old(harp_nccl_isend_v6(comm, data, size, tag, mhandle, request));
}

static enum harp_nccl_result irecv_v4(void *comm, void *data, int size, void *mhandle, void **request) {
  (void)mhandle;
  return harp_nccl_result_old(harp_nccl_irecv_int(comm, 1, &data, &size, request));
}

static enum harp_nccl_result irecv_v5(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles,
                                      void **request) {
  return harp_nccl_result_old(harp_nccl_irecv_v6(comm, n, data, sizes, tags, mhandles, request));
}

static enum harp_nccl_result iflush_v4(void *comm, void *data, int size, void *mhandle, void **request) {
  (void)comm, (void)data, (void)size, (void)mhandle;
  return harp_nccl_flush(request);
}

static enum harp_nccl_result test_v4(void *request, int *done, int *sizes) {
  return harp_nccl_result_old(harp_nccl_test(request, done, sizes));
}

extern const struct harp_nccl_net_v4 ncclNetPlugin_v4;
extern const struct harp_nccl_net_v5 ncclNetPlugin_v5;

HARP_EXPORT const struct harp_nccl_net_v4 ncclNetPlugin_v4 = {
    HARP_NCCL_COMMON,
    .init = harp_nccl_init_v4,
    .getProperties = harp_nccl_properties_v4,
    .listen = listen_v4,
    .connect = connect_v4,
    .accept = accept_v4,
    .regMr = harp_nccl_reg_mr_v4,
    .isend = isend_v4,
    .irecv = irecv_v4,
    .iflush = iflush_v4,
    .test = test_v4,
    .closeListen = harp_nccl_close_listen,
};

HARP_EXPORT const struct harp_nccl_net_v5 ncclNetPlugin_v5 = {
    HARP_NCCL_COMMON,
    .init = harp_nccl_init_v4,
    .getProperties = harp_nccl_properties_v6,
    .listen = harp_nccl_listen_v5,
    .connect = connect_v5,
    .accept = accept_v5,
    .regMr = harp_nccl_reg_mr_v4,
    .isend = isend_v5,
    .irecv = irecv_v5,
    .iflush = harp_nccl_iflush_v5,
    .test = test_v4,
    .closeListen = harp_nccl_close_listen,
};
