/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pass.h"

#include "base/assert.h"
#include "engine/control/listener.h"
#include "engine/control/liveness.h"
#include "engine/engine.h"
#include "engine/inbound.h"
#include "engine/link_close.h"
#include "engine/look.h"
#include "engine/peer_life.h"
#include "engine/receive.h"
#include "engine/transmit.h"
#include "engine/watch/dump.h"
#include "engine/watch/packet_sizes.h"

enum {
  KEEPALIVES = 4 /* the probes of idle paths in the time after which silence means that the peer is lost */
};
#define CONTROL_NS HARP_MS(1)

_Static_assert(HARP_ENGINE_LINKS_MAX % (64 * 64) == 0, "each summary bit stands for as many words");

/* ---- submissions ---- */

static void take_word(struct harp_engine *e, unsigned w, harp_ns now) {
  uint64_t bits = atomic_exchange_explicit(&e->doorbells[w], 0, memory_order_acquire);
  for (; bits; bits &= bits - 1) {
    struct harp_link *link = e->links[w * 64 + (unsigned)__builtin_ctzll(bits)];
    if (!link) continue; /* closed since */
    HARP_ASSERT(link->slot / 64 == w && link->peer->engine == e);
    harp_peer_take_submissions(link, now);
    harp_link_complete(link);
    harp_peer_touch(link->peer);
  }
}

static void take_submissions(struct harp_engine *e, harp_ns now) {
  if (harp_likely(!atomic_load_explicit(&e->doorbell_words, memory_order_relaxed))) return;
  uint64_t words = atomic_exchange_explicit(&e->doorbell_words, 0, memory_order_acquire);
  for (; words; words &= words - 1) {
    unsigned first = (unsigned)__builtin_ctzll(words) * HARP_DOORBELL_WORDS;
    for (unsigned w = first; w < first + HARP_DOORBELL_WORDS; w++) take_word(e, w, now);
  }
}

/* ---- control ---- */

/* Keeps idle paths of peers alive that have several interfaces, or whose control connection is lost, and
 * finds peers that are silent while NCCL waits for them. Time in which nobody did a pass (the process was
 * stopped, the machine paused) does not count: peers may have been stopped as well. */
static void expire_silent_peers(struct harp_engine *e, harp_ns now) {
  harp_ns quiet_ns = e->instance.peer_timeout_ns / KEEPALIVES, period_ns = quiet_ns / 2;
  harp_ns late_ns = e->silence_ns ? now - e->silence_ns : 0;
  e->silence_ns = now + period_ns;
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));) {
    if (peer->session.state != HARP_SESSION_OPEN) continue;
    if (late_ns > period_ns) {
      peer->last_received_ns = HARP_MIN(peer->last_received_ns + late_ns, now);
      peer->waits_ns = HARP_MIN(peer->waits_ns + late_ns, now);
      harp_sender_excuse_stall(peer->session.sender, now);
    }
    harp_liveness_on_silence(peer, now);
    if (!peer->is_multihomed && !peer->monitor.lost) continue;
    harp_sender_keepalive(peer->session.sender, quiet_ns, now);
    harp_peer_complete_news(peer);
  }
}

static void run_control_timers(struct harp_engine *e, harp_ns now) {
  e->control_ns = now + CONTROL_NS;
  harp_listeners_on_time(e, now);
  harp_tcp_accepts_on_time(e, now);
  if (e->linger_ns <= now) {
    harp_peers_on_time(e, now);
    harp_inbound_on_time(e, now);
  }
  if (e->inquire_ns <= now) harp_liveness_inquire(e, now);
  if (e->silence_ns <= now) expire_silent_peers(e, now);
  struct harp_peer *stalled = harp_stalls_on_time(e, now);
  if (stalled) harp_dump_make(stalled, "NCCL waits", now);
  harp_stats_update(e, now);
}

/* ---- the pass ---- */

unsigned harp_engine_pass(struct harp_engine *e) {
  e->counters.passes++;
  e->io->ops->reap(e->io);
  harp_look(e);
  unsigned moved = harp_receive_datagrams(e);
  harp_ns now = e->looked_ns = e->clock();
  if (e->tcp) moved += harp_receive_records(e, &now);
  take_submissions(e, now);
  moved += harp_transmit_due(e, now);
  if (harp_unlikely(e->control_ns <= now)) run_control_timers(e, now);
  if (harp_unlikely(e->closing && e->closing_ns <= now)) harp_links_end_closed(e, now);
  harp_outages_on_pass(e, now);
  harp_packet_sizes_on_pass(e, now);
  harp_recorder_trace_refused(e, now);
  return moved;
}

unsigned harp_engine_pass_transmit(struct harp_engine *e) {
  e->counters.passes++;
  harp_ns now = e->clock();
  take_submissions(e, now);
  return harp_transmit_due(e, now);
}

harp_ns harp_engine_deadline_ns(const struct harp_engine *e) {
  harp_ns at = HARP_NEVER;
  if (atomic_load_explicit(&e->doorbell_words, memory_order_relaxed)) return 0;
  for (const struct harp_peer *peer = e->active_first; peer; peer = peer->next_active)
    at = HARP_MIN(at, peer->deadline_ns);
  return at;
}
