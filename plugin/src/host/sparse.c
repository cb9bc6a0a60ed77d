/* SPDX-License-Identifier: Apache-2.0 */
#include "host/sparse.h"

#include <sys/mman.h>
#include <unistd.h>

void *harp_sparse_map(size_t bytes) {
  void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return NULL;
  (void)madvise(base, bytes, MADV_NOHUGEPAGE); /* a kernel without huge pages refuses, and needs no advice */
  return base;
}

void harp_sparse_give_back(void *from, size_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = harp_align_up((uintptr_t)from, page),
            end = ((uintptr_t)from + bytes) & ~(page - 1);
  if (begin < end)
    (void)madvise((void *)begin, end - begin, MADV_DONTNEED); /* what the kernel keeps costs little */
}

void harp_sparse_unmap(void *base, size_t bytes) {
  if (base) munmap(base, bytes);
}
