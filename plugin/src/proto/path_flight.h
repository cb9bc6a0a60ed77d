/* SPDX-License-Identifier: Apache-2.0 */
/* Gives up what a path has in flight, as a whole: its lines go out again on other paths. That of a tcp path
 * is given up with its connection alone.
 *
 * No state of its own. Called by the sender's other files, under the engine's lock. Packets are counted as
 * lost where the path carries data; probes of a path that is NEW or DOWN are not. */
#ifndef HARP_PATH_FLIGHT_H
#define HARP_PATH_FLIGHT_H

#include "proto/path.h"

struct harp_sender;

/* Gives up the path's flight. */
void harp_path_flight_give_up(struct harp_sender *s, struct harp_path *p, harp_ns now);

#endif
