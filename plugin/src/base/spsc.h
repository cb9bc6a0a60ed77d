/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded ring of pointers between exactly one producer thread and one consumer thread (Lamport's queue).
 *
 * The producer owns tail, the consumer head; each has its own cache line. Items are borrowed.
 * (A) release of tail pairs with (B) acquire of tail: the consumer sees the slot's content.
 * (C) release of head pairs with (D) acquire of head: the producer overwrites a slot only after it was
 * read. */
#ifndef HARP_SPSC_H
#define HARP_SPSC_H

#include <stdatomic.h>

#include "base/base.h"

enum { HARP_SPSC_SLOTS = 64 };

struct harp_spsc {
  HARP_CACHE_ALIGNED _Atomic uint32_t tail;
  HARP_CACHE_ALIGNED _Atomic uint32_t head;
  HARP_CACHE_ALIGNED void *slots[HARP_SPSC_SLOTS];
};

/* Producer only. Returns false when the ring is full. */
static inline bool harp_spsc_push(struct harp_spsc *q, void *item) {
  uint32_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
  if (tail - atomic_load_explicit(&q->head, memory_order_acquire) == HARP_SPSC_SLOTS) return false; /* (D) */
  q->slots[tail % HARP_SPSC_SLOTS] = item;
  atomic_store_explicit(&q->tail, tail + 1, memory_order_release); /* (A) */
  return true;
}

/* Consumer only. Returns the oldest item without removing it, or NULL. */
static inline void *harp_spsc_peek(struct harp_spsc *q) {
  uint32_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
  if (head == atomic_load_explicit(&q->tail, memory_order_acquire)) return NULL; /* (B) */
  return q->slots[head % HARP_SPSC_SLOTS];
}

/* Consumer only, after a peek that returned an item. */
static inline void harp_spsc_pop(struct harp_spsc *q) {
  uint32_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
  atomic_store_explicit(&q->head, head + 1, memory_order_release); /* (C) */
}

#endif
