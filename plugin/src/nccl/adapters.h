/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters that the tables of v4 and v5 (tables_v4.c) share with those of newer versions (tables.c), each
 * named after the oldest version whose signature it has. */
#ifndef HARP_NCCL_ADAPTERS_H
#define HARP_NCCL_ADAPTERS_H

#include "nccl/ops.h"

#define HARP_EXPORT __attribute__((visibility("default")))

/* The functions that have one signature in all versions. */
#define HARP_NCCL_COMMON                                                                                     \
  .name = "HARP", .devices = harp_nccl_devices, .deregMr = harp_nccl_deregister,                             \
  .closeSend = harp_nccl_close_comm, .closeRecv = harp_nccl_close_comm

enum harp_nccl_result harp_nccl_init_v4(harp_nccl_logger log);
enum harp_nccl_result harp_nccl_listen_v5(int dev, void *handle, void **listen);
enum harp_nccl_result harp_nccl_connect_v6(int dev, void *handle, void **comm);
enum harp_nccl_result harp_nccl_reg_mr_v4(void *comm, void *data, int size, int type, void **mhandle);
enum harp_nccl_result harp_nccl_isend_int(void *comm, void *data, int size, void **request);
enum harp_nccl_result harp_nccl_isend_v6(void *comm, void *data, int size, int tag, void *mhandle,
                                         void **request);
enum harp_nccl_result harp_nccl_irecv_int(void *comm, int n, void **data, const int *sizes, void **request);
enum harp_nccl_result harp_nccl_irecv_v6(void *comm, int n, void **data, int *sizes, int *tags,
                                         void **mhandles, void **request);
enum harp_nccl_result harp_nccl_iflush_v5(void *comm, int n, void **data, int *sizes, void **mhandles,
                                          void **request);

#endif
