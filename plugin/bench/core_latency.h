/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how far apart two cores are: how long a cache line takes from one to the other and back.
 *
 * Two cores that share a cache take some 50 ns, two of different dies some hundred more, and messages of two
 * ranks on them are as much slower. The host of a virtual machine may move its cores meanwhile, so that
 * rates that are to be compared have to be taken while this time is the same. Called once, by main. */
#ifndef HARP_BENCH_CORE_LATENCY_H
#define HARP_BENCH_CORE_LATENCY_H

#include "base/base.h"

/* Measures for 20 ms the round trip of a cache line between two threads, one on each core; writes the least
 * mean of the batches, in nanoseconds. The calling thread stays on the first core. Returns 0, or -1 with a
 * recorded error: HARP_EXIT_USAGE for a core that this process can't have. */
int harp_core_latency_measure(const uint16_t cores[2], double *round_trip_ns) HARP_MUST_CHECK;

#endif
