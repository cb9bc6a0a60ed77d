/* SPDX-License-Identifier: Apache-2.0 */
/* Tail duplication: when there is nothing else to send and an acknowledgement is overdue, the packets that
 * wait for it are sent once more on another path. That is faster than to wait until they are found lost.
 *
 * Bounded: each burst once, and 1 / HARP_TAIL_DUPLICATION_SHARE of all bytes sent. The receiver drops
 * duplicates before it copies them. Called by the sender alone, under the engine's lock. */
#ifndef HARP_TAIL_DUPLICATION_H
#define HARP_TAIL_DUPLICATION_H

#include "proto/send.h"

enum { HARP_TAIL_DUPLICATION_BUDGET_BYTES = 256 * 1024, HARP_TAIL_DUPLICATION_SHARE = 16 };

/* Chooses the lines to repeat now and the path for them. Returns false when nothing is overdue or no other
 * path may carry it. */
bool harp_tail_duplication_choose(const struct harp_sender *s, struct harp_tx_choice *choice, harp_ns now);

/* Returns when the choice may change by time alone: when the next burst becomes overdue, or when another
 * path's pace lets it take one that is. */
harp_ns harp_tail_duplication_deadline_ns(const struct harp_sender *s, harp_ns now);

#endif
