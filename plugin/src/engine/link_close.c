/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/link_close.h"

#include "base/assert.h"
#include "engine/engine.h"
#include "engine/peer_life.h"

/* Returns whether a link that is to be closed has copies to deliver. */
static bool has_copies_to_deliver(const struct harp_link *link) {
  return link->is_open && link->copies_outstanding && link->copies_outstanding == link->outstanding;
}

/* Returns for how long copies are delivered: the process's end waits for it. */
static harp_ns closing_max_ns(const struct harp_engine *e) {
  return HARP_MIN(e->instance.peer_timeout_ns, HARP_LINK_CLOSING_MAX_NS);
}

static void begin_closing(struct harp_link *link, harp_ns now) {
  struct harp_engine *e = link->engine;
  HARP_ASSERT(has_copies_to_deliver(link) && !link->is_closing);
  link->is_closing = true;
  link->closing_until_ns = now + closing_max_ns(e);
  link->next_closing = e->closing;
  e->closing = link;
  e->closing_ns = HARP_MIN(e->closing_ns, link->closing_until_ns);
}

/* Returns whether nothing is left to be waited for. */
static bool is_over(struct harp_link *link, harp_ns now) {
  if (link->is_open && link->outstanding && now >= link->closing_until_ns)
    harp_link_fail(link, HARP_ERR_REMOTE,
                   "%u messages that were sent to %s before their connection was closed have not arrived "
                   "there within %llu s",
                   link->outstanding, link->peer->name,
                   (unsigned long long)(closing_max_ns(link->engine) / HARP_SEC(1)));
  return !link->is_open || !link->outstanding;
}

/* Says what no later call of NCCL's reports. That the session has ended proves no loss: the peer may have
 * closed its end when everything had come, and the acknowledgement been lost with the network. */
static void report_end(struct harp_link *link, harp_ns now) {
  if (!link->failed_with_peer) {
    (void)harp_link_error(link);
    return;
  }
  HARP_INFO_LIMITED(&link->peer->log, now,
                    "%s; it is not known whether the last messages of a closed connection have arrived",
                    link->error);
}

void harp_links_end_closed(struct harp_engine *e, harp_ns now) {
  struct harp_link **at = &e->closing, *link;
  e->closing_ns = HARP_NEVER;
  while ((link = *at)) {
    HARP_ASSERT(link->is_closing && link->engine == e);
    if (is_over(link, now)) {
      *at = link->next_closing;
      report_end(link, now);
      harp_link_end(link);
    } else {
      e->closing_ns = HARP_MIN(e->closing_ns, link->closing_until_ns);
      at = &link->next_closing;
    }
  }
}

/* ---- NCCL's calls ---- */

void harp_link_destroy(struct harp_link *link) {
  struct harp_engine *e = link->engine;
  harp_engine_lock(e);
  struct harp_peer *peer = link->peer; /* a link may be moved until then */
  harp_ns now = e->clock();
  if (link->tx) harp_peer_take_submissions(link, now);
  harp_copies_collect(link);
  if (harp_copies_count(&link->copies)) (void)harp_link_error(link); /* no later call reports it */
  if (has_copies_to_deliver(link)) {
    begin_closing(link, now);
    harp_peer_touch(peer);
  } else {
    harp_link_end(link);
  }
  if (!peer->links && !harp_peer_is_usable(peer)) harp_peer_destroy(peer);
  harp_engine_unlock(e);
}

static bool request_overlaps(const struct harp_request *r, const void *data, size_t bytes) {
  uintptr_t a = (uintptr_t)r->data, b = (uintptr_t)data;
  return a < b + bytes && b < a + HARP_MAX(r->capacity, 1u);
}

void harp_link_quiesce(struct harp_link *link, const void *data, size_t bytes) {
  struct harp_engine *e = link->engine;
  harp_engine_lock(e);
  harp_peer_take_submissions(link, e->clock());
  for (unsigned i = 0; i < HARP_REQUESTS_MAX; i++) {
    struct harp_request *r = &link->requests[i];
    if (atomic_load_explicit(&r->state, memory_order_relaxed) != HARP_REQUEST_POSTED ||
        !request_overlaps(r, data, bytes))
      continue;
    harp_link_fail(link, HARP_ERR_INTERNAL,
                   "a buffer was deregistered while the connection with %s still used it", link->peer->name);
    break;
  }
  harp_engine_unlock(e);
}
