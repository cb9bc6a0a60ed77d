/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_skip.h"

#include "base/assert.h"

static uint64_t next_random(struct harp_path_skip *k) { /* Marsaglia, 2003 */
  k->random ^= k->random << 13;
  k->random ^= k->random >> 7;
  k->random ^= k->random << 17;
  return k->random >> 16; /* the upper bits are the better ones */
}

static void plan_gap(struct harp_path_skip *k, uint64_t number) {
  k->at_number = number + HARP_PATH_SKIP_GAP_MIN + next_random(k) % (2 * HARP_PATH_SKIP_GAP_MIN);
}

void harp_path_skip_init(struct harp_path_skip *k, uint64_t first_number, uint64_t seed) {
  *k = (struct harp_path_skip){.random = seed, .at_number = UINT64_MAX};
  if (seed) plan_gap(k, first_number);
}

uint64_t harp_path_skip_gap(struct harp_path_skip *k, uint64_t number) {
  HARP_ASSERT(k->random);
  uint8_t count = (uint8_t)(1u << next_random(k) % HARP_PATH_SKIP_DOUBLINGS);
  k->begins[k->oldest] = number;
  k->counts[k->oldest] = count;
  k->oldest = (k->oldest + 1) % HARP_PATH_SKIPS_KEPT;
  k->skipped += count;
  plan_gap(k, number + count);
  return number + count;
}
