/* SPDX-License-Identifier: Apache-2.0 */
/* The windows of a duo: each end announces one, now and then another, and holds what arrives while it sleeps
 * in a buffer that is no larger than the largest of them. */
#ifndef HARP_TESTS_DUO_WINDOW_H
#define HARP_TESTS_DUO_WINDOW_H

#include "lib/duo.h"

void duo_window_start(struct duo *d, struct duo_end *e);

/* Announces another window, or not, as drawn. */
void duo_window_maybe_change(struct duo *d, struct duo_end *e);

/* Makes the window in an acknowledgement absurd, or not, as drawn. */
void duo_window_maybe_spoil(struct duo *d, struct harp_packet *ack);

/* Learns of an acknowledgement that the end's sender has taken. */
void duo_window_on_ack(struct duo_end *e, const struct harp_packet *ack);

/* Checks that what was sent on a path just now fits the window that the end knows. */
void duo_window_check(const struct duo *d, const struct duo_end *e, const struct harp_path *p);

/* Begins a sleep of the end with an empty count of its buffers. */
void duo_window_on_sleep(struct duo_end *e);

/* Returns whether the buffer of a sleeping end has room for the network's next datagram, which then is in it.
 */
bool duo_window_holds(struct duo *d, struct duo_end *e);

#endif
