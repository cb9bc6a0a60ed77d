/* SPDX-License-Identifier: Apache-2.0 */
#include "proofs/prove.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { CHOICES_MAX = 4096 };

bool prove_is_long;

static uint32_t chosen[CHOICES_MAX], counts[CHOICES_MAX];
static uint32_t depth, known; /* choices of this run so far; those that are given */
static bool is_replay;
static jmp_buf run_end;

static void print_choices(void) {
  fprintf(stderr, "choices: --replay ");
  for (uint32_t i = 0; i < depth; i++) fprintf(stderr, "%s%" PRIu32, i ? "," : "", chosen[i]);
  fprintf(stderr, "%s\n", depth ? "" : "''");
}

_Noreturn void prove_failed(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
  print_choices();
  exit(1);
}

/* The product's own assertions are properties as well. */
_Noreturn void harp_assert_failed(const char *file, int line, const char *expr) {
  prove_failed(file, line, expr);
}

uint32_t prove_choose(uint32_t count) {
  PROVE(count);
  PROVE(depth < CHOICES_MAX);
  if (depth == known) chosen[known++] = 0;
  counts[depth] = count;
  PROVE(chosen[depth] < count); /* a proof makes the same choices again */
  return chosen[depth++];
}

_Noreturn void prove_skip(void) {
  longjmp(run_end, 1);
}

/* Moves on to the next sequence of choices; false: that was the last one. */
static bool advance(void) {
  known = depth;
  while (known && chosen[known - 1] + 1 == counts[known - 1]) known--;
  if (!known) return false;
  chosen[known - 1]++;
  return true;
}

static void read_replay(const char *text) {
  is_replay = true;
  for (char *end; *text; text = *end ? end + 1 : end) {
    chosen[known++] = (uint32_t)strtoul(text, &end, 10);
    if (end == text || known == CHOICES_MAX) break;
  }
}

int prove_main(int argc, char **argv, void (*proof)(void)) {
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--long"))
      prove_is_long = true;
    else if (!strcmp(argv[i], "--replay") && i + 1 < argc)
      read_replay(argv[++i]);
    else
      return fprintf(stderr, "usage: %s [--long] [--replay C,C,...]\n", argv[0]), 2;
  }
  volatile uint64_t runs = 0, skipped = 0;
  do {
    depth = 0;
    if (setjmp(run_end))
      skipped++;
    else
      proof();
    runs++;
  } while (!is_replay && advance());
  printf("holds in %" PRIu64 " runs, and %" PRIu64 " that were skipped\n", runs - skipped, skipped);
  return runs == skipped; /* a proof of nothing */
}
