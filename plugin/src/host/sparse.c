/* SPDX-License-Identifier: Apache-2.0 */
#include "host/sparse.h"

#include <sys/mman.h>

void *harp_sparse_map(size_t bytes) {
  void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return NULL;
  (void)madvise(base, bytes, MADV_NOHUGEPAGE); /* fails where the kernel has no huge pages: as well */
  return base;
}

void harp_sparse_unmap(void *base, size_t bytes) {
  if (base) munmap(base, bytes);
}
