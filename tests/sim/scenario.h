/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed stands for: paths, network, faults, streams, messages. Draws, and starts the ends with it. */
#ifndef HARP_TESTS_SCENARIO_H
#define HARP_TESTS_SCENARIO_H

#include "lib/duo.h"

struct scenario {
  bool clean;    /* no fault at all: nothing may be sent twice */
  bool longer;   /* more than the window of lines holds */
  bool churns;   /* streams are opened and closed while packets fly */
  bool misused;  /* a stream is: by its peer's packets, or by a message larger than its receive */
  harp_ns heal;  /* when the faults end */
  uint64_t dead; /* bit i: path i dies for good */
};

/* Starts `d` with the scenario of a seed. `ride`: 0 or 1 in place of the seed's value, -1: the seed's. */
struct scenario scenario_start(struct duo *d, uint64_t seed, bool trace, int ride);

#endif
