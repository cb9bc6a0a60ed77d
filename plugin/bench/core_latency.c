/* SPDX-License-Identifier: Apache-2.0 */
/* Both threads wait for their turn in one word. A batch is short, so that some batch is not interrupted even
 * where other work runs on the cores, and long beside the reading of the clock. */
#include "core_latency.h"

#include "base/clock.h"
#include "fail.h"
#include "host/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { BATCH_ROUND_TRIPS = 200 };
enum { SPINS_PER_CLOCK = 1 << 16 }; /* many more than a round trip takes: the clock is not read in one */
static const harp_ns measured_ns = HARP_MS(20);
static const harp_ns patience_ns = HARP_SEC(10); /* how long it waits for a core that runs something else */

enum turn { TURN_CALLER, TURN_ANSWERER, TURN_END };

/* (A) release of `turn` pairs with (B) acquire of `turn`. No other data depends on it. */
struct pair {
  HARP_CACHE_ALIGNED _Atomic int turn;
  HARP_CACHE_ALIGNED uint16_t answerer_core;
  _Atomic int answerer_error; /* what pinning returned; written before the first answer */
};

static int pin(uint16_t core) {
  return harp_cpu_pin_self(&core, 1);
}

static void *answer(void *argument) {
  struct pair *pair = argument;
  atomic_store_explicit(&pair->answerer_error, pin(pair->answerer_core), memory_order_relaxed);
  for (int turn; (turn = atomic_load_explicit(&pair->turn, memory_order_acquire)) != TURN_END;) /* (B) */
    if (turn == TURN_ANSWERER)
      atomic_store_explicit(&pair->turn, TURN_CALLER, memory_order_release); /* (A) */
  return NULL;
}

/* Returns 0, or -1 with a recorded error when no answer came for long, or at a signal. */
static int call(struct pair *pair) {
  harp_ns give_up_ns = 0;
  atomic_store_explicit(&pair->turn, TURN_ANSWERER, memory_order_release); /* (A) */
  for (unsigned spins = 1; atomic_load_explicit(&pair->turn, memory_order_acquire) != TURN_CALLER; spins++) {
    if (spins % SPINS_PER_CLOCK) continue; /* (B) is in the line above */
    if (harp_interrupt_check()) return -1;
    harp_ns now = harp_clock_ns();
    if (!give_up_ns) give_up_ns = now + patience_ns;
    if (now >= give_up_ns)
      return harp_fail(HARP_EXIT_SYSTEM, "core %u did not run this process for 10 s: stop what occupies it",
                       pair->answerer_core);
  }
  return 0;
}

/* Returns -1 with a recorded error for a core that could not be had. */
static int check_pinned(uint16_t core, int rc) {
  if (!rc) return 0;
  return harp_fail(HARP_EXIT_USAGE,
                   "core %u is not available to this process (%s): name two of those that "
                   "`grep Cpus_allowed_list /proc/self/status` prints",
                   core, strerror(-rc));
}

/* The first call waits until the answering thread is on its core. */
static int measure(struct pair *pair, double *round_trip_ns) {
  if (call(pair) || check_pinned(pair->answerer_core, atomic_load(&pair->answerer_error))) return -1;
  harp_ns start = harp_clock_ns(), batch_start, now = start, least = HARP_NEVER;
  do {
    batch_start = now;
    for (int i = 0; i < BATCH_ROUND_TRIPS; i++)
      if (call(pair)) return -1;
    now = harp_clock_ns();
    least = HARP_MIN(least, now - batch_start);
  } while (now - start < measured_ns);
  *round_trip_ns = (double)least / BATCH_ROUND_TRIPS;
  return 0;
}

int harp_core_latency_measure(const uint16_t cores[2], double *round_trip_ns) {
  struct pair pair = {.turn = TURN_CALLER, .answerer_core = cores[1]};
  pthread_t answerer;
  if (check_pinned(cores[0], pin(cores[0]))) return -1;
  int error = pthread_create(&answerer, NULL, answer, &pair);
  if (error) return harp_fail(HARP_EXIT_SYSTEM, "a thread can't be started: %s", strerror(error));
  int rc = measure(&pair, round_trip_ns);
  atomic_store_explicit(&pair.turn, TURN_END, memory_order_release); /* (A) */
  pthread_join(answerer, NULL);
  return rc;
}
