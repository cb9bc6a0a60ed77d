/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody on the way between the ends of a duo, who sees all packets and knows no key. He changes copies of
 * packets, and heads of records, and corrects their CRC: this is linear, so that he needs no seed. */
#ifndef HARP_TESTS_DUO_ATTACK_H
#define HARP_TESTS_DUO_ATTACK_H

#include "lib/duo.h"

/* Perhaps sends a changed copy of a packet that the end has sent. */
void duo_attack_packet(struct duo *d, const struct duo_end *e, unsigned path, const uint8_t *wire,
                       uint32_t bytes);

/* Perhaps changes the head of a record; returns where, or -1. */
int duo_attack_head(struct duo *d, uint8_t *head);

#endif
