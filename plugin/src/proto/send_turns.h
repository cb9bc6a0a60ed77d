/* SPDX-License-Identifier: Apache-2.0 */
/* The turns of a sender's streams: deficit round robin (Shreedhar and Varghese, 1995).
 *
 * Owns and alone writes struct harp_send_turns, a part of struct harp_sender; moves streams between and
 * within the lists of struct harp_tx_load. Called by the sender's other files, under the engine's lock.
 * Rules:
 *
 *   1. A stream is in the list of the class of the message that it sends next. One that has nothing to send
 *      leaves the list when its turn comes.
 *   2. Streams whose next message is small come first, but send no more than HARP_TURN_LINES ahead of the
 *      large ones while these wait.
 *   3. A turn ends when HARP_TURN_LINES are used up. A stream that sent more is passed over until it has made
 *      up for it.
 *   4. On a slow path, whose window holds few packets, a turn ends with each superframe; the stream keeps
 *      what is left of its share. Else one stream whose packets are lost again and again would hold up the
 *      others for a share of it, at a packet each probe timeout. */
#ifndef HARP_SEND_TURNS_H
#define HARP_SEND_TURNS_H

#include "proto/tx_stream.h"

struct harp_sender;

struct harp_send_turns {
  /* Lines of small messages sent before large ones, minus those of large ones sent since. */
  uint32_t small_lines;
};

static inline void harp_send_turns_init(struct harp_send_turns *t) {
  t->small_lines = 0;
}

/* Returns the stream whose turn it is; NULL when none has anything to send. */
struct harp_tx_stream *harp_send_turns_next(struct harp_sender *s);

/* Books the lines that a stream sent of a message in its turn; the turn ends when its share is used up, or
 * `is_slow`: the path's window holds few packets. */
void harp_send_turns_on_sent(struct harp_sender *s, struct harp_tx_stream *st, uint32_t message,
                             uint32_t lines, bool is_slow);

/* Returns whether a stream may have something to send. */
static inline bool harp_send_turns_is_any_ready(const struct harp_tx_load *load) {
  return load->ready[HARP_TX_SMALL].first || load->ready[HARP_TX_LARGE].first;
}

#endif
