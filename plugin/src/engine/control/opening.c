/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/opening.h"

#include <errno.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/log_limit.h"
#include "engine/control/connect_state.h"
#include "host/random.h"

/* ---- the side that listens ---- */

/* Returns why a stream must not be opened; HARP_REFUSAL_NONE: it may be opened. */
static enum harp_refusal refuse_open(const struct harp_peer *peer, const struct harp_listener *l,
                                     const struct harp_open *open) {
  uint8_t proof[HARP_CONTROL_MAC_BYTES];
  if (!l) return HARP_REFUSAL_LISTENER;
  harp_control_open_proof(open, l->secret, peer->session.keys.tx_token, peer->session.keys.rx_token, proof);
  if (!harp_control_mac_equal(proof, open->proof)) return HARP_REFUSAL_SECRET;
  if (open->stream >= HARP_STREAMS_MAX) return HARP_REFUSAL_STREAM;
  return harp_listener_count_unaccepted(l) >= HARP_UNACCEPTED_MAX ? HARP_REFUSAL_BUSY : HARP_REFUSAL_NONE;
}

/* A peer that is refused as BUSY tries again soon, so a listener logs that once. */
static void log_refused(struct harp_listener *l, struct harp_peer *peer, enum harp_refusal refusal,
                        harp_ns now) {
  peer->engine->counters.handshake_refused++;
  if (refusal == HARP_REFUSAL_BUSY && l->busy_logged) return;
  if (refusal == HARP_REFUSAL_BUSY) l->busy_logged = true;
  HARP_INFO_LIMITED(&peer->log, now, "%s: refused a connection of %s: it %s", peer->engine->name, peer->name,
                    harp_refusal_text(refusal));
}

static enum harp_refusal refusal_of(int err) {
  if (err == -EEXIST) return HARP_REFUSAL_STREAM;
  return err == -HARP_ELINKS ? HARP_REFUSAL_LIMIT : HARP_REFUSAL_MEMORY;
}

void harp_listeners_on_open(struct harp_peer *peer, const struct harp_open *open, harp_ns now) {
  struct harp_engine *e = peer->engine;
  struct harp_listener *l = harp_listener_of_port(e, open->port);
  struct harp_opened opened = {.stream = open->stream, .refusal = refuse_open(peer, l, open)};
  struct harp_link *link = NULL;
  if (peer->session.state != HARP_SESSION_OPEN) return;
  if (!opened.refusal) {
    struct harp_link_config config = {.role = HARP_ROLE_RECEIVER,
                                      .stream = open->stream,
                                      .first_line = open->first_line,
                                      .first_message = open->first_message};
    int err = harp_link_create(&link, peer, &config);
    if (err) opened.refusal = refusal_of(err);
  }
  if (opened.refusal) log_refused(l, peer, opened.refusal, now);
  bool was_sent = harp_monitor_send_opened(peer, &opened);
  HARP_ASSERT(!link || l); /* without a listener it is refused */
  if (link && was_sent) {
    harp_listener_put_ready(l, link);
    harp_link_log_connected(link);
  } else if (link) {
    harp_link_end(link);
  }
}

/* ---- the side that connects ---- */

int harp_connect_request_stream(struct harp_connect *c, harp_ns now) {
  struct {
    uint32_t first_line, first_message;
  } fresh;
  HARP_ASSERT(!c->peer && !c->link);
  struct harp_peer *peer = harp_peer_find(c->engine, &c->contact, c->traffic_class);
  int stream = peer ? harp_link_free_stream(peer) : -1, err = harp_random_fill(&fresh, sizeof fresh);
  if (!peer || err) return peer ? err : -ENOENT;
  if (stream < 0) return -HARP_ESTREAMS;
  struct harp_link_config config = {.role = HARP_ROLE_SENDER,
                                    .stream = (uint16_t)stream,
                                    .first_line = fresh.first_line,
                                    .first_message = fresh.first_message};
  struct harp_open open = {.stream = config.stream,
                           .port = c->contact.port,
                           .first_line = fresh.first_line,
                           .first_message = fresh.first_message};
  err = harp_link_create(&c->link, peer, &config);
  if (err) return err;
  harp_control_open_proof(&open, c->contact.secret, peer->session.keys.rx_token, peer->session.keys.tx_token,
                          open.proof);
  harp_connect_await_answer(c, peer, now);
  if (!harp_monitor_send_open(peer, &open)) harp_connect_lose(c, now);
  return 0;
}
