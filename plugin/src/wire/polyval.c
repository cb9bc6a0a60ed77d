/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the POLYVAL kernel and passes calls to it, as crc32c.c does. */
#include "wire/polyval_kernel.h"

#include <string.h>

#include "base/assert.h"

static const struct harp_polyval_kernel *const kernels[HARP_POLYVAL_COUNT] = {
    [HARP_POLYVAL_PORTABLE] = &harp_polyval_portable,
    [HARP_POLYVAL_CLMUL] = &harp_polyval_clmul,
    [HARP_POLYVAL_AVX512] = &harp_polyval_avx512,
    [HARP_POLYVAL_ARM64] = &harp_polyval_arm64,
};

/* Fastest first. The portable one supports every CPU, so a search ends there. */
static const enum harp_polyval_id preference[] = {HARP_POLYVAL_AVX512, HARP_POLYVAL_CLMUL, HARP_POLYVAL_ARM64,
                                                  HARP_POLYVAL_PORTABLE};

static void first_add(const struct harp_polyval_key *key, uint8_t *sum, const void *data, size_t bytes);
static const struct harp_polyval_kernel first = {.add = first_add};

static const struct harp_polyval_kernel *active = &first;
static uint64_t cpu_hwcap; /* argument of init, for select */

static const struct harp_polyval_kernel *active_get(void) {
  return __atomic_load_n(&active, __ATOMIC_RELAXED);
}

static void active_set(const struct harp_polyval_kernel *kernel) {
  __atomic_store_n(&active, kernel, __ATOMIC_RELAXED);
}

static bool runs_here(enum harp_polyval_id id, uint64_t hwcap) {
  return kernels[id]->supported && kernels[id]->supported(hwcap);
}

void harp_polyval_init(uint64_t hwcap) {
  size_t i = 0;
  while (!runs_here(preference[i], hwcap)) {
    i++;
    HARP_ASSERT(i < HARP_ARRAY_COUNT(preference));
  }
  __atomic_store_n(&cpu_hwcap, hwcap, __ATOMIC_RELAXED);
  active_set(kernels[preference[i]]);
}

bool harp_polyval_select(enum harp_polyval_id id) {
  HARP_ASSERT((unsigned)id < HARP_POLYVAL_COUNT);
  if (!runs_here(id, __atomic_load_n(&cpu_hwcap, __ATOMIC_RELAXED))) return false;
  active_set(kernels[id]);
  return true;
}

const char *harp_polyval_name(enum harp_polyval_id id) {
  HARP_ASSERT((unsigned)id < HARP_POLYVAL_COUNT);
  return kernels[id]->name;
}

void harp_polyval_key_init(struct harp_polyval_key *key, const uint8_t h[HARP_POLYVAL_BYTES]) {
  uint8_t(*powers)[HARP_POLYVAL_BYTES] = key->powers;
  memcpy(powers[HARP_POLYVAL_POWERS - 1], h, HARP_POLYVAL_BYTES);
  for (int i = HARP_POLYVAL_POWERS - 2; i >= 0; i--) harp_polyval_dot(powers[i + 1], h, powers[i]);
}

static void first_add(const struct harp_polyval_key *key, uint8_t *sum, const void *data, size_t bytes) {
  harp_polyval_init(0);
  active_get()->add(key, sum, data, bytes);
}

void harp_polyval_add(const struct harp_polyval_key *key, uint8_t sum[HARP_POLYVAL_BYTES], const void *data,
                      size_t bytes) {
  active_get()->add(key, sum, data, bytes);
}
