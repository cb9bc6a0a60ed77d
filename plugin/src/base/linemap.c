/* SPDX-License-Identifier: Apache-2.0 */
#include "base/linemap.h"

#include "base/assert.h"

/* The part of the run that lies in one word: its mask, and through *taken how many lines it covers. */
static uint64_t word_mask(uint32_t bit, uint32_t count, uint32_t *taken) {
  uint32_t in_word = HARP_MIN(count, 64 - bit % 64);
  uint64_t ones = in_word == 64 ? ~0ull : (1ull << in_word) - 1;
  *taken = in_word;
  return ones << (bit % 64);
}

void harp_linemap_set(struct harp_linemap *m, uint32_t line, uint32_t count) {
  HARP_ASSERT(count <= HARP_WINDOW_LINES);
  while (count) {
    uint32_t bit = line % HARP_WINDOW_LINES, taken;
    uint64_t mask = word_mask(bit, count, &taken);
    m->words[bit / 64] |= mask;
    line += taken, count -= taken;
  }
}

void harp_linemap_clear(struct harp_linemap *m, uint32_t line, uint32_t count) {
  HARP_ASSERT(count <= HARP_WINDOW_LINES);
  while (count) {
    uint32_t bit = line % HARP_WINDOW_LINES, taken;
    uint64_t mask = word_mask(bit, count, &taken);
    m->words[bit / 64] &= ~mask;
    line += taken, count -= taken;
  }
}

uint32_t harp_linemap_run(const struct harp_linemap *m, uint32_t line, uint32_t limit, bool value) {
  uint32_t run = 0;
  while (run < limit) {
    uint32_t bit = (line + run) % HARP_WINDOW_LINES;
    uint64_t word = m->words[bit / 64] >> (bit % 64);
    if (value) word = ~word;
    uint32_t in_word = 64 - bit % 64;
    uint32_t same = word ? (uint32_t)__builtin_ctzll(word) : 64;
    if (same < in_word) return HARP_MIN(run + same, limit);
    run += in_word;
  }
  return limit;
}
