/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the CUDA driver that NCCL gets from the runtime or looks up in
 * libcuda.so. */
#include "device.h"
#include "entry.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int context; /* the only one; its address is its handle */

static int device_get(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}
static int device_count(int *count) {
  *count = BOX_DEVICES;
  return 0;
}
static int device_attribute(int *value, int attribute) {
  enum { HOST_NUMA_ID = 134 };
  *value = attribute == HOST_NUMA_ID ? -1 : box_device_attribute(attribute);
  return 0;
}

/* Differs between the ranks, which NCCL would else take for one GPU used twice. */
static int device_uuid(unsigned char *uuid, int device) {
  memset(uuid, 0x40 + device, 16);
  const char *host = getenv("NCCL_HOSTID");
  uint32_t hash = 2166136261u;
  for (; host && *host; host++) hash = (hash ^ (unsigned char)*host) * 16777619u;
  pid_t process = getpid();
  memcpy(uuid, &hash, sizeof hash);
  memcpy(uuid + sizeof hash, &process, sizeof process);
  return 0;
}
static int address_range(void **begin, size_t *bytes, void *at) {
  struct box_block block;
  if (!box_memory_find(at, &block)) return BOX_CUDA_INVALID;
  if (begin) *begin = (void *)block.begin;
  if (bytes) *bytes = block.bytes;
  return 0;
}
static int context_get(void **out) {
  *out = &context;
  return 0;
}
static int context_device(int *device) {
  *device = box_device_current();
  return 0;
}
static int pointer_attribute(void *out, int attribute, void *at) {
  enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9 };
  struct box_block block = {.is_host = true};
  bool known = box_memory_find(at, &block);
  int value = attribute == MEMORY_TYPE ? (block.is_host ? 1 : 2) : block.device;
  if (attribute != MEMORY_TYPE && attribute != DEVICE_ORDINAL) return BOX_CUDA_NOT_SUPPORTED;
  memcpy(out, &value, sizeof value);
  return known ? 0 : BOX_CUDA_INVALID;
}
static int get_version(int *version) {
  *version = BOX_DRIVER_VERSION;
  return 0;
}
static int entry(const char *name, void **function) {
  *function = (void *)box_driver_find(name);
  return *function ? 0 : BOX_CUDA_NOT_FOUND;
}
static int succeed(void) {
  return 0;
}
static int unsupported(void) {
  return BOX_CUDA_NOT_SUPPORTED;
}

static const struct box_entry entries[] = {
    BOX_ENTRY("cuCtxCreate", context_get),
    BOX_ENTRY("cuCtxDestroy", succeed),
    BOX_ENTRY("cuCtxGetCurrent", context_get),
    BOX_ENTRY("cuCtxGetDevice", context_device),
    BOX_ENTRY("cuCtxSetCurrent", succeed),
    BOX_ENTRY("cuDeviceGet", device_get),
    BOX_ENTRY("cuDeviceGetAttribute", device_attribute),
    BOX_ENTRY("cuDeviceGetCount", device_count),
    BOX_ENTRY("cuDeviceGetUuid", device_uuid),
    BOX_ENTRY("cuDriverGetVersion", get_version),
    BOX_ENTRY("cuGetProcAddress", entry),
    BOX_ENTRY("cuInit", succeed),
    BOX_ENTRY("cuMemCreate", unsupported),
    BOX_ENTRY("cuMemGetAddressRange", address_range),
    BOX_ENTRY("cuMemGetAllocationGranularity", unsupported),
    BOX_ENTRY("cuPointerGetAttribute", pointer_attribute),
    {NULL, NULL},
};

box_function *box_driver_find(const char *name) {
  for (const struct box_entry *e = entries; e->name; e++)
    if (!strcmp(e->name, name)) return e->function;
  return !strncmp(name, "cuLaunch", 8) || !strncmp(name, "cuGetError", 10) ? box_runtime_find(name) : NULL;
}
