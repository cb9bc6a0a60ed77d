/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/resend.h"

#include <string.h>

#include "base/assert.h"
#include "base/seq.h"

void harp_resend_init(struct harp_resend *r, uint32_t first_line) {
  memset(r, 0, sizeof *r);
  r->lowest = first_line;
}

/* Changes every bit of the run that isn't `value` yet; returns how many changed. */
static uint32_t set_lines(struct harp_resend *r, uint32_t line, uint32_t count, bool value) {
  uint32_t changed = 0;
  while (count) {
    uint32_t same = harp_linemap_run(&r->map, line, count, value);
    line += same, count -= same;
    uint32_t other = harp_linemap_run(&r->map, line, count, !value);
    if (value)
      harp_linemap_set(&r->map, line, other);
    else
      harp_linemap_clear(&r->map, line, other);
    changed += other;
    line += other, count -= other;
  }
  return changed;
}

void harp_resend_add(struct harp_resend *r, uint32_t line, uint32_t count, uint32_t delivered) {
  if (harp_seq_before(line, delivered)) {
    uint32_t gone = delivered - line;
    if (gone >= count) return;
    line += gone, count -= gone;
  }
  if (!r->count || harp_seq_before(line, r->lowest)) r->lowest = line;
  r->count += set_lines(r, line, count, true);
  HARP_ASSERT(r->count <= HARP_WINDOW_LINES);
}

void harp_resend_remove(struct harp_resend *r, uint32_t line, uint32_t count) {
  if (!r->count) return;
  /* Lines that were delivered long ago share their bits with lines one window later. */
  if (harp_seq_before(line, r->lowest)) {
    uint32_t before = r->lowest - line;
    if (before >= count) return;
    line += before, count -= before;
  }
  r->count -= set_lines(r, line, count, false);
}

uint32_t harp_resend_first(struct harp_resend *r, uint32_t limit, uint32_t *line) {
  if (!r->count) return 0;
  r->lowest += harp_linemap_run(&r->map, r->lowest, HARP_WINDOW_LINES, false);
  *line = r->lowest;
  uint32_t run = harp_linemap_run(&r->map, r->lowest, HARP_MIN(limit, r->count), true);
  HARP_ASSERT(run > 0);
  return run;
}
