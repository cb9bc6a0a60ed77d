/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ranges.h"

#include <string.h>

static void remove_at(struct harp_ranges *r, uint32_t i) {
  memmove(&r->at[i], &r->at[i + 1], (r->count - i - 1) * sizeof r->at[0]);
  r->count--;
}

bool harp_ranges_insert(struct harp_ranges *r, uint64_t number) {
  uint32_t i = 0;
  while (i < r->count && number < r->at[i].begin) i++;
  /* Here at[i] is the highest range that begins at or below number. */
  if (i < r->count && number < r->at[i].end) return false;
  bool joins_lower = i < r->count && r->at[i].end == number;
  bool joins_upper = i > 0 && r->at[i - 1].begin == number + 1;
  if (joins_lower && joins_upper) {
    r->at[i - 1].begin = r->at[i].begin;
    remove_at(r, i);
  } else if (joins_lower) {
    r->at[i].end++;
  } else if (joins_upper) {
    r->at[i - 1].begin--;
  } else {
    if (i == HARP_RANGES_MAX) return false;
    if (r->count == HARP_RANGES_MAX) r->count--;
    memmove(&r->at[i + 1], &r->at[i], (r->count - i) * sizeof r->at[0]);
    r->at[i] = (struct harp_range){number, number + 1};
    r->count++;
  }
  return true;
}

bool harp_ranges_has(const struct harp_ranges *r, uint64_t number) {
  uint32_t i = 0;
  while (i < r->count && number < r->at[i].begin) i++;
  return i < r->count && number < r->at[i].end;
}

void harp_ranges_forget_below(struct harp_ranges *r, uint64_t number) {
  while (r->count > 1 && r->at[r->count - 1].end <= number) r->count--;
}
