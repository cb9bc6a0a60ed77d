/* SPDX-License-Identifier: Apache-2.0 */
/* How the ends of duo.h agree on streams: the sending end requests an id; the receiving end opens the stream
 * and answers; then the sending end opens it. Either end closes it, when it is done or before, and notifies
 * the other, the receiving end with how far it came. An id is free again when both ends have closed its
 * stream, and the sending end knows. Called by duo.c alone. */
#ifndef HARP_TESTS_DUO_CONTROL_H
#define HARP_TESTS_DUO_CONTROL_H

#include "lib/duo.h"

/* Opens a stream at both ends at once. */
void duo_control_open(struct duo *d, struct duo_stream *s);

/* Returns when the end requests a stream, or gives it up; HARP_NEVER: never. */
harp_ns duo_control_ns(const struct duo *d, const struct duo_end *e, const struct duo_stream *s);

/* Does what is due at the time that duo_control_ns returned. */
void duo_control_act(struct duo *d, struct duo_end *e, struct duo_stream *s);

/* Closes what is done or was refused. */
void duo_control_review(struct duo *d, struct duo_end *e, struct duo_stream *s);

/* Returns when the next message arrives at the end. */
harp_ns duo_control_arrival_ns(const struct duo_end *e);

/* Takes it. */
void duo_control_on_message(struct duo *d, struct duo_end *e);

#endif
