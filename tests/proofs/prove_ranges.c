/* SPDX-License-Identifier: Apache-2.0 */
/* Property: a set of packet numbers is what a set is: `add` takes exactly what is not in it; its ranges are
 * the maximal runs of its members, disjoint, not adjacent, newest first; a full set gives up its oldest range
 * and nothing else, and takes nothing below; `forget_below` removes the ranges that end at or below a number,
 * except the newest, and nothing else.
 *
 * Bound: sets of at most 3 ranges (the constant is reduced), all sequences of 5 calls over 8 numbers, with
 * --long of 6. */
#include "base/ranges.h"
#include "proofs/prove.h"

enum { NUMBERS = 8, CALLS = 5 };
_Static_assert(HARP_RANGES_MAX == 3, "reduced by test_proofs.py, so that sets are full");

static const uint64_t base = UINT32_MAX - 3; /* what is kept is wider than 32 bits */

/* Returns how many runs of members there are. */
static uint32_t count_runs(uint32_t members) {
  return (uint32_t)__builtin_popcount(members & ~(members << 1));
}

/* Returns the members of the lowest run. */
static uint32_t lowest_run(uint32_t members) {
  uint32_t low = members & -members;
  return members & ~(members + low);
}

static void check(const struct harp_ranges *r, uint32_t members) {
  uint32_t seen = 0;
  PROVE(r->count == count_runs(members));
  for (uint32_t i = 0; i < r->count; i++) {
    const struct harp_range *at = &r->at[i];
    PROVE(at->begin < at->end && at->begin >= base && at->end <= base + NUMBERS);
    PROVE(!i || at->end < r->at[i - 1].begin);
    for (uint64_t n = at->begin; n < at->end; n++) seen |= 1u << (n - base);
  }
  PROVE(seen == members);
}

static uint32_t add(struct harp_ranges *r, uint32_t number, uint32_t members) {
  uint32_t with = members | 1u << number;
  bool is_new = with != members;
  if (is_new && count_runs(with) > HARP_RANGES_MAX) {
    if (lowest_run(with) == 1u << number)
      is_new = false, with = members; /* below a full set */
    else
      with &= ~lowest_run(with);
  }
  PROVE(harp_ranges_add(r, base + number) == is_new);
  return with;
}

static uint32_t forget_below(struct harp_ranges *r, uint32_t number, uint32_t members) {
  harp_ranges_forget_below(r, base + number);
  while (count_runs(members) > 1 && lowest_run(members) < 1u << number) members &= ~lowest_run(members);
  return members;
}

static void proof(void) {
  struct harp_ranges r = {0};
  uint32_t members = 0;
  unsigned calls = CALLS + prove_is_long;
  for (unsigned i = 0; i < calls; i++) {
    uint32_t call = prove_choose(2 * NUMBERS);
    members = call < NUMBERS ? add(&r, call, members) : forget_below(&r, call - NUMBERS, members);
    check(&r, members);
  }
}

int main(int argc, char **argv) {
  return prove_main(argc, argv, proof);
}
