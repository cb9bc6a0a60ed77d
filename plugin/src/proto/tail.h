/* The tail: when there is nothing else to send and an acknowledgement is overdue, what waits for it is sent
 * once more on another path, since that is quicker than to find out what became of it.
 *
 * Bounded: each burst once, and TAIL_SHARE of what is sent in all. The receiver drops duplicates before it
 * copies them. Called by send.c alone. */
#ifndef HARP_TAIL_H
#define HARP_TAIL_H

#include "proto/send.h"

enum { HARP_TAIL_BUDGET_BYTES = 256 * 1024, HARP_TAIL_SHARE = 16 };

/* Returns the path on which to repeat something now, and notes what in s->copy_*; NULL: nothing is overdue,
 * or nowhere else to send it. */
struct harp_path *harp_tail_pick(struct harp_sender *s, harp_ns now);

/* Returns when the pick may have another result by time alone: something will be overdue, or another path's
 * pace lets it take what is. */
harp_ns harp_tail_deadline_ns(const struct harp_sender *s, harp_ns now);

#endif
