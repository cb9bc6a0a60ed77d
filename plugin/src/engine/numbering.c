/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/numbering.h"

#include <stdlib.h>

#include "base/log.h"
#include "engine/engine_open.h"
#include "engine/routes.h"

static bool any_unnumbered(const struct harp_engine *e) {
  for (unsigned i = 0; i < e->eni_count; i++)
    if (e->enis[i].is_unnumbered) return true;
  return false;
}

/* Has an interface join all connections. A failure is logged, and tried again at the next look. */
static void join_connections(struct harp_engine *e, unsigned eni, const struct harp_instance *numbered,
                             harp_ns now) {
  struct harp_error error;
  harp_engine_lock(e);
  int err = harp_engine_number(e, eni, numbered, &error);
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (struct harp_peer *peer; !err && (peer = harp_engine_next_peer(&walk));)
    harp_routes_number(peer, eni, now);
  harp_engine_unlock(e);
  if (err && !e->numbering_failed) HARP_INFO("%s: %s; trying again", numbered->ifname, error.text);
  e->numbering_failed = err != 0;
}

void harp_numbering_on_time(struct harp_engine *e, harp_ns now) {
  if (now < e->number_ns) return;
  e->number_ns = any_unnumbered(e) ? now + HARP_NUMBERING_NS : HARP_NEVER;
  if (e->number_ns == HARP_NEVER) return;
  struct harp_eni *enis = calloc(HARP_ENI_LIST_MAX, sizeof *enis);
  int count = enis ? harp_eni_list(enis, HARP_ENI_LIST_MAX) : 0;
  for (unsigned i = 0; i < e->eni_count && count > 0; i++) {
    struct harp_instance numbered = e->enis[i]; /* this thread alone changes it */
    if (numbered.is_unnumbered && harp_instance_number(&numbered, enis, (unsigned)count))
      join_connections(e, i, &numbered, now);
  }
  free(enis);
}
