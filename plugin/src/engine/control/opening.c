/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/opening.h"

#include <errno.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/log_limit.h"
#include "engine/control/connect_state.h"

/* ---- the side that listens ---- */

static struct harp_connect_name name_of(const struct harp_peer *peer, const struct harp_open *open) {
  return (struct harp_connect_name){.engine_id = peer->engine_id,
                                    .first_line = open->first_line,
                                    .first_message = open->first_message,
                                    .attempt = open->attempt};
}

/* Returns why a stream must not be opened; HARP_REFUSAL_NONE: it may be opened. */
static enum harp_refusal refuse_open(const struct harp_peer *peer, const struct harp_listener *l,
                                     const struct harp_open *open) {
  uint8_t proof[HARP_CONTROL_MAC_BYTES];
  struct harp_connect_name name = name_of(peer, open);
  if (!l) return HARP_REFUSAL_LISTENER;
  harp_control_open_proof(open, l->secret, peer->session.keys.tx_token, peer->session.keys.rx_token, proof);
  if (!harp_control_mac_equal(proof, open->proof)) return HARP_REFUSAL_SECRET;
  if (open->stream >= HARP_STREAMS_MAX) return HARP_REFUSAL_STREAM;
  return harp_listener_judge(l, &name);
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
  struct harp_listener *l = harp_listener_of_port(peer->engine, open->port);
  struct harp_opened opened = {.stream = open->stream, .refusal = refuse_open(peer, l, open)};
  if (peer->session.state != HARP_SESSION_OPEN) return;
  if (!opened.refusal) {
    struct harp_connect_name name = name_of(peer, open);
    struct harp_link_config config = {.role = HARP_ROLE_RECEIVER,
                                      .stream = open->stream,
                                      .first_line = open->first_line,
                                      .first_message = open->first_message};
    int err = harp_listener_answer(l, &name, peer, &config, &opened, now);
    if (err) opened.refusal = refusal_of(err);
  }
  if (!opened.refusal) return;
  log_refused(l, peer, opened.refusal, now);
  harp_monitor_send_opened(peer, &opened);
}

/* ---- the side that connects ---- */

int harp_connect_request_stream(struct harp_connect *c, harp_ns now) {
  HARP_ASSERT(!c->peer && !c->link);
  struct harp_peer *peer = harp_peer_find(c->engine, &c->contact, c->traffic_class);
  if (!peer) return -ENOENT;
  int stream = harp_link_free_stream(peer);
  if (stream < 0) return -HARP_ESTREAMS;
  struct harp_link_config config = {.role = HARP_ROLE_SENDER,
                                    .stream = (uint16_t)stream,
                                    .first_line = c->name.first_line,
                                    .first_message = c->name.first_message};
  struct harp_open open = {.stream = config.stream,
                           .port = c->contact.port,
                           .first_line = c->name.first_line,
                           .first_message = c->name.first_message,
                           .attempt = ++c->name.attempt};
  int err = harp_link_create(&c->link, peer, &config);
  if (err) return err;
  harp_control_open_proof(&open, c->contact.secret, peer->session.keys.rx_token, peer->session.keys.tx_token,
                          open.proof);
  harp_connect_await_answer(c, peer, now);
  if (!harp_monitor_send_open(peer, &open)) harp_connect_lose(c, now);
  return 0;
}
