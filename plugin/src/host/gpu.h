/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of this process, and how near an ENI is to it.
 *
 * NCCL does not say which GPU a process works with, and asking CUDA would need its library. So it is told
 * from what launchers and container runtimes leave: the GPUs that the driver shows here,
 * CUDA_VISIBLE_DEVICES, and the rank within the host. Where these do not name one GPU none is taken. Owns no
 * state. Called by config.c at init. */
#ifndef HARP_HOST_GPU_H
#define HARP_HOST_GPU_H

#include "host/eni.h"

enum {
  HARP_GPU_PCI_BYTES = 16,
  HARP_GPUS_MAX = 64, /* more are not looked at */
};

struct harp_gpu {
  char pci[HARP_GPU_PCI_BYTES];      /* 0000:3b:00.0 */
  char pci_path[HARP_ENI_PCI_BYTES]; /* its real path in sysfs; "" when not visible here */
  int numa;                          /* -1 when unknown */
  int number;                        /* among all of this host, by PCI address */
};

/* Finds the GPU of this process, from procfs and sysfs below these roots. Returns false where none is known.
 */
bool harp_gpu_of_process(const char *proc_root, const char *sysfs_root, const char *const *environment,
                         struct harp_gpu *gpu);

/* Counts the GPUs of this host, seen by this process or not, whose PCI address comes before one. */
int harp_gpu_number(const char *sysfs_root, const char *pci);

/* Returns how near a PCI device (its real path, "" when there is none) on a NUMA node (-1: unknown) is: more
 * for each bridge above both, less without any, 0 when nothing is known. */
unsigned harp_gpu_nearness(const struct harp_gpu *gpu, const char *pci_path, int numa);

#endif
