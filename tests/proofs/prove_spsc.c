/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what one thread pushes another one pops, each item once, in order, with all that was written to
 * it before the push, and no slot is written while it is read; as many items as there are slots can be pushed
 * whatever the other thread does.
 *
 * Bound: a ring of 2 slots (the constant is reduced), 3 items, each side in up to 4 attempts, with --long 4
 * items in 6; all orders and all values that C11 allows (memory.h); also where the counters pass 2^32. */
#include "base/spsc.h"

#include <string.h>

#include "proofs/memory.h"

enum { ITEMS = 3, ATTEMPTS = 4, LONG_ITEMS = 4, LONG_ATTEMPTS = 6 };
_Static_assert(HARP_SPSC_SLOTS == 2, "reduced by test_proofs.py, so that the ring is full");

static struct harp_spsc ring;
static uint32_t items[LONG_ITEMS];
static unsigned item_count, attempts, pushed, popped;

static void produce(void) {
  for (unsigned i = 0; i < attempts && pushed < item_count; i++) {
    items[pushed] = pushed + 1;
    if (!harp_spsc_push(&ring, &items[pushed])) continue;
    pushed++;
  }
}

static void consume(void) {
  for (unsigned i = 0; i < attempts; i++) {
    uint32_t *item = harp_spsc_peek(&ring);
    if (!item) continue;
    PROVE(item == &items[popped] && *item == popped + 1);
    harp_spsc_pop(&ring);
    popped++;
  }
}

static void proof(void) {
  static void (*const threads[])(void) = {produce, consume};
  uint32_t first = prove_choose(2) ? 0 : UINT32_MAX - 1;
  memset(&ring, 0, sizeof ring);
  memset(items, 0, sizeof items);
  ring.head = ring.tail = first;
  item_count = prove_is_long ? LONG_ITEMS : ITEMS;
  attempts = prove_is_long ? LONG_ATTEMPTS : ATTEMPTS;
  pushed = popped = 0;
  PROVE(memory_run(threads, 2));
  PROVE(popped <= pushed && pushed - popped <= HARP_SPSC_SLOTS);
  PROVE(pushed == item_count || pushed >= HARP_SPSC_SLOTS);
}

int main(int argc, char **argv) {
  return prove_main(argc, argv, proof);
}
