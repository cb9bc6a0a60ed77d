/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_stall.h"

#include "proto/send.h"

/* Returns whether no path answers: each is silent, or not in use. */
static bool is_silent(const struct harp_sender *s) {
  for (unsigned i = 0; i < s->path_count; i++) {
    if (!harp_path_is_silent(&s->paths[i])) return false;
  }
  return true;
}

void harp_send_stall_on_silence(struct harp_sender *s, harp_ns now) {
  if (!s->stall.since_ns && s->load.messages && is_silent(s)) s->stall.since_ns = now;
}
