/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include "log.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, UNMAP_MIN_BYTES = 256 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct box_block *blocks; /* in no order: there are some hundred, and they are seldom looked for */
static size_t block_count, block_room, taken_bytes;

void *box_memory_take(size_t bytes, bool is_host, int device) {
  size_t mapped = harp_align_up(HARP_MAX(bytes, 1), PAGE_BYTES);
  void *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return NULL;
  pthread_mutex_lock(&lock);
  if (block_count == block_room) {
    block_room = block_room ? block_room * 2 : 256;
    blocks = box_grow(blocks, block_room * sizeof *blocks);
  }
  blocks[block_count++] = (struct box_block){(uintptr_t)at, HARP_MAX(bytes, 1), mapped, is_host, device};
  taken_bytes += mapped;
  pthread_mutex_unlock(&lock);
  return at;
}

bool box_memory_give(void *at) {
  if (!at) return true;
  size_t mapped = 0;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < block_count && !mapped; i++) {
    if (blocks[i].begin != (uintptr_t)at) continue;
    mapped = blocks[i].mapped_bytes;
    blocks[i] = blocks[--block_count];
  }
  taken_bytes -= mapped;
  pthread_mutex_unlock(&lock);
  if (mapped) munmap(at, mapped);
  return mapped;
}

bool box_memory_find(const void *at, struct box_block *block) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < block_count && !found; i++) {
    found = (uintptr_t)at - blocks[i].begin < blocks[i].bytes;
    if (found) *block = blocks[i];
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void box_memory_set(void *at, int value, size_t bytes) {
  struct box_block block;
  if (value || bytes < UNMAP_MIN_BYTES || !box_memory_find(at, &block)) {
    memset(at, value, bytes);
    return;
  }
  uintptr_t begin = (uintptr_t)at, end = begin + bytes;
  uintptr_t first = harp_align_up(begin, PAGE_BYTES), last = end & ~(uintptr_t)(PAGE_BYTES - 1);
  if (madvise((void *)first, last - first, MADV_DONTNEED)) memset((void *)first, 0, last - first);
  memset(at, 0, first - begin);
  memset((void *)last, 0, end - last);
}

size_t box_memory_taken(void) {
  pthread_mutex_lock(&lock);
  size_t taken = taken_bytes;
  pthread_mutex_unlock(&lock);
  return taken;
}
