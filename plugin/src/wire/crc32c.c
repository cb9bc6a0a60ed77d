/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the CRC32C kernel and passes calls to it.
 *
 * The choice is one pointer to a constant, read and written atomically; it starts at a kernel that chooses.
 * Threads that race through the first call write the same value. No constructor: nothing runs when the .so is
 * loaded. */
#include "wire/crc32c_kernel.h"

#include "base/assert.h"

static const struct harp_crc32c_kernel *const kernels[HARP_CRC32C_COUNT] = {
    [HARP_CRC32C_PORTABLE] = &harp_crc32c_portable, [HARP_CRC32C_SSE42] = &harp_crc32c_sse42,
    [HARP_CRC32C_AVX2] = &harp_crc32c_avx2,         [HARP_CRC32C_AVX512] = &harp_crc32c_avx512,
    [HARP_CRC32C_ARM64] = &harp_crc32c_arm64,
};

/* Fastest first. The portable one supports every CPU, so a search ends there. */
static const enum harp_crc32c_id preference[] = {HARP_CRC32C_AVX512, HARP_CRC32C_AVX2, HARP_CRC32C_SSE42,
                                                 HARP_CRC32C_ARM64, HARP_CRC32C_PORTABLE};

static uint32_t first_crc(uint32_t seed, const void *data, size_t bytes);
static uint32_t first_copy(uint32_t seed, void *dst, const void *src, size_t bytes);
static const struct harp_crc32c_kernel first = {.crc = first_crc, .copy = first_copy};

static const struct harp_crc32c_kernel *active = &first;
static uint64_t cpu_hwcap; /* argument of init, for select */

static const struct harp_crc32c_kernel *active_get(void) {
  return __atomic_load_n(&active, __ATOMIC_RELAXED);
}

static void active_set(const struct harp_crc32c_kernel *kernel) {
  __atomic_store_n(&active, kernel, __ATOMIC_RELAXED);
}

static bool runs_here(enum harp_crc32c_id id, uint64_t hwcap) {
  return kernels[id]->supported && kernels[id]->supported(hwcap);
}

void harp_crc32c_init(uint64_t hwcap) {
  size_t i = 0;

  while (!runs_here(preference[i], hwcap)) {
    i++;
    HARP_ASSERT(i < HARP_ARRAY_COUNT(preference));
  }
  __atomic_store_n(&cpu_hwcap, hwcap, __ATOMIC_RELAXED);
  active_set(kernels[preference[i]]);
}

bool harp_crc32c_select(enum harp_crc32c_id id) {
  HARP_ASSERT((unsigned)id < HARP_CRC32C_COUNT);
  if (!runs_here(id, __atomic_load_n(&cpu_hwcap, __ATOMIC_RELAXED))) return false;
  active_set(kernels[id]);
  return true;
}

enum harp_crc32c_id harp_crc32c_selected(void) {
  if (active_get() == &first) harp_crc32c_init(0);
  return active_get()->id;
}

const char *harp_crc32c_name(enum harp_crc32c_id id) {
  HARP_ASSERT((unsigned)id < HARP_CRC32C_COUNT);
  return kernels[id]->name;
}

static uint32_t first_crc(uint32_t seed, const void *data, size_t bytes) {
  harp_crc32c_init(0);
  return active_get()->crc(seed, data, bytes);
}

static uint32_t first_copy(uint32_t seed, void *dst, const void *src, size_t bytes) {
  harp_crc32c_init(0);
  return active_get()->copy(seed, dst, src, bytes);
}

uint32_t harp_crc32c(uint32_t seed, const void *data, size_t bytes) {
  return active_get()->crc(seed, data, bytes);
}

uint32_t harp_crc32c_copy(uint32_t seed, void *dst, const void *src, size_t bytes) {
  return active_get()->copy(seed, dst, src, bytes);
}
