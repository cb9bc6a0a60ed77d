/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the sender share; not for others. Each has one part of it:
 *
 *   send_init.c    its memory, its paths and the pairs of ENIs that they run between
 *   send.c         streams, acknowledgements, paths, timers
 *   send_window.c  the windows that the peer announces
 *   send_credit.c  streams that lack credit
 *   send_turns.c   which stream is next
 *   send_experiment.c experiments, and what they have large messages take
 *   send_choose.c  what goes out next, and on which path
 *   send_take.c    what a choice sends: packet numbers, bursts, requests for acknowledgements
 *   send_check.c   invariants
 *
 * All under the engine's lock, as send.h. */
#ifndef HARP_SEND_PARTS_H
#define HARP_SEND_PARTS_H

#include "proto/send.h"

enum { HARP_SENDER_CORK_BYTES = 61440 }; /* about a superframe: no reason to wait for more */

/* ---- windows ---- */

/* Begins with the window that the peer announced in the handshake. */
void harp_sender_init_windows(struct harp_sender *s, uint32_t bytes, harp_ns now);
/* Returns the window of one of the peer's interfaces. */
struct harp_window *harp_sender_window_to(struct harp_sender *s, unsigned remote_eni);
/* Takes the window that an acknowledgement announces. */
void harp_sender_on_window(struct harp_sender *s, uint32_t bytes, harp_ns now);
/* Notes that messages are posted after a time without any. */
void harp_sender_on_busy(struct harp_sender *s, harp_ns now);

/* ---- credit ---- */

/* Lists a stream that lacks credit. Credit is requested after a while: the acknowledgements that announced it
 * may all have been lost while other streams went on. */
void harp_sender_begin_waiting(struct harp_sender *s, struct harp_tx_stream *st, harp_ns now);
/* Does that if the stream lacks credit. */
static inline void harp_sender_note_waiting(struct harp_sender *s, struct harp_tx_stream *st, harp_ns now) {
  if (harp_unlikely(harp_tx_stream_lacks_credit(st))) harp_sender_begin_waiting(s, st, now);
}
/* Requests credit; credit_probe_ns has passed. */
void harp_sender_on_credit_time(struct harp_sender *s, harp_ns now);

/* ---- turns ---- */

/* Returns the stream whose turn it is; NULL when none has anything to send. */
struct harp_tx_stream *harp_sender_next_stream(struct harp_sender *s);
/* Books the lines that a stream sent in its turn; the turn ends when its share is used up. */
void harp_sender_end_turn(struct harp_sender *s, const struct harp_tx_choice *c, uint32_t lines);

/* ---- experiments ---- */

/* Notes that large messages may be under way. */
void harp_sender_note_large(struct harp_sender *s, harp_ns now);
/* Feeds experiments what was acknowledged on a path; NULL: time has passed. */
void harp_sender_measure(struct harp_sender *s, const struct harp_path *p, uint32_t acked_bytes, harp_ns now);
/* Notes a round trip of a path; `held_back`: its window was full, and the network queued or lost packets. */
void harp_sender_on_round(struct harp_sender *s, const struct harp_path *p, bool held_back, harp_ns now);
/* Works out by_class, and stops experiments where the set of pairs has changed. */
void harp_sender_choose_carriers(struct harp_sender *s);

/* Returns whether a stream may have something to send. */
static inline bool harp_sender_is_any_ready(const struct harp_sender *s) {
  return s->load.ready[HARP_TX_SMALL].first || s->load.ready[HARP_TX_LARGE].first;
}

/* Returns whether the path is to try a larger packet size now. */
static inline bool harp_sender_size_probe_due(const struct harp_path *p, harp_ns now) {
  return p->size_probe_ns <= now && !p->pto_count && p->state == HARP_PATH_UP;
}

#endif
