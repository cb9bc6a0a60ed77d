/* SPDX-License-Identifier: Apache-2.0 */
/* Several connections on one virtual clock, so that they can share bottlenecks (struct simnet_wire). */
#ifndef HARP_TESTS_CROWD_H
#define HARP_TESTS_CROWD_H

#include "lib/duo.h"

/* Runs the earliest event of `count` connections, again and again until none is left before `until_ns`, or
 * all messages of all of them are complete. Returns whether they are. */
bool crowd_run(struct duo *duos, unsigned count, harp_ns until_ns);

/* Returns the payload bytes of the messages that a connection has received whole. */
uint64_t crowd_received_bytes(const struct duo *d);

/* Returns Jain's index of the numbers, in permille: 1000 when all are equal, 1000 / count when one has
 * all. */
uint32_t crowd_jain_permille(const uint64_t *numbers, unsigned count);

#endif
