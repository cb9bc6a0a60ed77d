/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of functions that NCCL calls by the names of CUDA and NVML, and that this program provides. */
#ifndef HARP_BOX_ENTRY_H
#define HARP_BOX_ENTRY_H

#include "base/base.h"

typedef void box_function(void);

struct box_entry {
  const char *name;
  box_function *function;
};

#define BOX_ENTRY(name, function)                                                                            \
  { name, (box_function *)(function) }

/* Return the function of this name, NULL if it is not provided. */
box_function *box_runtime_find(const char *name); /* cudaXxx (runtime.c, launch.c) */
box_function *box_driver_find(const char *name);  /* cuXxx (driver.c) */
box_function *box_nvml_find(const char *name);    /* nvmlXxx (nvml.c) */

extern const struct box_entry box_launch_entries[]; /* part of box_runtime_find's; ended by a NULL name */

/* Stands for every other function of the runtime: not supported. */
int box_runtime_unsupported(void);

/* Keeps an error for cudaGetLastError and returns it. */
int box_runtime_fail(int error);

/* Returns the stream of a CUDA handle; NULL: the device's own. */
struct box_stream *box_runtime_stream(void *handle);

#endif
