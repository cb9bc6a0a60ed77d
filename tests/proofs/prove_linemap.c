/* SPDX-License-Identifier: Apache-2.0 */
/* Property: `set` and `clear` change exactly the lines of their run, each line number modulo the window names
 * one bit, also where the number wraps at 2^32; `run` is the length of the run of equal bits, at most its
 * limit; `test` is the bit.
 *
 * Bound: a window of 256 lines, four words (the constant is reduced); every run of every length from lines
 * within 3 of a word's border, 0 and 2^32, into maps that have one other such run; with --long from every
 * line of the window. */
#include "base/linemap.h"

#include <string.h>

#include "proofs/prove.h"

enum { LINES = HARP_WINDOW_LINES, WORD = 64, NEAR = 3 };
_Static_assert(LINES == 4 * WORD, "reduced by test_proofs.py");

static uint32_t choose_line(void) {
  uint32_t line;
  if (prove_is_long) {
    line = prove_choose(LINES);
  } else {
    uint32_t border = prove_choose(LINES / WORD) * WORD;
    line = (border + prove_choose(2 * NEAR) + LINES - NEAR) % LINES;
  }
  return prove_choose(2) ? line : line - LINES; /* runs that pass 2^32 */
}

static bool is_in(uint32_t bit, uint32_t line, uint32_t count) {
  return (bit + LINES - line % LINES) % LINES < count;
}

static void fill(struct harp_linemap *m, bool model[LINES], uint32_t line, uint32_t count, bool value) {
  if (value)
    harp_linemap_set(m, line, count);
  else
    harp_linemap_clear(m, line, count);
  for (uint32_t i = 0; i < LINES; i++)
    if (is_in(i, line, count)) model[i] = value;
  for (uint32_t i = 0; i < LINES; i++)
    if (harp_linemap_test(m, i) != model[i]) PROVE(!"a bit is another than that of the model");
}

static uint32_t model_run(const bool model[LINES], uint32_t line, uint32_t limit, bool value) {
  uint32_t run = 0;
  while (run < limit && model[(line + run) % LINES] == value) run++;
  return run;
}

static void proof(void) {
  struct harp_linemap m;
  bool model[LINES], value = prove_choose(2);
  memset(&m, value ? 0 : 0xff, sizeof m);
  memset(model, !value, sizeof model);
  uint32_t first = choose_line(), second = choose_line();
  for (uint32_t count = 0; count <= LINES; count += prove_is_long ? 1 : 5) {
    struct harp_linemap copy = m;
    bool copied[LINES];
    memcpy(copied, model, sizeof model);
    fill(&copy, copied, first, count, value);
    fill(&copy, copied, second, LINES - count, !value);
    for (uint32_t limit = 0; limit <= LINES; limit += WORD / 2 + 1) {
      PROVE(harp_linemap_run(&copy, second, limit, value) == model_run(copied, second, limit, value));
      PROVE(harp_linemap_run(&copy, second, limit, !value) == model_run(copied, second, limit, !value));
      PROVE(harp_linemap_run(&copy, first, limit, value) == model_run(copied, first, limit, value));
    }
  }
}

int main(int argc, char **argv) {
  return prove_main(argc, argv, proof);
}
