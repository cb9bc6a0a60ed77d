/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of a device that NCCL gets. Most of it is true of every HARP device; the rest comes from
 * net/net.h.
 *
 * The macros set the fields that a run of versions has in common; a version's function then reads as its
 * list. No state; any thread, NCCL calls it many times. */
#include "nccl/properties.h"

#include <string.h>

#include "nccl/result.h"
#include "net/net.h"

enum {
  MAX_RECVS = 1, /* no grouped receives: each connection then has a comm of its own, and n is always 1 */
  MAX_MULTI_REQUEST = 1,
};

/* v4 on. Host memory only: NCCL then stages through pinned host buffers. */
#define SET_BASE(p, d)                                                                                       \
  do {                                                                                                       \
    (p)->name = (char *)(uintptr_t)(d).name;                                                                 \
    (p)->pciPath = (char *)(uintptr_t)(d).pci_path;                                                          \
    (p)->guid = (d).guid;                                                                                    \
    (p)->ptrSupport = HARP_NCCL_PTR_HOST;                                                                    \
    (p)->speed = (d).speed_mbps;                                                                             \
    (p)->port = (d).port;                                                                                    \
    (p)->maxComms = HARP_NET_COMMS_MAX;                                                                      \
  } while (0)

/* v5 on. */
#define SET_V5(p, d)                                                                                         \
  do {                                                                                                       \
    (p)->latency = (d).latency_us;                                                                           \
    (p)->maxRecvs = MAX_RECVS;                                                                               \
  } while (0)

/* v7 on. */
#define SET_V7(p)                                                                                            \
  do {                                                                                                       \
    (p)->netDeviceType = HARP_NCCL_DEVICE_HOST;                                                              \
    (p)->netDeviceVersion = HARP_NCCL_DEVICE_VERSION_INVALID;                                                \
  } while (0)

/* v9 on. NCCL's adapters copy vProps.ndevs entries without a bound, and refuse a device whose limits are
 * 0. */
#define SET_V9(p, dev, d)                                                                                    \
  do {                                                                                                       \
    (p)->regIsGlobal = 0;                                                                                    \
    (p)->forceFlush = 0;                                                                                     \
    (p)->vProps.ndevs = (int)HARP_MIN((d).part_count, HARP_ARRAY_COUNT((p)->vProps.devs));                   \
    for (int i = 0; i < (p)->vProps.ndevs; i++) (p)->vProps.devs[i] = (d).parts[i];                          \
    if (!(d).part_count) (p)->vProps.ndevs = 1, (p)->vProps.devs[0] = (dev);                                 \
    (p)->maxP2pBytes = HARP_NET_MAX_BYTES;                                                                   \
    (p)->maxCollBytes = HARP_NET_MAX_BYTES;                                                                  \
  } while (0)

_Static_assert((size_t)HARP_NET_MAX_BYTES >= HARP_NCCL_P2P_BYTES_V8,
               "older versions state no limit: they assume this");

enum harp_nccl_result harp_nccl_properties_v4(int dev, struct harp_nccl_properties_v4 *props) {
  struct harp_device d;
  memset(props, 0, sizeof *props);
  enum harp_status status = harp_net_device(dev, &d);
  if (status == HARP_OK) SET_BASE(props, d);
  return harp_nccl_result_of(status);
}

enum harp_nccl_result harp_nccl_properties_v6(int dev, struct harp_nccl_properties_v6 *props) {
  struct harp_device d;
  memset(props, 0, sizeof *props);
  enum harp_status status = harp_net_device(dev, &d);
  if (status != HARP_OK) return harp_nccl_result_of(status);
  SET_BASE(props, d);
  SET_V5(props, d);
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_properties_v7(int dev, struct harp_nccl_properties_v7 *props) {
  struct harp_device d;
  memset(props, 0, sizeof *props);
  enum harp_status status = harp_net_device(dev, &d);
  if (status != HARP_OK) return harp_nccl_result_of(status);
  SET_BASE(props, d);
  SET_V5(props, d);
  SET_V7(props);
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_properties_v8(int dev, struct harp_nccl_properties_v8 *props) {
  struct harp_device d;
  memset(props, 0, sizeof *props);
  enum harp_status status = harp_net_device(dev, &d);
  if (status != HARP_OK) return harp_nccl_result_of(status);
  SET_BASE(props, d);
  SET_V5(props, d);
  SET_V7(props);
  props->regIsGlobal = 0;
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_properties_v9(int dev, struct harp_nccl_properties_v9 *props) {
  struct harp_device d;
  memset(props, 0, sizeof *props);
  enum harp_status status = harp_net_device(dev, &d);
  if (status != HARP_OK) return harp_nccl_result_of(status);
  SET_BASE(props, d);
  SET_V5(props, d);
  SET_V7(props);
  SET_V9(props, dev, d);
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_properties_v11(int dev, struct harp_nccl_properties_v11 *props) {
  struct harp_device d;
  memset(props, 0, sizeof *props);
  enum harp_status status = harp_net_device(dev, &d);
  if (status != HARP_OK) return harp_nccl_result_of(status);
  SET_BASE(props, d);
  SET_V5(props, d);
  SET_V7(props);
  SET_V9(props, dev, d);
  props->maxMultiRequestSize = MAX_MULTI_REQUEST;
  return HARP_NCCL_SUCCESS;
}

enum harp_nccl_result harp_nccl_properties_v12(int dev, struct harp_nccl_properties_v12 *props) {
  struct harp_device d;
  memset(props, 0, sizeof *props);
  enum harp_status status = harp_net_device(dev, &d);
  if (status != HARP_OK) return harp_nccl_result_of(status);
  SET_BASE(props, d);
  SET_V5(props, d);
  SET_V7(props);
  SET_V9(props, dev, d);
  props->maxMultiRequestSize = MAX_MULTI_REQUEST;
  props->railId = props->planeId = HARP_NCCL_UNDEFINED;
  return HARP_NCCL_SUCCESS;
}
