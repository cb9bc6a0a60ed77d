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

/* Checks a run of packets that is to be sent. */
void duo_stream_check_run(struct duo *d, const struct duo_stream *s, const struct harp_tx_run *run);

/* Checks how far both ends are. */
void duo_stream_check(struct duo *d, struct duo_stream *s);

/* Makes a packet that contradicts others. */
void duo_stream_forge(struct duo *d, struct duo_stream *s, struct harp_packet *p);

#endif
