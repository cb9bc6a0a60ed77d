/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the CRC32C kernels: GB/s of the checksum and of the fused copy, best of several rounds, against
 * memcpy.
 *
 * One thread, no output but the table. Columns: bytes per call; then the checksum alone over a buffer that
 * stays in L1 or L2, and over one of 16 MiB, which stays in neither; then copies whose source and destination
 * walk over `L2_SPAN_BYTES` each, so that they come from L2; the destination stands 44 bytes off alignment,
 * where a packet's payload does. Build and run from plugin/:
 *
 *   cc -std=gnu11 -O2 -D_GNU_SOURCE -Isrc -o build/crc_bench ../tests/bench/crc_bench.c src/wire/crc32c*.c \
 *      src/base/assert.c
 *   build/crc_bench
 *
 * On aarch64 it passes AT_HWCAP to harp_crc32c_init, as the plugin does. */
#include "wire/crc32c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>

enum {
  ROUNDS = 15,
  ROUND_BYTES = 16 << 20,
  SMALL_SPAN_BYTES = 16 << 10,
  L2_SPAN_BYTES = 512 << 10,
  COLD_SPAN_BYTES = 16 << 20,
  OFFSET_BYTES = 44,
};

typedef uint32_t (*work_fn)(uint32_t seed, void *dst, const void *src, size_t bytes);

static uint32_t work_crc(uint32_t seed, void *dst, const void *src, size_t bytes) {
  (void)dst;
  return harp_crc32c(seed, src, bytes);
}

static uint32_t work_copy(uint32_t seed, void *dst, const void *src, size_t bytes) {
  return harp_crc32c_copy(seed, dst, src, bytes);
}

static uint32_t work_memcpy(uint32_t seed, void *dst, const void *src, size_t bytes) {
  memcpy(dst, src, bytes);
  return seed;
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the best rate, in GB/s, of `work` on pieces of `bytes` out of `span_bytes`. Calls don't depend on
 * each other. */
static double rate(work_fn work, uint8_t *dst, const uint8_t *src, size_t bytes, size_t span_bytes) {
  static volatile uint32_t sink;
  size_t pieces = HARP_MAX(span_bytes / bytes, (size_t)1);
  size_t sweeps = ROUND_BYTES / (pieces * bytes) + 1;
  double best_s = 1e9;

  for (int round = 0; round < ROUNDS; round++) {
    uint32_t sum = 0;
    double start_s = now_s(), took_s;

    for (size_t s = 0; s < sweeps; s++)
      for (size_t p = 0; p < pieces; p++) {
        sum ^= work(0, dst + p * bytes, src + p * bytes, bytes);
        __asm__ volatile("" : : : "memory");
      }
    took_s = now_s() - start_s;
    if (took_s < best_s) best_s = took_s;
    sink = sum;
  }
  (void)sink;
  return 1e-9 * (double)(sweeps * pieces * bytes) / best_s;
}

int main(void) {
  static const size_t sizes[] = {44, 64, 128, 1408, 8832, 65536};
  size_t room_bytes = COLD_SPAN_BYTES + 65536 + 4096;
  uint8_t *src = aligned_alloc(4096, room_bytes), *dst = aligned_alloc(4096, room_bytes);

  if (!src || !dst) return 1;
  for (size_t i = 0; i < room_bytes; i++) src[i] = (uint8_t)(i * 2654435761u >> 13);
  memset(dst, 0, room_bytes);
  harp_crc32c_init((uint64_t)getauxval(AT_HWCAP));
  printf("chosen: %s\n%-10s %7s %12s %12s %12s %14s %14s\n", harp_crc32c_name(harp_crc32c_selected()), "GB/s",
         "bytes", "crc L1", "crc L2", "crc 16 MiB", "copy aligned", "copy +44");
  for (size_t i = 0; i < HARP_ARRAY_COUNT(sizes); i++)
    printf("%-10s %7zu %12s %12s %12s %14.1f %14.1f\n", "memcpy", sizes[i], "", "", "",
           rate(work_memcpy, dst, src, sizes[i], L2_SPAN_BYTES),
           rate(work_memcpy, dst + OFFSET_BYTES, src, sizes[i], L2_SPAN_BYTES));
  for (unsigned k = 0; k < HARP_CRC32C_COUNT; k++) {
    if (!harp_crc32c_select((enum harp_crc32c_id)k)) continue;
    for (size_t i = 0; i < HARP_ARRAY_COUNT(sizes); i++)
      printf("%-10s %7zu %12.1f %12.1f %12.1f %14.1f %14.1f\n", harp_crc32c_name((enum harp_crc32c_id)k),
             sizes[i], rate(work_crc, dst, src, sizes[i], SMALL_SPAN_BYTES),
             rate(work_crc, dst, src, sizes[i], L2_SPAN_BYTES),
             rate(work_crc, dst, src, sizes[i], COLD_SPAN_BYTES),
             rate(work_copy, dst, src, sizes[i], L2_SPAN_BYTES),
             rate(work_copy, dst + OFFSET_BYTES, src, sizes[i], L2_SPAN_BYTES));
  }
  free(src);
  free(dst);
  return 0;
}
