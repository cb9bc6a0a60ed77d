/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of this process, and how near an ENI is to it.
 *
 * NCCL does not pass the GPU to a net plugin, and HARP does not link CUDA. So the GPU is inferred from the
 * GPUs in the driver's procfs, CUDA_VISIBLE_DEVICES and the launcher's local rank; unknown when these do not
 * determine one. No state. Called by config.c at init. */
#ifndef HARP_HOST_GPU_H
#define HARP_HOST_GPU_H

#include "host/eni.h"
#include "host/local.h"

enum {
  HARP_GPU_PCI_BYTES = 16,
  HARP_GPUS_MAX = 64, /* more are ignored */
};

struct harp_gpu {
  char pci[HARP_GPU_PCI_BYTES];      /* 0000:3b:00.0 */
  char pci_path[HARP_ENI_PCI_BYTES]; /* its real path in sysfs; "" when not visible in this container */
  int numa;                          /* -1: unknown */
  int number;                        /* index among all GPUs of the host, by PCI address */
};

/* Finds the GPU of this process, from procfs and sysfs below these roots; false when it is unknown. */
bool harp_gpu_of_process(const char *proc_root, const char *sysfs_root, const char *const *environment,
                         const struct harp_local *local, struct harp_gpu *gpu);

/* Counts the GPUs that the driver's procfs shows, whatever CUDA_VISIBLE_DEVICES says. */
unsigned harp_gpu_count(const char *proc_root);

/* Returns the nearness of a PCI device (its real path, or "") on a NUMA node (-1: unknown) to the GPU: 2 for
 * each common part of the PCI paths, from the root complex on, plus 1 for the same node; 0: unknown. */
unsigned harp_gpu_nearness(const struct harp_gpu *gpu, const char *pci_path, int numa);

#endif
