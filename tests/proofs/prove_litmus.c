/* SPDX-License-Identifier: Apache-2.0 */
/* Property of the other proofs' memory model (memory.h): it shows all outcomes that C11 allows, and no other,
 * of the small programs that are known to tell memory models apart: store buffering, message passing, two
 * reads of one location, independent reads of independent writes, write-to-read causality.
 *
 * Bound: these programs. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "proofs/memory.h"

static _Atomic uint32_t x, y;
static uint32_t plain_item;
static unsigned seen; /* what the loads of a run have read, a bit each */

__attribute__((no_sanitize("thread"), noinline)) static void note(unsigned bit, uint32_t value) {
  seen |= value << bit;
}

#define STORE(at, order) atomic_store_explicit(&at, 1, memory_order_##order)
#define LOAD(at, order)  atomic_load_explicit(&at, memory_order_##order)

#define THREAD(name, ...)                                                                                    \
  static void name(void) {                                                                                   \
    __VA_ARGS__;                                                                                             \
  }
THREAD(sb_relaxed_0, STORE(x, relaxed); note(0, LOAD(y, relaxed)))
THREAD(sb_relaxed_1, STORE(y, relaxed); note(1, LOAD(x, relaxed)))
THREAD(sb_acq_rel_0, STORE(x, release); note(0, LOAD(y, acquire)))
THREAD(sb_acq_rel_1, STORE(y, release); note(1, LOAD(x, acquire)))
THREAD(sb_sc_0, STORE(x, seq_cst); note(0, LOAD(y, seq_cst)))
THREAD(sb_sc_1, STORE(y, seq_cst); note(1, LOAD(x, seq_cst)))
THREAD(mp_relaxed_0, STORE(x, relaxed); STORE(y, relaxed))
THREAD(mp_relaxed_1, note(0, LOAD(y, relaxed)); note(1, LOAD(x, relaxed)))
THREAD(mp_0, STORE(x, relaxed); STORE(y, release))
THREAD(mp_1, note(0, LOAD(y, acquire)); note(1, LOAD(x, relaxed)))
THREAD(rmw_0, STORE(x, relaxed); atomic_fetch_or_explicit(&y, 1, memory_order_release))
THREAD(rmw_1, note(0, atomic_exchange_explicit(&y, 0, memory_order_acquire)); note(1, LOAD(x, relaxed)))
THREAD(corr_0, STORE(x, relaxed))
THREAD(corr_1, note(0, LOAD(x, relaxed)); note(1, LOAD(x, relaxed)))
THREAD(iriw_0, STORE(x, release))
THREAD(iriw_1, STORE(y, release))
THREAD(iriw_2, note(0, LOAD(x, acquire)); note(1, LOAD(y, acquire)))
THREAD(iriw_3, note(2, LOAD(y, acquire)); note(3, LOAD(x, acquire)))
THREAD(iriw_sc_0, STORE(x, seq_cst))
THREAD(iriw_sc_1, STORE(y, seq_cst))
THREAD(iriw_sc_2, note(0, LOAD(x, seq_cst)); note(1, LOAD(y, seq_cst)))
THREAD(iriw_sc_3, note(2, LOAD(y, seq_cst)); note(3, LOAD(x, seq_cst)))
THREAD(wrc_1, uint32_t v = LOAD(x, acquire); note(0, v); if (v) STORE(y, release))
THREAD(wrc_2, note(1, LOAD(y, acquire)); note(2, LOAD(x, relaxed)))
THREAD(plain_0, plain_item = 1; STORE(y, release))
THREAD(plain_1, uint32_t v = LOAD(y, acquire); note(0, v); if (v) note(1, plain_item))

#define ONLY(outcome) (1u << (outcome))

static const struct program {
  const char *name;
  unsigned count;
  void (*threads[MEMORY_THREADS_MAX])(void);
  uint32_t outcomes; /* those of all values of `seen` that are allowed, a bit each */
} programs[] = {
    {"store buffering, relaxed", 2, {sb_relaxed_0, sb_relaxed_1}, 0xf},
    {"store buffering, acquire and release", 2, {sb_acq_rel_0, sb_acq_rel_1}, 0xf},
    {"store buffering, sequentially consistent", 2, {sb_sc_0, sb_sc_1}, 0xf & ~ONLY(0)},
    {"message passing, relaxed", 2, {mp_relaxed_0, mp_relaxed_1}, 0xf},
    {"message passing, acquire and release", 2, {mp_0, mp_1}, 0xf & ~ONLY(1)},
    {"message passing by read-modify-writes", 2, {rmw_0, rmw_1}, 0xf & ~ONLY(1)},
    {"two reads of one location", 2, {corr_0, corr_1}, 0xf & ~ONLY(1)},
    {"independent reads, acquire and release", 4, {iriw_0, iriw_1, iriw_2, iriw_3}, 0xffff},
    {"independent reads, sequentially consistent",
     4,
     {iriw_sc_0, iriw_sc_1, iriw_sc_2, iriw_sc_3},
     0xffff & ~ONLY(5)},
    {"causality", 3, {corr_0, wrc_1, wrc_2}, 0xff & ~ONLY(2) & ~ONLY(3) & ~ONLY(6)},
    {"a plain access behind an acquire", 2, {plain_0, plain_1}, ONLY(0) | ONLY(3)},
};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

static uint32_t outcomes[PROGRAMS];

static void proof(void) {
  uint32_t which = prove_choose(PROGRAMS);
  x = y = seen = plain_item = 0;
  PROVE(memory_run(programs[which].threads, programs[which].count));
  outcomes[which] |= 1u << seen;
}

int main(int argc, char **argv) {
  int result = prove_main(argc, argv, proof);
  for (unsigned i = 0; i < PROGRAMS; i++) {
    if (outcomes[i] == programs[i].outcomes) continue;
    fprintf(stderr, "%s: outcomes %#x, not %#x\n", programs[i].name, outcomes[i], programs[i].outcomes);
    result = 1;
  }
  return result;
}
