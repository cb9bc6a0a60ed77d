/* SPDX-License-Identifier: Apache-2.0 */
/* The binary interface between NCCL 2.8 to 2.12 and a net plugin in versions 4 and 5, as far as newer
 * versions differ from it. See abi.h. */
#ifndef HARP_NCCL_ABI_V4_H
#define HARP_NCCL_ABI_V4_H

#include "nccl/abi.h"

struct harp_nccl_properties_v4 {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  int maxComms;
};
HARP_NCCL_AT(properties_v4, name, 0);
HARP_NCCL_AT(properties_v4, pciPath, 8);
HARP_NCCL_AT(properties_v4, guid, 16);
HARP_NCCL_AT(properties_v4, ptrSupport, 24);
HARP_NCCL_AT(properties_v4, speed, 28);
HARP_NCCL_AT(properties_v4, port, 32);
HARP_NCCL_AT(properties_v4, maxComms, 36);
HARP_NCCL_SIZE(properties_v4, 40);

/* In NCCL 2.8.3 connect and accept may block; there are no tags and no groups, and handles have 64 bytes. */
struct harp_nccl_net_v4 {
  const char *name;
  enum harp_nccl_result (*init)(harp_nccl_logger log);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v4 *props);
  enum harp_nccl_result (*listen)(int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(int dev, void *handle, void **sendComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
  enum harp_nccl_result (*deregMr)(void *comm, void *mhandle);
  enum harp_nccl_result (*isend)(void *sendComm, void *data, int size, void *mhandle, void **request);
  enum harp_nccl_result (*irecv)(void *recvComm, void *data, int size, void *mhandle, void **request);
  enum harp_nccl_result (*iflush)(void *recvComm, void *data, int size, void *mhandle, void **request);
  enum harp_nccl_result (*test)(void *request, int *done, int *sizes);
  enum harp_nccl_result (*closeSend)(void *sendComm);
  enum harp_nccl_result (*closeRecv)(void *recvComm);
  enum harp_nccl_result (*closeListen)(void *listenComm);
};
HARP_NCCL_AT(net_v4, name, 0);
HARP_NCCL_AT(net_v4, init, 8);
HARP_NCCL_AT(net_v4, devices, 16);
HARP_NCCL_AT(net_v4, getProperties, 24);
HARP_NCCL_AT(net_v4, listen, 32);
HARP_NCCL_AT(net_v4, connect, 40);
HARP_NCCL_AT(net_v4, accept, 48);
HARP_NCCL_AT(net_v4, regMr, 56);
HARP_NCCL_AT(net_v4, deregMr, 64);
HARP_NCCL_AT(net_v4, isend, 72);
HARP_NCCL_AT(net_v4, irecv, 80);
HARP_NCCL_AT(net_v4, iflush, 88);
HARP_NCCL_AT(net_v4, test, 96);
HARP_NCCL_AT(net_v4, closeSend, 104);
HARP_NCCL_AT(net_v4, closeRecv, 112);
HARP_NCCL_AT(net_v4, closeListen, 120);
HARP_NCCL_SIZE(net_v4, 128);

/* NCCL 2.12.7 added tags and grouped receives; connect and accept must not block from here on. */
struct harp_nccl_net_v5 {
  const char *name;
  enum harp_nccl_result (*init)(harp_nccl_logger log);
  enum harp_nccl_result (*devices)(int *ndev);
  enum harp_nccl_result (*getProperties)(int dev, struct harp_nccl_properties_v6 *props);
  enum harp_nccl_result (*listen)(int dev, void *handle, void **listenComm);
  enum harp_nccl_result (*connect)(int dev, void *handle, void **sendComm);
  enum harp_nccl_result (*accept)(void *listenComm, void **recvComm);
  enum harp_nccl_result (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
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
HARP_NCCL_AT(net_v5, name, 0);
HARP_NCCL_AT(net_v5, init, 8);
HARP_NCCL_AT(net_v5, devices, 16);
HARP_NCCL_AT(net_v5, getProperties, 24);
HARP_NCCL_AT(net_v5, listen, 32);
HARP_NCCL_AT(net_v5, connect, 40);
HARP_NCCL_AT(net_v5, accept, 48);
HARP_NCCL_AT(net_v5, regMr, 56);
HARP_NCCL_AT(net_v5, deregMr, 64);
HARP_NCCL_AT(net_v5, isend, 72);
HARP_NCCL_AT(net_v5, irecv, 80);
HARP_NCCL_AT(net_v5, iflush, 88);
HARP_NCCL_AT(net_v5, test, 96);
HARP_NCCL_AT(net_v5, closeSend, 104);
HARP_NCCL_AT(net_v5, closeRecv, 112);
HARP_NCCL_AT(net_v5, closeListen, 120);
HARP_NCCL_SIZE(net_v5, 128);

#endif
