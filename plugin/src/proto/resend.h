/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that a stream must send again: they were found lost on some path and not sent again yet. A set
 * over the stream's line sequence, so that losses of several paths merge and a line waits at most once.
 *
 * Owns and alone writes struct harp_resend, a part of struct harp_tx_stream. Called by tx_stream.c. */
#ifndef HARP_RESEND_H
#define HARP_RESEND_H

#include "base/linemap.h"

struct harp_resend {
  struct harp_linemap map;
  uint32_t count;  /* the number of lines in the set */
  uint32_t lowest; /* no member lies before this line */
};

void harp_resend_init(struct harp_resend *r, uint32_t first_line);

/* Adds the part of the run that lies at or after `delivered`. */
void harp_resend_add(struct harp_resend *r, uint32_t line, uint32_t count, uint32_t delivered);

/* Removes the members of the run. */
void harp_resend_remove(struct harp_resend *r, uint32_t line, uint32_t count);

/* Finds the first run of members; at most `limit` lines. Returns its length, 0 when the set is empty. */
uint32_t harp_resend_first(struct harp_resend *r, uint32_t limit, uint32_t *line);

#endif
