/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the MAC of a packet (wire/mac.h): GB/s of each kernel, best of several rounds, over packets that
 * stay in L1 or L2 and over 16 MiB, which stay in neither. Build and run from plugin/:
 *
 *   cc -std=gnu11 -O2 -D_GNU_SOURCE -Isrc -o build/mac_bench ../tests/bench/mac_bench.c src/wire/mac.c \
 *      src/wire/polyval*.c src/wire/siphash.c src/base/assert.c
 *   build/mac_bench */
#include "wire/mac.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <time.h>

enum { ROUNDS = 15, ROUND_BYTES = 16 << 20, SMALL_SPAN_BYTES = 16 << 10, L2_SPAN_BYTES = 512 << 10 };
enum { COLD_SPAN_BYTES = 16 << 20 };

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the best rate, in GB/s, of MACs of packets of `bytes` out of `span_bytes`. */
static double rate(const struct harp_mac_key *key, const uint8_t *src, uint32_t bytes, size_t span_bytes) {
  static volatile bool sink;
  size_t stride = bytes + HARP_MAC_BYTES, packets = HARP_MAX(span_bytes / stride, (size_t)1);
  size_t sweeps = ROUND_BYTES / (packets * bytes) + 1;
  double best_s = 1e9;
  for (int round = 0; round < ROUNDS; round++) {
    bool any = false;
    double start_s = now_s(), took_s;
    for (size_t s = 0; s < sweeps; s++)
      for (size_t p = 0; p < packets; p++) any |= harp_mac_ok(key, src + p * stride, bytes, s * packets + p);
    took_s = now_s() - start_s;
    if (took_s < best_s) best_s = took_s;
    sink = any;
  }
  (void)sink;
  return 1e-9 * (double)(sweeps * packets * bytes) / best_s;
}

int main(void) {
  static const uint32_t sizes[] = {48, 172, 1452, 8192, 8876, 65536};
  const struct harp_mac_secret secret = {.hash = {1, 2, 3}, .tag = {4, 5, 6}};
  struct harp_mac_key key;
  uint8_t *src = malloc(COLD_SPAN_BYTES + (65536 + HARP_MAC_BYTES));
  if (!src) return 1;
  for (size_t i = 0; i < COLD_SPAN_BYTES + 65536 + HARP_MAC_BYTES; i++)
    src[i] = (uint8_t)(i * 2654435761u >> 13);
  harp_polyval_init((uint64_t)getauxval(AT_HWCAP));
  harp_mac_key_init(&key, &secret);
  printf("%-10s %7s %8s %8s %8s   GB/s\n", "kernel", "bytes", "L1", "L2", "16 MiB");
  for (unsigned k = 0; k < HARP_POLYVAL_COUNT; k++) {
    if (!harp_polyval_select((enum harp_polyval_id)k)) continue;
    for (size_t i = 0; i < HARP_ARRAY_COUNT(sizes); i++)
      printf("%-10s %7u %8.1f %8.1f %8.1f\n", harp_polyval_name((enum harp_polyval_id)k), sizes[i],
             rate(&key, src, sizes[i], SMALL_SPAN_BYTES), rate(&key, src, sizes[i], L2_SPAN_BYTES),
             rate(&key, src, sizes[i], COLD_SPAN_BYTES));
  }
  free(src);
  return 0;
}
