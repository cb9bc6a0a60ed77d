/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of the fake GPUs, as the CUDA runtime, the driver's interface and NVML return them. */
#ifndef HARP_BOX_DEVICE_H
#define HARP_BOX_DEVICE_H

#include "base/base.h"

enum {
  BOX_DEVICES = 8,
  BOX_BUS_ID_BYTES = 32,
  BOX_CAPABILITY_MAJOR = 9, /* sm_90: what every release of the tests has kernels for, or falls back from */
  BOX_CAPABILITY_MINOR = 0,
  BOX_PROCESSORS = 132,
  BOX_DRIVER_VERSION = 13000
};
#define BOX_DEVICE_BYTES ((size_t)80 << 30)

/* Codes of cudaError_t; the driver's are the same where both have one. */
enum box_cuda {
  BOX_CUDA_OK = 0,
  BOX_CUDA_INVALID = 1,
  BOX_CUDA_NO_MEMORY = 2,
  BOX_CUDA_NO_DEVICE = 101,
  BOX_CUDA_NO_PEER = 217,
  BOX_CUDA_NOT_FOUND = 500,
  BOX_CUDA_NOT_READY = 600,
  BOX_CUDA_NOT_SUPPORTED = 801
};

/* Returns the value of a cudaDeviceAttr. */
int box_device_attribute(int attribute);

/* Writes the PCI address of a device, in a domain that no machine has. */
void box_device_bus_id(int device, char out[BOX_BUS_ID_BYTES]);

/* Returns the device that has this address, also one with a longer domain; -1 if none has. */
int box_device_by_bus_id(const char *bus_id);

/* Return and set the device of the calling thread. */
int box_device_current(void);
void box_device_choose(int device);

#endif
