/* SPDX-License-Identifier: Apache-2.0 */
/* A ring bitmap over line numbers: which 128-byte lines of a connection's line sequence are in a set.
 *
 * Both ends use it: the receiver marks lines that have arrived, the sender lines that must be sent again. It
 * holds HARP_WINDOW_LINES bits; the caller keeps all members inside one window of that many lines, so that a
 * line number modulo the window names one bit. Functions take half-open runs [line, line + count). Owned by a
 * stream; used by the thread that runs the engine's pass. */
#ifndef HARP_LINEMAP_H
#define HARP_LINEMAP_H

#include "base/base.h"

/* 16 MiB of payload: 100 Gbit/s over 1.3 ms, or four of NCCL's connection buffers. */
enum { HARP_LINE_BYTES = 128, HARP_WINDOW_LINES = 131072 };

struct harp_linemap {
  uint64_t words[HARP_WINDOW_LINES / 64];
};

/* Sets every bit of the run. */
void harp_linemap_set(struct harp_linemap *m, uint32_t line, uint32_t count);
/* Clears every bit of the run. */
void harp_linemap_clear(struct harp_linemap *m, uint32_t line, uint32_t count);

/* Returns how many lines in a row from `line` on have a bit equal to `value`, at most `limit`. */
uint32_t harp_linemap_run(const struct harp_linemap *m, uint32_t line, uint32_t limit, bool value);

/* Returns whether the line's bit is set. */
static inline bool harp_linemap_test(const struct harp_linemap *m, uint32_t line) {
  uint32_t bit = line % HARP_WINDOW_LINES;
  return m->words[bit / 64] >> (bit % 64) & 1;
}

#endif
