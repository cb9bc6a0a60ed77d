/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/dispatch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log_limit.h"
#include "engine/control/connect_state.h"
#include "engine/control/opening.h"
#include "engine/engine.h"
#include "engine/peer_life.h"
#include "engine/routes.h"
#include "engine/tcp/tcp.h"

enum { ERROR_BYTES = 128 };

/* ---- messages ---- */

/* Returns the text for a peer that failed. */
static const char *reason_text(uint32_t reason) {
  return reason == HARP_ERR_REMOTE   ? "nothing from here reaches it"
         : reason == HARP_ERR_SYSTEM ? "its operating system refused something"
                                     : "its side failed";
}

static void on_final(struct harp_peer *peer, const struct harp_final *final, harp_ns now) {
  peer->monitor.final_received = true;
  harp_peer_complete(peer);
  if (final->reason)
    harp_peer_fail(peer, HARP_ERR_REMOTE, now, "%s ended its connection with %s: %s; see its log", peer->name,
                   peer->engine->name, reason_text(final->reason));
}

static void on_close(struct harp_peer *peer, const struct harp_close *close, harp_ns now) {
  if (peer->session.state != HARP_SESSION_OPEN) return;
  const struct harp_tx_stream *tx = harp_sender_stream(peer->session.sender, close->stream);
  const struct harp_rx_stream *rx = harp_receiver_stream(peer->session.receiver, close->stream);
  HARP_ASSERT((!tx || tx->owner) && (!rx || rx->owner));
  struct harp_link *link = close->is_sender ? (rx ? rx->owner : NULL) : (tx ? tx->owner : NULL);
  if (link) harp_link_on_close(link, close, now); /* the peer closes since we have closed our end as well */
}

/* A late answer: the process was paused, and its paths had no chance. They get the whole timeout again. */
static void on_pong(struct harp_peer *peer, harp_ns now) {
  if (harp_monitor_on_pong(&peer->monitor, now) >= peer->engine->instance.peer_timeout_ns / 4)
    harp_sender_excuse_stall(peer->session.sender, now);
}

static void on_message(struct harp_peer *peer, const struct harp_control_message *msg, harp_ns now) {
  switch (msg->type) {
  case HARP_CONTROL_PONG:
    on_pong(peer, now);
    break;
  case HARP_CONTROL_FINAL:
    on_final(peer, &msg->final, now);
    break;
  case HARP_CONTROL_OPEN:
    harp_listeners_on_open(peer, &msg->open, now);
    break;
  case HARP_CONTROL_OPENED:
    harp_connects_on_opened(peer, &msg->opened, now);
    break;
  case HARP_CONTROL_CLOSE:
    on_close(peer, &msg->close, now);
    break;
  case HARP_CONTROL_WANT:
    harp_tcp_on_want(peer, msg->want.paths, now);
    break;
  case HARP_CONTROL_ADDRESS:
    harp_routes_on_address(peer, &msg->numbered, now);
    break;
  default:
    break; /* PING, which the monitor answers; decode lets no other type through */
  }
}

/* Takes all messages that are complete; returns false when they make no sense. */
static bool take_messages(struct harp_peer *peer, harp_ns now) {
  struct harp_control_message msg;
  int n;
  while ((n = harp_monitor_take(&peer->monitor, &msg)) > 0) {
    if (msg.type != HARP_CONTROL_FINAL) peer->is_confirmed = true; /* it may end before it has a link */
    on_message(peer, &msg, now);
  }
  return n == 0;
}

/* ---- the connection's end ---- */

/* Returns whether an error may be the network's under the socket, and not of the peer's process. A reset: the
 * peer's kernel has received nothing from us for too long, and gave up first, or a firewall in between reset
 * the connection. The kernel of a process that ended resets it as well where there was something that the
 * process had not read: its host is asked then (inquiry.h). */
static bool may_be_of_network(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
         error == EHOSTDOWN || error == ECONNRESET;
}

/* Returns whether the session may go on without its control connection. Of a peer with one interface a reset
 * rather says that its process has ended. */
static bool may_go_on(const struct harp_peer *peer, int error) {
  if (peer->monitor.final_received || !may_be_of_network(error)) return false;
  return peer->is_multihomed || error != ECONNRESET;
}

/* Ends a connection of which no more can be read. The peer learns it at once: it may wait for an answer here,
 * while its socket and the paths are well. */
static void end_connection(struct harp_peer *peer, const char *why, harp_ns now) {
  harp_peer_on_gone(peer, why, now);
  harp_monitor_leave(peer);
}

static void on_error(struct harp_peer *peer, int error, harp_ns now) {
  if (may_go_on(peer, error)) {
    harp_monitor_set_lost(peer);
    harp_connects_on_silence(peer, now);
    HARP_INFO_LIMITED(&peer->log, now,
                      "%s: the control connection with %s broke (%s); the connection continues %s",
                      peer->engine->name, peer->name, strerror(error),
                      peer->is_multihomed ? "over other interfaces" : "without it");
    return;
  }
  char text[ERROR_BYTES];
  snprintf(text, sizeof text, "broke: %s", strerror(error));
  end_connection(peer,
                 error == ETIMEDOUT    ? "timed out: the host or the network in between is down"
                 : error == ECONNRESET ? "was reset: the process ended, or a firewall in between reset it"
                                       : text,
                 now);
}

/* ---- reading ---- */

void harp_dispatch_control(struct harp_peer *peer, harp_ns now) {
  int error = 0;
  switch (harp_monitor_read(&peer->monitor, &error)) {
  case HARP_MONITOR_CAME:
    if (take_messages(peer, now))
      harp_monitor_answer(peer);
    else
      end_connection(peer, "carried something that is no HARP message", now);
    break;
  case HARP_MONITOR_CLOSED:
    harp_peer_on_gone(peer, "was closed: the process ended", now);
    break;
  case HARP_MONITOR_BROKE:
    on_error(peer, error, now);
    break;
  case HARP_MONITOR_NOTHING:
    break;
  }
  if (peer->monitor.gone) harp_peer_on_gone(peer, peer->monitor.gone_why, now);
}
