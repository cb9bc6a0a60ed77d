/* SPDX-License-Identifier: Apache-2.0 */
/* NVML of a machine with fake GPUs: no NVLink, no peer access. */
#include "device.h"
#include "entry.h"

#include <stdio.h>
#include <string.h>

enum { INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

/* A handle is the device's number and one, so that none is NULL. */
static void *handle_of(int device) {
  return (void *)((uintptr_t)device + 1);
}
static int device_of(void *handle) {
  return (int)((uintptr_t)handle - 1);
}

static int succeed(void) {
  return 0;
}
static int not_supported(void) {
  return NOT_SUPPORTED;
}
static int count(unsigned *out) {
  *out = BOX_DEVICES;
  return 0;
}
static int by_index(unsigned index, void **handle) {
  if (index >= BOX_DEVICES) return INVALID;
  *handle = handle_of((int)index);
  return 0;
}
static int by_bus_id(const char *bus_id, void **handle) {
  int device = box_device_by_bus_id(bus_id);
  if (device < 0) return NOT_FOUND;
  *handle = handle_of(device);
  return 0;
}
static int index_of(void *handle, unsigned *index) {
  *index = (unsigned)device_of(handle);
  return 0;
}
static const char *error_text(int error) {
  return error == 0 ? "no error" : error == NOT_SUPPORTED ? "not supported" : "an error";
}
static int nvlink_state(void *handle, unsigned link, int *active) {
  (void)handle, (void)link;
  *active = 0;
  return NOT_SUPPORTED;
}
static int nvlink_capability(void *handle, unsigned link, int capability, unsigned *out) {
  (void)handle, (void)link, (void)capability;
  *out = 0;
  return NOT_SUPPORTED;
}
static int compute_capability(void *handle, int *major, int *minor) {
  (void)handle;
  *major = BOX_CAPABILITY_MAJOR;
  *minor = BOX_CAPABILITY_MINOR;
  return 0;
}
static int p2p_status(void *a, void *b, int index, int *status) {
  (void)a, (void)b, (void)index;
  *status = 5; /* not supported */
  return 0;
}
static int pcie_generation(void *handle, unsigned *generation) {
  (void)handle;
  *generation = 4;
  return 0;
}
static int pcie_width(void *handle, unsigned *width) {
  (void)handle;
  *width = 16;
  return 0;
}
static int pcie_speed(void *handle, unsigned *speed) {
  (void)handle;
  *speed = 16000; /* MB/s a lane */
  return 0;
}
static int name(void *handle, char *out, unsigned room) {
  (void)handle;
  snprintf(out, room, "GPU played by threads");
  return 0;
}
static int driver_version(char *out, unsigned room) {
  snprintf(out, room, "0.0");
  return 0;
}

static int pci_info(void *handle, void *out) {
  struct {
    char short_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  } info = {.device_id = 0x233010de, .subsystem_id = 0x10de};
  char bus_id[BOX_BUS_ID_BYTES];
  box_device_bus_id(device_of(handle), bus_id);
  snprintf(info.short_bus_id, sizeof info.short_bus_id, "%.15s", bus_id);
  snprintf(info.bus_id, sizeof info.bus_id, "%s", bus_id);
  if (sscanf(bus_id, "%x:%x:%x", &info.domain, &info.bus, &info.device) != 3) return INVALID;
  memcpy(out, &info, sizeof info);
  return 0;
}

static const struct box_entry entries[] = {
    BOX_ENTRY("nvmlDeviceGetCount", count),
    BOX_ENTRY("nvmlDeviceGetCount_v2", count),
    BOX_ENTRY("nvmlDeviceGetCudaComputeCapability", compute_capability),
    BOX_ENTRY("nvmlDeviceGetCurrPcieLinkGeneration", pcie_generation),
    BOX_ENTRY("nvmlDeviceGetCurrPcieLinkWidth", pcie_width),
    BOX_ENTRY("nvmlDeviceGetFieldValues", not_supported),
    BOX_ENTRY("nvmlDeviceGetHandleByIndex", by_index),
    BOX_ENTRY("nvmlDeviceGetHandleByPciBusId", by_bus_id),
    BOX_ENTRY("nvmlDeviceGetIndex", index_of),
    BOX_ENTRY("nvmlDeviceGetName", name),
    BOX_ENTRY("nvmlDeviceGetNvLinkCapability", nvlink_capability),
    BOX_ENTRY("nvmlDeviceGetNvLinkRemotePciInfo", not_supported),
    BOX_ENTRY("nvmlDeviceGetNvLinkRemotePciInfo_v2", not_supported),
    BOX_ENTRY("nvmlDeviceGetNvLinkState", nvlink_state),
    BOX_ENTRY("nvmlDeviceGetP2PStatus", p2p_status),
    BOX_ENTRY("nvmlDeviceGetPciInfo_v3", pci_info),
    BOX_ENTRY("nvmlDeviceGetPcieLinkMaxSpeed", pcie_speed),
    BOX_ENTRY("nvmlErrorString", error_text),
    BOX_ENTRY("nvmlInit", succeed),
    BOX_ENTRY("nvmlInit_v2", succeed),
    BOX_ENTRY("nvmlShutdown", succeed),
    BOX_ENTRY("nvmlSystemGetDriverVersion", driver_version),
    {NULL, NULL},
};

box_function *box_nvml_find(const char *wanted) {
  for (const struct box_entry *e = entries; e->name; e++)
    if (!strcmp(e->name, wanted)) return e->function;
  return NULL;
}
