/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of duo.h as NCCL and the engines at both ends see it: its messages, their buffers, and what was
 * placed in them. Called by duo.c alone. */
#ifndef HARP_TESTS_DUO_STREAM_H
#define HARP_TESTS_DUO_STREAM_H

#include "lib/duo.h"

/* Makes the memory of a stream's ends look used. */
void duo_stream_start(struct duo *d, struct duo_stream *s);
void duo_stream_fini(struct duo_stream *s);

/* Returns when the stream's next send or receive is to be posted; HARP_NEVER: none. */
harp_ns duo_stream_send_ns(const struct duo *d, const struct duo_stream *s);
harp_ns duo_stream_receive_ns(const struct duo *d, const struct duo_stream *s);

/* Posts the next one. */
void duo_stream_send(struct duo *d, struct duo_stream *s);
void duo_stream_receive(struct duo *d, struct duo_stream *s);

/* Takes what was completed; posts the sends that were waiting for it. */
void duo_stream_complete_sends(struct duo *d, struct duo_stream *s);
void duo_stream_complete_receives(struct duo *d, struct duo_stream *s);

/* Places what a packet brought. */
void duo_stream_place(struct duo *d, struct duo_stream *s, const struct harp_packet *p,
                      const struct harp_placement *where);

/* Checks that payload from byte `offset` of a message on may be read straight to `dst`. */
void duo_stream_check_read(struct duo *d, const struct duo_stream *s, uint32_t message, uint32_t offset,
                           const uint8_t *dst, uint32_t bytes);

/* Checks that of a message whose buffer is watched nothing was written but lines that were taken. */
void duo_stream_check_watched(struct duo *d, const struct duo_stream *s);

/* Books a record whose payload was read to its place. */
void duo_stream_note_read(struct duo *d, struct duo_stream *s, const struct harp_packet *p);

/* Returns whether a packet of the stream that nobody damaged may be dropped for this; NULL: it is not
 * open. */
bool duo_stream_expects_drop(struct duo *d, const struct duo_stream *s, const struct harp_packet *p,
                             enum harp_drop drop);

/* The receives that the end has posted are the user's again: nothing may be written there any more. */
void duo_stream_give_back(struct duo *d, struct duo_stream *s);

/* Checks that nothing was written to the buffer of a message since it was given back. */
void duo_stream_check_poison(struct duo *d, const struct duo_stream *s, uint32_t k);

/* Checks a run of packets that is to be sent. */
void duo_stream_check_run(struct duo *d, const struct duo_stream *s, const struct harp_tx_run *run);

/* Checks how far both ends are. */
void duo_stream_check(struct duo *d, struct duo_stream *s);

/* Makes a packet that contradicts others. */
void duo_stream_forge(struct duo *d, struct duo_stream *s, struct harp_packet *p);

#endif
