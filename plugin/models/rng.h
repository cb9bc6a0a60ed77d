/* SPDX-License-Identifier: Apache-2.0 */
/* A seeded generator: splitmix64. The same seed makes the same numbers on every machine. */
#ifndef HARP_MODELS_RNG_H
#define HARP_MODELS_RNG_H

#include "base/base.h"

struct rng {
  uint64_t state;
};

/* Returns a number that depends on all bits of `z`. */
static inline uint64_t rng_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

static inline uint64_t rng_next(struct rng *r) {
  return rng_mix(r->state += 0x9E3779B97F4A7C15ull);
}

/* Returns a number in [0, n); n > 0. */
static inline uint64_t rng_below(struct rng *r, uint64_t n) {
  return rng_next(r) % n;
}

/* Returns a number in [low, high]. */
static inline uint64_t rng_between(struct rng *r, uint64_t low, uint64_t high) {
  return low + rng_below(r, high - low + 1);
}

/* Returns true in `ppm` of a million cases. */
static inline bool rng_chance(struct rng *r, uint32_t ppm) {
  return ppm && rng_below(r, 1000000) < ppm;
}

#endif
