/* SPDX-License-Identifier: Apache-2.0 */
/* Basics of every layer: time and its units, attributes, minimum and maximum, bits. No state; any thread. */
#ifndef HARP_BASE_H
#define HARP_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HARP_CACHE_LINE 64

#define harp_likely(x)   __builtin_expect(!!(x), 1)
#define harp_unlikely(x) __builtin_expect(!!(x), 0)
/* Keeps an object that no code refers to: a text to be found in the file. */
#if __has_attribute(retain)
#define HARP_KEPT __attribute__((used, retain))
#else
#define HARP_KEPT __attribute__((used))
#endif
#define HARP_COLD __attribute__((noinline, cold))
/* Marks the rare part of a function of the data path. */
#define HARP_NOINLINE __attribute__((noinline))

#define HARP_ARRAY_COUNT(a)                (sizeof(a) / sizeof((a)[0]))
#define HARP_CONTAINER_OF(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

#define HARP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define HARP_MAX(a, b) ((a) > (b) ? (a) : (b))

#define HARP_MUST_CHECK        __attribute__((warn_unused_result))
#define HARP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define HARP_CACHE_ALIGNED     __attribute__((aligned(HARP_CACHE_LINE)))
/* Marks functions of the data path that the compiler would not inline by itself. */
#define HARP_ALWAYS_INLINE inline __attribute__((always_inline))

/* Nanoseconds of CLOCK_MONOTONIC, or of a simulator's clock; also a duration. */
typedef uint64_t harp_ns;
#define HARP_NEVER  UINT64_MAX /* a deadline that does not come */
#define HARP_US(n)  ((harp_ns)(n)*1000)
#define HARP_MS(n)  ((harp_ns)(n)*1000000)
#define HARP_SEC(n) ((harp_ns)(n)*1000000000)

/* Returns how many bits are set. The built-in would be a call into libgcc on CPUs without the instruction. */
static inline uint32_t harp_popcount(uint64_t n) {
  n -= n >> 1 & 0x5555555555555555;
  n = (n & 0x3333333333333333) + (n >> 2 & 0x3333333333333333);
  return (uint32_t)(((n + (n >> 4)) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101 >> 56);
}
/* Runs its body for each bit that is set in `set`, ascending, with its index in `i`. Evaluates `set` once. */
#define HARP_EACH_BIT(i, set)                                                                                \
  for (uint64_t i##_left = (set), i = 0; i##_left && (i = (uint64_t)__builtin_ctzll(i##_left), true);        \
       i##_left &= i##_left - 1)

/* Returns n rounded up to a multiple of a power of two. */
static inline uint64_t harp_align_up(uint64_t n, uint64_t pow2) {
  return (n + pow2 - 1) & ~(pow2 - 1);
}

#endif
