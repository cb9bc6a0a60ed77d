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
    r->at[i - 1].reported = 0;
    remove_at(r, i);
  } else if (joins_lower) {
    r->at[i].end++;
    r->at[i].reported = 0;
  } else if (joins_upper) {
    r->at[i - 1].begin--;
    r->at[i - 1].reported = 0;
  } else {
    if (i == HARP_RANGES_MAX) return false;
    if (r->count == HARP_RANGES_MAX) r->count--;
    memmove(&r->at[i + 1], &r->at[i], (r->count - i) * sizeof r->at[0]);
    r->at[i] = (struct harp_range){number, number + 1, 0};
    r->count++;
  }
  return true;
}

void harp_ranges_on_reported(struct harp_ranges *r, uint32_t enough) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < r->count; i++) {
    if (++r->at[i].reported < enough || i == 0) r->at[kept++] = r->at[i];
  }
  r->count = kept;
}
