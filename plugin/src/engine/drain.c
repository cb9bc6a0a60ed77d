/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/drain.h"

#include "base/assert.h"
#include "engine/engine.h"

bool harp_drain_is_needed(const struct harp_link *link) {
  return link->is_open && link->copies_outstanding && link->copies_outstanding == link->outstanding;
}

void harp_drain_begin(struct harp_link *link, harp_ns now) {
  struct harp_engine *e = link->engine;
  HARP_ASSERT(harp_drain_is_needed(link) && !link->is_draining);
  link->is_draining = true;
  link->drain_until_ns = now + e->instance.peer_timeout_ns;
  link->next_draining = e->draining;
  e->draining = link;
  e->drain_check_ns = HARP_MIN(e->drain_check_ns, link->drain_until_ns);
}

/* Returns whether nothing is left to be waited for. */
static bool is_over(struct harp_link *link, harp_ns now) {
  if (link->is_open && link->outstanding && now >= link->drain_until_ns)
    harp_link_fail(link, HARP_ERR_REMOTE, now,
                   "%u messages that were sent to %s before their connection was closed have not arrived "
                   "there within %llu s",
                   link->outstanding, link->peer->name,
                   (unsigned long long)(link->engine->instance.peer_timeout_ns / HARP_SEC(1)));
  return !link->is_open || !link->outstanding;
}

void harp_drain_review(struct harp_engine *e, harp_ns now) {
  struct harp_link **at = &e->draining, *link;
  e->drain_check_ns = HARP_NEVER;
  while ((link = *at)) {
    HARP_ASSERT(link->is_draining && link->engine == e);
    if (is_over(link, now)) {
      *at = link->next_draining;
      (void)harp_link_error(link); /* no later call of NCCL's reports it */
      harp_link_end(link);
    } else {
      e->drain_check_ns = HARP_MIN(e->drain_check_ns, link->drain_until_ns);
      at = &link->next_draining;
    }
  }
}
