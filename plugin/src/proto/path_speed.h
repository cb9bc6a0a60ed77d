/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of one path: how soon it delivers what it is given, by which striping compares paths.
 *
 * Owns and alone writes struct harp_path_speed, a part of struct harp_path. Called by the sender. Rules:
 *
 *   1. A byte in flight takes RTT / window.
 *   2. On a tcp path, whose window is fixed, tcp_speed.h says what it takes.
 *   3. On one of several tcp paths a record takes at most half a millisecond, so that the paths finish
 *      together. */
#ifndef HARP_PATH_SPEED_H
#define HARP_PATH_SPEED_H

#include "proto/tcp_speed.h"

struct harp_path;

struct harp_path_speed {
  harp_ns travel_ns;        /* half of the base RTT */
  uint64_t ns_per_byte_q16; /* the ns that a byte of the flight takes, times 2^16 */
  struct harp_tcp_speed tcp;
};

/* Begins anew: earlier measurements of a tcp path do not apply any more. */
void harp_path_speed_restart(struct harp_path *p);

/* Takes over RTT and window, which have changed. */
void harp_path_speed_update(struct harp_path *p);

/* Brings a tcp path up to date with the usual speed of its session: harp_tcp_speed_follow. */
void harp_path_speed_follow(struct harp_path *p, const struct harp_tcp_speeds *all, harp_ns now);

/* Returns the bytes that a tcp path moves in so many ns at most, as far as that is known. */
uint64_t harp_path_speed_bytes_in(const struct harp_path_speed *v, harp_ns ns);

/* Returns the lines that a record on one of several tcp paths takes at most. */
uint32_t harp_path_speed_record_lines(const struct harp_path_speed *v);

#endif
