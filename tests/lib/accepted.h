/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts as NCCL does, for tests that look only at the link. */
#ifndef HARP_TESTS_ACCEPTED_H
#define HARP_TESTS_ACCEPTED_H

#include "engine/control/listener.h"

/* Takes the link that has waited longest; NULL if there is none. */
static inline struct harp_link *take_accepted(struct harp_listener *l) {
  struct harp_link *link;
  (void)harp_listener_poll(l, &link);
  return link;
}

#endif
