/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a simulation: zeroed, and a program that cannot have it ends. */
#ifndef HARP_MODELS_MEMORY_H
#define HARP_MODELS_MEMORY_H

#include <stdlib.h>

#include "base/base.h"

/* Returns memory for an array, of one element at least; the caller frees it. */
static inline void *take_memory(size_t count, size_t bytes) {
  void *memory = calloc(HARP_MAX(count, (size_t)1), bytes);
  if (!memory) abort();
  return memory;
}

#endif
