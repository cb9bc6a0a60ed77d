/* SPDX-License-Identifier: Apache-2.0 */
/* Tail duplication: when there is nothing else to send and an acknowledgement is overdue, the packets that
 * wait for it are sent once more on another path. That is faster than to wait until they are found lost.
 *
 * Owns and alone writes struct harp_tail_duplication, a part of struct harp_sender. Called by the sender's
 * other files, under the engine's lock. Rules:
 *
 *   1. Each burst is repeated once.
 *   2. 1 / HARP_TAIL_DUPLICATION_SHARE of all bytes sent may be repeated.
 *   3. What is on a tcp path is repeated by the kernel: tcp paths take no part.
 *   4. The receiver drops duplicates before it copies them. */
#ifndef HARP_TAIL_DUPLICATION_H
#define HARP_TAIL_DUPLICATION_H

#include "base/base.h"

enum { HARP_TAIL_DUPLICATION_BUDGET_BYTES = 256 * 1024, HARP_TAIL_DUPLICATION_SHARE = 16 };

struct harp_burst;
struct harp_sender;
struct harp_tx_choice;

struct harp_tail_duplication {
  uint32_t budget_bytes; /* the bytes that may be repeated now */
};

static inline void harp_tail_duplication_init(struct harp_tail_duplication *t) {
  t->budget_bytes = HARP_TAIL_DUPLICATION_BUDGET_BYTES;
}

/* Chooses the lines to repeat now and the path for them. Returns false when nothing is overdue or no other
 * path may carry it. */
bool harp_tail_duplication_choose(const struct harp_sender *s, struct harp_tx_choice *choice, harp_ns now);

/* Returns when the choice may change by time alone: when the next burst becomes overdue, or when another
 * path's pace lets it take one that is. */
harp_ns harp_tail_duplication_deadline_ns(const struct harp_sender *s, harp_ns now);

/* Learns that bytes of a burst are repeated. */
void harp_tail_duplication_on_repeated(struct harp_tail_duplication *t, struct harp_burst *burst,
                                       uint32_t bytes);

/* Learns that new bytes are sent. */
static inline void harp_tail_duplication_on_sent(struct harp_tail_duplication *t, uint32_t bytes) {
  t->budget_bytes = HARP_MIN(t->budget_bytes + bytes / HARP_TAIL_DUPLICATION_SHARE,
                             HARP_TAIL_DUPLICATION_BUDGET_BYTES + 0u);
}

#endif
