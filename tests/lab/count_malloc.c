/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a process: counts its heap allocations and mappings in a file that others can read
 * meanwhile. The file's name is in COUNT_MALLOC_FILE; it holds one 64-bit count. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static _Atomic uint64_t before_start;
static _Atomic uint64_t *calls = &before_start;

static void count(void) {
  atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);
}

void *malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
  count();
  return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes) {
  count();
  return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
  count();
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : 12;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static void *(*next)(void *, size_t, int, int, int, off_t);
  if (!next) *(void **)&next = dlsym(RTLD_NEXT, "mmap");
  count();
  return next(at, bytes, protection, flags, fd, offset);
}

__attribute__((constructor)) static void start(void) {
  const char *name = getenv("COUNT_MALLOC_FILE");
  int fd = name ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0 || ftruncate(fd, sizeof(uint64_t))) return;
  void *shared = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (shared == MAP_FAILED) return;
  *(uint64_t *)shared = before_start;
  calls = shared;
}
