/* SPDX-License-Identifier: Apache-2.0 */
/* The tail: when there is nothing else to send and an acknowledgement is overdue, what waits for it is sent
 * once more on another path, since that is quicker than to find out what became of it.
 *
 * Bounded: each burst once, and TAIL_SHARE of what is sent in all. The receiver drops duplicates before it
 * copies them. Called by send.c alone. */
#ifndef HARP_TAIL_H
#define HARP_TAIL_H

#include "proto/send.h"

enum { HARP_TAIL_BUDGET_BYTES = 256 * 1024, HARP_TAIL_SHARE = 16 };

/* Chooses what to repeat now, and where; false: nothing is overdue, or there is nowhere else to send it. */
bool harp_tail_choose(const struct harp_sender *s, struct harp_tx_choice *choice, harp_ns now);

/* Returns when the choice may have another result by time alone: something will be overdue, or another path's
 * pace lets it take what is. */
harp_ns harp_tail_deadline_ns(const struct harp_sender *s, harp_ns now);

#endif
