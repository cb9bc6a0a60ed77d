/* SPDX-License-Identifier: Apache-2.0 */
/* The first stage of a pass: which of the engine's sources have something (io/ready.h holds the rule).
 *
 * Handles what came on control connections and listeners at once, and lists the tcp paths that are readable;
 * datagrams and records are read by the next stages. */
#ifndef HARP_LOOK_H
#define HARP_LOOK_H

struct harp_engine;

void harp_look(struct harp_engine *e);

#endif
