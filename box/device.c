/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include "stream.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PCI_DOMAIN = 0xbad0 };

static _Thread_local int chosen = -1;

int box_device_current(void) {
  if (chosen < 0) chosen = HARP_MAX(box_stream_own_device(), 0);
  return chosen;
}

void box_device_choose(int device) {
  chosen = device;
}

void box_device_bus_id(int device, char out[BOX_BUS_ID_BYTES]) {
  snprintf(out, BOX_BUS_ID_BYTES, "%04x:%02x:00.0", PCI_DOMAIN, device + 1);
}

int box_device_by_bus_id(const char *bus_id) {
  size_t given = strlen(bus_id);
  for (int device = 0; device < BOX_DEVICES; device++) {
    char own[BOX_BUS_ID_BYTES];
    box_device_bus_id(device, own);
    size_t common = HARP_MIN(given, strlen(own));
    if (!strcasecmp(bus_id + given - common, own + strlen(own) - common)) return device;
  }
  return -1;
}

int box_device_attribute(int attribute) {
  switch (attribute) {
  case 1:
    return 1024; /* threads per block */
  case 8:        /* shared memory per block */
  case 81:       /* ... per multiprocessor */
  case 97:
    return 227 << 10;
  case 10:
    return 32; /* threads of a warp */
  case 16:
    return BOX_PROCESSORS;
  case 19:  /* host memory can be mapped */
  case 41:  /* one address space */
  case 115: /* memory pools */
    return 1;
  case 75:
    return BOX_CAPABILITY_MAJOR;
  case 76:
    return BOX_CAPABILITY_MINOR;
  default:
    return 0; /* also 116: no GPUDirect RDMA */
  }
}
