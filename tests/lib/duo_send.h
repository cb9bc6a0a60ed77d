/* SPDX-License-Identifier: Apache-2.0 */
/* What an end of a duo sends in a pass: superframes of data and probes, and acknowledgements, each checked
 * before the network gets it. Called by duo.c alone. */
#ifndef HARP_TESTS_DUO_SEND_H
#define HARP_TESTS_DUO_SEND_H

#include "lib/duo.h"

/* Sends data; returns until when there is none to send. */
harp_ns duo_send_data(struct duo *d, struct duo_end *e);

/* Sends the acknowledgements that are due, or that the seed has sent at once; returns when the next
 * is due. */
harp_ns duo_send_acks(struct duo *d, struct duo_end *e);

#endif
