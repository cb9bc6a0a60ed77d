/* SPDX-License-Identifier: Apache-2.0 */
/* "Device" memory and pinned host memory: both are ordinary pages, and are distinguished as CUDA does. Any
 * thread. */
#ifndef HARP_BOX_MEMORY_H
#define HARP_BOX_MEMORY_H

#include "base/base.h"

struct box_block {
  uintptr_t begin;
  size_t bytes, mapped_bytes;
  bool is_host;
  int device;
};

/* Returns zeroed memory, or NULL. */
void *box_memory_take(size_t bytes, bool is_host, int device);

/* Frees a block by its first byte; returns false if there is no such block. Ignores NULL. */
bool box_memory_give(void *at);

/* Finds the block that holds an address; returns false if there is none. */
bool box_memory_find(const void *at, struct box_block *block);

/* Sets bytes. NCCL clears much more than it uses: whole pages are returned to the kernel instead. */
void box_memory_set(void *at, int value, size_t bytes);

/* Returns how many bytes are taken. */
size_t box_memory_taken(void);

#endif
