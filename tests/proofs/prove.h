/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs by exhaustion: a proof is a function that asks for choices; it is run once for every sequence of
 * choices, and asserts its property in each run.
 *
 * Each proof includes or links the project's own source files, and states its property and its bound in its
 * head. test_proofs.py builds it, runs it, and runs it again over copies of those files with a mistake in
 * each, which it must find. A failure prints its choices; `PROOF --replay C,C,...` repeats that run. */
#ifndef HARP_PROVE_H
#define HARP_PROVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the longer bounds were asked for with --long. */
extern bool prove_is_long;

/* Returns every number below `count` in turn, one in each run; count > 0. */
uint32_t prove_choose(uint32_t count);

/* Ends this run: what was chosen is outside the bound, or the same as another run. Does not return. */
_Noreturn void prove_skip(void);

_Noreturn void prove_failed(const char *file, int line, const char *what);
#define PROVE(x) ((x) ? (void)0 : prove_failed(__FILE__, __LINE__, #x))

/* Runs the proof for every sequence of choices and prints how many there were. Returns what main returns. */
int prove_main(int argc, char **argv, void (*proof)(void));

#endif
