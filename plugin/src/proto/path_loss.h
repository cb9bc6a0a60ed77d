/* SPDX-License-Identifier: Apache-2.0 */
/* What loss detection knows of one path: a part of struct harp_path, written by loss.c alone. */
#ifndef HARP_PATH_LOSS_H
#define HARP_PATH_LOSS_H

#include "base/base.h"

struct harp_path_loss {
  uint64_t largest_acked;    /* highest number acknowledged; next_number - 1 at most */
  uint64_t round_end_number; /* an acknowledgement of it, or of a later one, ends the current round trip */
  /* The last packet that told the receiver that all before the one told of earlier is settled, and whether
   * the next packet is to tell that of this one. */
  uint64_t settled_number;
  bool is_settled_due;
  harp_ns rack_sent_ns; /* when the youngest acknowledged packet was sent */
  harp_ns deadline_ns;  /* when a packet that later ones have passed counts as lost; HARP_NEVER: none */
  harp_ns
      reorder_ns; /* tolerance for reordering: grows when a loss proves spurious, shrinks each round trip */
  bool any_acked; /* an acknowledgement came: largest_acked and rack_sent_ns hold */
};

#endif
