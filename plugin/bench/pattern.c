/* SPDX-License-Identifier: Apache-2.0 */
#include "pattern.h"

#include <string.h>

#define STEP UINT64_C(0x9E3779B97F4A7C15) /* odd, all byte lanes busy */
enum { WORDS = 8 }; /* per turn of the loops below: enough for the compiler to vectorise */

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}

uint64_t harp_pattern_key(int from, int to, unsigned index, uint64_t sequence) {
  uint64_t flow = (uint64_t)(unsigned)from << 40 | (uint64_t)(unsigned)to << 20 | index;
  return mix(mix(flow + 1) + sequence * STEP);
}

void harp_pattern_fill(void *data, size_t bytes, uint64_t key) {
  uint64_t *word = data;
  for (; bytes >= WORDS * sizeof *word; bytes -= WORDS * sizeof *word, word += WORDS, key += WORDS * STEP)
    for (unsigned i = 0; i < WORDS; i++) word[i] = key + i * STEP;
  for (; bytes >= sizeof *word; bytes -= sizeof *word, word++, key += STEP) *word = key;
  memcpy(word, &key, bytes);
}

bool harp_pattern_check(const void *data, size_t bytes, uint64_t key) {
  const uint64_t *word = data;
  uint64_t bad = 0;
  for (; bytes >= WORDS * sizeof *word; bytes -= WORDS * sizeof *word, word += WORDS, key += WORDS * STEP)
    for (unsigned i = 0; i < WORDS; i++) bad |= word[i] ^ (key + i * STEP);
  for (; bytes >= sizeof *word; bytes -= sizeof *word, word++, key += STEP) bad |= *word ^ key;
  return !bad && !memcmp(word, &key, bytes);
}

uint8_t harp_pattern_byte(size_t offset, uint64_t key) {
  uint64_t word = key + offset / sizeof word * STEP;
  uint8_t lanes[sizeof word];
  memcpy(lanes, &word, sizeof word);
  return lanes[offset % sizeof word];
}

size_t harp_pattern_find_wrong(const void *data, size_t bytes, uint64_t key) {
  const uint8_t *at = data;
  for (size_t offset = 0; offset < bytes; offset++)
    if (at[offset] != harp_pattern_byte(offset, key)) return offset;
  return bytes;
}
