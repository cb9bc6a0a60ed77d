/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that a sender must send again: found lost on some path and not yet resent. A set over the
 * connection's line sequence, so losses of several paths merge and a line waits at most once. */
#ifndef HARP_RESEND_H
#define HARP_RESEND_H

#include "base/linemap.h"

struct harp_resend {
  struct harp_linemap map;
  uint32_t count;  /* lines in the set */
  uint32_t lowest; /* no member lies before it */
};

void harp_resend_init(struct harp_resend *r, uint32_t first_line);

/* Adds the part of the run that lies at or after `delivered`. */
void harp_resend_add(struct harp_resend *r, uint32_t line, uint32_t count, uint32_t delivered);

/* Removes the members of the run. */
void harp_resend_remove(struct harp_resend *r, uint32_t line, uint32_t count);

/* Finds the first run of members; at most `limit` lines. Returns its length, 0 when the set is empty. */
uint32_t harp_resend_first(struct harp_resend *r, uint32_t limit, uint32_t *line);

#endif
