/* SPDX-License-Identifier: Apache-2.0 */
/* Property: of two 32-bit sequence numbers less than 2^31 apart, exactly the later one is after the other,
 * whatever wraps; and a number that came as its lower 32 bits is widened to itself from every number less
 * than 2^31 away, whatever wraps.
 *
 * Bound: first numbers within 4 of 0 and of each power of two; second ones within 1,024 of 0, of each power
 * of two and of 2^31 away from the first, with --long all 2^32 of them. */
#include "base/seq.h"
#include "proofs/prove.h"

enum { HALF_BITS = 31, NEAR_FIRST = 4, NEAR_SECOND = 1024, WIDE_BITS = 64, NARROW_BITS = 32 };

/* Chooses a number within `near` of 0 or of a power of two up to 2^bits. */
static uint64_t choose_near_power(unsigned bits, uint32_t near) {
  uint32_t power = prove_choose(bits + 1);
  uint64_t base = power == bits ? 0 : 1ull << power;
  return base + prove_choose(2 * near + 1) - near;
}

static void compare(uint32_t a, uint32_t distance) {
  uint32_t b = a + distance;
  bool is_before = distance && distance<1u << HALF_BITS, is_after = distance> 1u << HALF_BITS;
  if (distance == 1u << HALF_BITS) return; /* no order */
  if (harp_seq_before(a, b) != is_before || harp_seq_after(a, b) != is_after ||
      harp_seq_after(b, a) != is_before || harp_seq_before(b, a) != is_after)
    PROVE(!"order of a and a + distance");
}

static void widen(uint64_t near, int64_t distance) {
  uint64_t number = near + (uint64_t)distance;
  PROVE(harp_seq_widen((uint32_t)number, near) == number);
}

static void prove_widening(void) {
  uint64_t near = choose_near_power(WIDE_BITS, NEAR_FIRST);
  uint32_t power = prove_choose(HALF_BITS + 1);
  for (int64_t i = -NEAR_SECOND; i <= NEAR_SECOND; i++) {
    int64_t distance = (power == HALF_BITS ? 0 : 1ll << power) + i, limit = 1ll << HALF_BITS;
    if (distance < limit) widen(near, distance);
    if (distance <= limit) widen(near, -distance);
  }
  widen(near, -(1ll << HALF_BITS));
  widen(near, (1ll << HALF_BITS) - 1);
}

static void prove_order(void) {
  uint32_t a = (uint32_t)choose_near_power(NARROW_BITS, NEAR_FIRST);
  if (prove_is_long) {
    uint32_t distance = 0;
    do compare(a, distance);
    while (++distance);
    return;
  }
  uint32_t power = prove_choose(NARROW_BITS + 1);
  uint32_t base = power == NARROW_BITS ? 0 : 1u << power;
  for (uint32_t i = 0; i <= 2 * NEAR_SECOND; i++) compare(a, base + i - NEAR_SECOND);
}

static void proof(void) {
  if (prove_choose(2))
    prove_order();
  else
    prove_widening();
}

int main(int argc, char **argv) {
  return prove_main(argc, argv, proof);
}
