/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/eni_report.h"

/* Returns whether the paths can tell an interface that fails from a peer that is gone. */
static bool is_witness(const struct harp_sender *s) {
  if (s->stall.since_ns) return false;
  for (unsigned i = 0; i < s->path_count; i++)
    if (s->paths[i].state == HARP_PATH_UP) return true;
  return false;
}

struct harp_eni_report harp_eni_report_of(const struct harp_sender *s, enum harp_eni_side side,
                                          uint32_t void_locals) {
  struct harp_eni_report r = {0};
  bool witness = is_witness(s);
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *path = &s->paths[i];
    uint32_t bit = 1u << (side == HARP_ENI_REMOTE ? path->remote_eni : path->local_eni);
    if (!path->loss.any_acked) continue;
    r.used |= bit;
    if (!witness || void_locals >> path->local_eni & 1) continue;
    if (path->state == HARP_PATH_UP) r.works |= bit;
    if (path->state == HARP_PATH_DOWN) r.fails |= bit;
  }
  return r;
}
