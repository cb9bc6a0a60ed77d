/* See files.h. */
#include "io/files.h"

#include <stdatomic.h>
#include <unistd.h>

static _Atomic uint64_t owned[HARP_FILES_MAX / 64];

void harp_files_own(int fd) {
  if (fd >= 0 && fd < HARP_FILES_MAX) atomic_fetch_or(&owned[fd / 64], 1ull << (fd % 64));
}

void harp_files_close(int fd) {
  /* First: the number may be another thread's file as soon as it is closed. */
  if (fd >= 0 && fd < HARP_FILES_MAX) atomic_fetch_and(&owned[fd / 64], ~(1ull << (fd % 64)));
  close(fd);
}

void harp_files_close_copies(void) {
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(owned); i++)
    for (uint64_t bits = atomic_exchange(&owned[i], 0); bits; bits &= bits - 1)
      close((int)(i * 64) + __builtin_ctzll(bits));
}
