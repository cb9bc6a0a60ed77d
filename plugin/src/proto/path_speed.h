/* SPDX-License-Identifier: Apache-2.0 */
/* How soon one path delivers what it is given: what striping compares paths by.
 *
 * Owns and alone writes struct harp_path_speed, a part of struct harp_path. Called by the sender. Rules:
 *
 *   1. A byte in flight takes RTT / window; on a tcp path, whose window is fixed, that is measured.
 *   2. A measurement is what lay in flight when a record was sent, all of which had to drain before it. What
 *      is in flight when the acknowledgement comes would mislead: less of it where the path was left alone
 *      since.
 *   3. A path that is too slow to be used is not measured: each probe that it answers while idle halves the
 *      value, down to the initial one, until the path is tried again. */
#ifndef HARP_PATH_SPEED_H
#define HARP_PATH_SPEED_H

#include "base/base.h"

struct harp_path;

struct harp_path_speed {
  harp_ns travel_ns;  /* half the base RTT */
  uint64_t drain_q16; /* ns that a byte of the flight takes, times 2^16 */
};

/* Begins anew: earlier measurements of a tcp path do not apply any more. */
void harp_path_speed_restart(struct harp_path *p);

/* Takes over RTT and window, which have changed. */
void harp_path_speed_update(struct harp_path *p);

/* Notes on a tcp path that a record was acknowledged `rtt_ns` after it was sent, as the last of
 * `flight_bytes` in flight. */
void harp_path_speed_on_flight(struct harp_path *p, uint32_t flight_bytes, harp_ns rtt_ns);

#endif
