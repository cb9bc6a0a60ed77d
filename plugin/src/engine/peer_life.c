/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/peer_life.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/control/connect_state.h"
#include "engine/engine.h"
#include "engine/inbound.h"
#include "engine/routes.h"
#include "engine/tcp/tcp.h"
#include "engine/watch/dump.h"
#include "engine/watch/summary.h"
#include "host/random.h"
#include "host/sparse.h"

/* ---- making ---- */

static void name_peer(struct harp_peer *peer, const struct harp_peer_config *c) {
  char address[HARP_IP_TEXT_BYTES];
  snprintf(peer->name, sizeof peer->name, "%s (%s) process %u", c->peer->name,
           harp_address_ip_text(&c->peer_addr, address), c->peer->pid);
  snprintf(peer->build, sizeof peer->build, "%s", c->peer->build);
}

/* Returns whether our first ENI is for us before the other processes that share the ENIs: it is near our GPU,
 * or ours by our rank. */
static bool prefers_first(const struct harp_engine *e) {
  const struct harp_instance *first = &e->enis[0];
  bool is_ours = first->local.has_rank || first->gpu_nearness > e->enis[e->eni_count - 1].gpu_nearness;
  return is_ours && first->local.sharers > 1;
}

static bool make_sender(struct harp_peer *peer, const struct harp_peer_config *c, uint32_t first_number,
                        const struct harp_path_config *paths) {
  struct harp_engine *e = peer->engine;
  struct harp_sender_config config = {
      .first_number = first_number,
      .stream_max = HARP_STREAMS_MAX,
      .path_count = peer->path_count,
      .prefers_first_eni = prefers_first(e),
      .window_bytes = c->peer->window_bytes,
      .cc = e->cc,
  };
  memcpy(config.paths, paths, sizeof config.paths);
  peer->sender_bytes = harp_sender_bytes(&config);
  struct harp_sender *s = peer->session.sender = harp_sparse_map(peer->sender_bytes);
  if (!s) return false;
  harp_sender_init(s, &config, NULL, &e->counters, e->clock());
  (void)harp_shared_clock_on_time(&e->shared_clock, e->instance.shared_clock, e->clock());
  harp_sender_set_clock(s, e->shared_clock.offset_ns, e->shared_clock.is_own);
  return true;
}

static bool make_receiver(struct harp_peer *peer, uint32_t first_number) {
  struct harp_receiver_config config = {
      .first_number = first_number,
      .stream_max = HARP_STREAMS_MAX,
      .path_count = peer->path_count,
      .window_bytes = harp_inbound_window_bytes(peer->engine),
      /* The connection of a tcp path proves its address. */
      .unproved = peer->route_count ? ~0ull >> (HARP_PATHS_MAX - peer->route_count) : 0,
  };
  struct harp_receiver *r = peer->session.receiver = malloc(harp_receiver_bytes(&config));
  if (r) harp_receiver_init(r, &config, NULL, &peer->engine->counters);
  return r;
}

static void free_peer(struct harp_peer *peer) {
  harp_routes_close(peer);
  harp_sparse_unmap(peer->session.sender, peer->sender_bytes);
  free(peer->session.receiver);
  free(peer);
}

/* The end of a peer whose control connection is not watched would go unnoticed. */
static void fail_unwatched(struct harp_peer *peer, int err) {
  char text[HARP_LIMIT_TEXT_BYTES];
  harp_peer_fail(peer, HARP_ERR_SYSTEM, peer->engine->clock(),
                 "%s: cannot watch the control connection with %s: %s", peer->engine->name, peer->name,
                 harp_limit_text(err == -ENOSPC ? HARP_EWATCHES : -err, text));
  harp_monitor_leave(peer);
}

struct harp_peer *harp_peer_create(struct harp_engine *e, const struct harp_peer_config *c) {
  struct harp_path_config paths[HARP_PATHS_MAX];
  uint32_t first_number = c->is_client ? c->local->first_number : c->peer->first_number;
  struct harp_peer *peer = aligned_alloc(HARP_CACHE_LINE, harp_align_up(sizeof *peer, HARP_CACHE_LINE));
  if (!peer) goto close_control;
  HARP_ASSERT(c->slot < HARP_ENGINE_PEERS_MAX);
  memset(peer, 0, sizeof *peer);
  peer->engine = e;
  harp_log_limit_init(&peer->log, &e->counters.log_left_out);
  peer->slot = c->slot;
  peer->traffic_class = c->traffic_class;
  peer->is_client = c->is_client;
  peer->is_confirmed = !c->is_client;
  peer->is_multihomed = c->local->eni_count > 1 || c->peer->eni_count > 1;
  peer->last_received_ns = peer->idle_ns = peer->busy_ns = e->clock();
  peer->engine_id = (uint32_t)(c->peer->token >> 32);
  peer->engine_addr = harp_address_make(c->peer->enis[0].family, c->peer->enis[0].addr, 0, 0);
  name_peer(peer, c);
  if (!harp_routes_open(peer, c, paths)) goto free_peer;
  if (!make_sender(peer, c, first_number, paths) || !make_receiver(peer, first_number)) goto free_peer;
  HARP_ASSERT(peer->path_count == peer->route_count + peer->tcp_count);
  harp_session_init(&peer->session, &c->keys, peer->session.sender, peer->session.receiver);
  if (c->macs.is_on) harp_session_use_macs(&peer->session, &c->macs);
  peer->tcp_wanted = harp_tcp_paths_in_use(peer);
  harp_monitor_init(&peer->monitor, c->control_fd, &c->control, e->instance.peer_timeout_ns,
                    peer->is_multihomed);
  harp_stats_add_peer(peer, c);
  harp_recorder_add_peer(peer);
  int err = harp_engine_attach(e, peer);
  if (err) fail_unwatched(peer, err);
  harp_routes_tell_news(peer, c->local);
  harp_inbound_on_time(e, e->clock());
  harp_peer_touch(peer); /* its paths are to be probed */
  return peer;
free_peer:
  free_peer(peer);
close_control:
  if (c->control_fd >= 0) harp_files_close(c->control_fd);
  return NULL;
}

void harp_peer_destroy(struct harp_peer *peer) {
  HARP_ASSERT(!peer->links && !peer->link_count && !peer->outstanding && !peer->connects);
  harp_tcp_leave(peer);
  harp_inquiry_end(&peer->inquiry);
  harp_monitor_close(peer);
  harp_session_close(&peer->session, peer->engine->clock());
  harp_engine_detach(peer->engine, peer);
  harp_outages_forget_peer(peer);
  harp_stats_remove_peer(peer);
  harp_summary_of_peer(peer);
  free_peer(peer);
}

/* ---- what changes ---- */

static void complete_arrived(struct harp_peer *peer) {
  for (struct harp_link *link; (link = peer->arrived);) {
    peer->arrived = link->next_arrived;
    link->has_arrived = false;
    harp_link_complete(link);
    harp_link_fail_if_misused(link);
  }
}

void harp_peer_complete_news(struct harp_peer *peer) {
  struct harp_tx_stream *st;
  if (peer->arrived) complete_arrived(peer);
  while ((st = harp_sender_take_changed(peer->session.sender))) {
    HARP_ASSERT(st->owner);
    harp_link_complete(st->owner);
  }
  harp_peer_touch(peer);
}

void harp_peer_complete(struct harp_peer *peer) {
  for (struct harp_link *link = peer->links; link; link = link->next_of_peer) harp_link_complete(link);
}

void harp_peer_fail(struct harp_peer *peer, enum harp_status status, harp_ns now, const char *fmt, ...) {
  HARP_ASSERT(status != HARP_OK);
  if (peer->session.state != HARP_SESSION_OPEN) return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(peer->error, sizeof peer->error, fmt, ap);
  va_end(ap);
  harp_session_fail(&peer->session, status, now);
  if (peer->links) harp_dump_make(peer, "a session has failed", now);
  harp_tcp_leave(peer);
  for (struct harp_link *link = peer->links; link; link = link->next_of_peer) harp_link_fail_with_peer(link);
  harp_connects_on_silence(peer, now);
}

/* Returns whether somebody may ask again for one of the peer's links, over another connection. One who has
 * left in order does not. */
static bool may_be_asked_again(const struct harp_peer *peer, harp_ns now) {
  if (peer->monitor.final_received || now - peer->gone_ns >= HARP_PEER_AGAIN_NS) return false;
  const struct harp_link *link = peer->links;
  while (link && !link->answer) link = link->next_of_peer;
  return link != NULL;
}

void harp_peer_on_gone(struct harp_peer *peer, const char *why, harp_ns now) {
  harp_monitor_set_gone(peer, why);
  if (!peer->gone_ns) peer->gone_ns = now;
  harp_peer_complete(peer);
  harp_connects_on_silence(peer, now);
  if (!peer->outstanding || may_be_asked_again(peer, now)) return;
  if (peer->monitor.final_received)
    harp_peer_fail(peer, HARP_ERR_REMOTE, now, "%s closed its connection to %s with transfers unfinished",
                   peer->name, peer->engine->name);
  else
    harp_peer_fail(peer, HARP_ERR_REMOTE, now, "lost %s: its control connection to %s %s", peer->name,
                   peer->engine->name, peer->monitor.gone_why);
}

/* Gives back what an idle peer's sender does not use: runs of flights that are empty. */
static void rest_sender(struct harp_peer *peer) {
  uint8_t *from = NULL, *to = NULL;
  for (unsigned i = 0; i < peer->path_count; i++) {
    size_t bytes;
    uint8_t *flight = harp_sender_idle_flight(peer->session.sender, i, &bytes);
    if (flight && flight == to) {
      to += bytes;
      continue;
    }
    if (to) harp_sparse_give_back(from, (size_t)(to - from));
    from = flight;
    to = flight ? flight + bytes : NULL;
  }
  if (to) harp_sparse_give_back(from, (size_t)(to - from));
}

/* Gives memory back once in HARP_PEER_REST_NS while nothing moves. */
static void rest_peer(struct harp_peer *peer, harp_ns now) {
  if (peer->outstanding) peer->busy_ns = now;
  if (now - HARP_MAX(peer->busy_ns, peer->data_ns) < HARP_PEER_REST_NS) return;
  peer->busy_ns = now;
  rest_sender(peer);
  for (struct harp_link *link = peer->links; link; link = link->next_of_peer) harp_link_rest(link);
}

void harp_peers_on_time(struct harp_engine *e, harp_ns now) {
  e->linger_ns = now + HARP_PEERS_TIME_NS;
  bool is_new_clock = harp_shared_clock_on_time(&e->shared_clock, e->instance.shared_clock, now);
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));) {
    if (is_new_clock)
      harp_sender_set_clock(peer->session.sender, e->shared_clock.offset_ns, e->shared_clock.is_own);
    if (peer->links && harp_sender_rest(peer->session.sender, now)) harp_peer_touch(peer);
    rest_peer(peer, now);
    if (peer->monitor.gone && peer->outstanding) harp_peer_on_gone(peer, peer->monitor.gone_why, now);
    if (peer->links) continue;
    if (!harp_peer_is_usable(peer) || now - peer->idle_ns >= HARP_PEER_LINGER_NS) harp_peer_destroy(peer);
  }
}
