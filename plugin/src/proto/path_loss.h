/* SPDX-License-Identifier: Apache-2.0 */
/* Loss detection's state of one path, a part of struct harp_path. loss.c alone writes it; loss.h has the
 * rules. */
#ifndef HARP_PATH_LOSS_H
#define HARP_PATH_LOSS_H

#include "base/base.h"

struct harp_path_loss {
  bool any_acked;            /* an acknowledgement came: largest_acked and rack_sent_ns hold */
  uint64_t largest_acked;    /* the highest number acknowledged; next_number - 1 at most */
  harp_ns rack_sent_ns;      /* the time when the youngest acknowledged packet was sent */
  uint64_t round_end_number; /* an acknowledgement of this number or a later one ends the round trip */
  harp_ns reorder_ns;        /* the tolerance for reordering (rule 2) */
  harp_ns deadline_ns;       /* the loss deadline; HARP_NEVER: no packet is passed by later ones (rule 3) */
  uint64_t settled_number;   /* the number of the last packet with HARP_FLAG_SETTLED (rule 5) */
  bool is_settled_due;       /* the next packet is to have HARP_FLAG_SETTLED (rule 5) */
};

#endif
