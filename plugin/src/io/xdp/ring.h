/* SPDX-License-Identifier: Apache-2.0 */
/* The four rings of an AF_XDP socket: single producer, single consumer, in memory shared with the kernel.
 *
 * The driver produces into the fill and tx rings and consumes from the completion and rx rings. Counters wrap
 * at 2^32. A ring is a set of pointers, so that a test can emulate the kernel on ordinary memory. The
 * barriers pair with those of the kernel's net/xdp/xsk_queue.h: its smp_store_release of the producer with
 * the load-acquire here, its smp_load_acquire of the producer with the store-release here; likewise for the
 * consumer. */
#ifndef HARP_IO_XDP_RING_H
#define HARP_IO_XDP_RING_H

#include "base/base.h"
#include "io/xdp/abi.h"

struct harp_xdp_ring {
  uint32_t *producer, *consumer; /* shared */
  const uint32_t *flags;         /* shared; NULL before Linux 5.4 */
  void *
      descriptors; /* the entries: uint64_t of fill and completion, struct harp_xdp_descriptor of rx and tx */
  uint32_t size;   /* a power of two */
  uint32_t ours;   /* this side's counter: entries put or taken, perhaps not published yet */
  uint32_t theirs; /* the kernel's counter as last read */
  bool is_broken;  /* the kernel's counter was out of range: the ring is no longer used */
};

/* ---- rings we produce into: fill, tx ---- */

/* Returns how many entries can be put. Reads the kernel's counter only if its last value leaves fewer than
 * `want`. */
static inline uint32_t harp_xdp_ring_room(struct harp_xdp_ring *r, uint32_t want) {
  uint32_t used = r->ours - r->theirs;
  if (r->size - used < want) {
    r->theirs = __atomic_load_n(r->consumer, __ATOMIC_ACQUIRE);
    used = r->ours - r->theirs;
    if (used > r->size) r->is_broken = true;
  }
  return r->is_broken ? 0 : r->size - used;
}

static inline void harp_xdp_ring_put_address(struct harp_xdp_ring *r, uint64_t address) {
  ((uint64_t *)r->descriptors)[r->ours++ & (r->size - 1)] = address;
}

static inline void harp_xdp_ring_put(struct harp_xdp_ring *r, struct harp_xdp_descriptor d) {
  ((struct harp_xdp_descriptor *)r->descriptors)[r->ours++ & (r->size - 1)] = d;
}

/* Publishes all entries put so far to the kernel. */
static inline void harp_xdp_ring_publish(struct harp_xdp_ring *r) {
  __atomic_store_n(r->producer, r->ours, __ATOMIC_RELEASE);
}

/* ---- rings we consume from: completion, rx ---- */

/* Returns how many entries can be taken, at most `max`. */
static inline uint32_t harp_xdp_ring_waiting(struct harp_xdp_ring *r, uint32_t max) {
  if (r->theirs == r->ours) r->theirs = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);
  uint32_t waiting = r->theirs - r->ours;
  if (waiting > r->size) r->is_broken = true;
  return r->is_broken ? 0 : HARP_MIN(waiting, max);
}

static inline uint64_t harp_xdp_ring_take_address(struct harp_xdp_ring *r) {
  return ((const uint64_t *)r->descriptors)[r->ours++ & (r->size - 1)];
}

static inline struct harp_xdp_descriptor harp_xdp_ring_take(struct harp_xdp_ring *r) {
  return ((const struct harp_xdp_descriptor *)r->descriptors)[r->ours++ & (r->size - 1)];
}

/* Returns the entries taken so far to the kernel. */
static inline void harp_xdp_ring_release(struct harp_xdp_ring *r) {
  __atomic_store_n(r->consumer, r->ours, __ATOMIC_RELEASE);
}

/* Returns whether the kernel needs a system call to go on with this ring. */
static inline bool harp_xdp_ring_needs_wakeup(const struct harp_xdp_ring *r) {
  return !r->flags || __atomic_load_n(r->flags, __ATOMIC_RELAXED) & HARP_XDP_RING_NEED_WAKEUP;
}

#endif
