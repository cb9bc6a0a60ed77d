/* SPDX-License-Identifier: Apache-2.0 */
/* A pending peer: a TCP socket on which the handshake of two processes runs, without blocking, until there is
 * a peer with a link. Each socket that a listener has accepted is one (listener.h), and each attempt of a
 * connect (connect.h); these drive it, the listener under the engine's lock.
 *
 * It owns its socket and its slot in the engine's table of peers until the peer takes them over. Before the
 * other side has proved the secret it has no slot, and nothing is spent on it but a file and this struct. */
#ifndef HARP_PENDING_PEER_H
#define HARP_PENDING_PEER_H

#include "engine/control/answers.h"
#include "engine/engine.h"
#include "proto/handshake.h"

struct harp_pending_peer {
  int fd; /* -1: none */
  int slot;
  struct harp_listener *listener; /* the listener that accepted it; NULL: it is a connect's */
  bool has_spare;                 /* its file is the engine's spare one: it is refused */
  bool is_stranger;               /* it has not proved the secret; the listener's */
  struct harp_pending_peer *next_stranger,
      *previous_stranger; /* the neighbours in the engine's list, oldest first */
  harp_ns since_ns;
  struct sockaddr_storage peer_addr;
  struct harp_handshake handshake;
};

/* Starts the handshake on the socket as the client, for this connect, and reserves the slot that its token
 * names. Under the engine's lock. Returns 0 or -errno. */
int harp_pending_peer_start(struct harp_pending_peer *p, struct harp_engine *e,
                            const struct harp_connect_name *name, const uint8_t secret[HARP_SECRET_BYTES]);
/* The same as the server, without a slot; and reserves the slot, once the other side has proved the secret
 * and waits for the answer. */
void harp_pending_peer_listen(struct harp_pending_peer *p, const uint8_t secret[HARP_SECRET_BYTES]);
int harp_pending_peer_on_proved(struct harp_pending_peer *p, struct harp_engine *e) HARP_MUST_CHECK;
/* Closes the socket and releases the slot. Under the engine's lock. */
void harp_pending_peer_end(struct harp_pending_peer *p, struct harp_engine *e);
/* Sends and reads what it can now, a bounded amount. Returns 0, or -errno when the connection broke
 * (-ECONNRESET at its end). */
int harp_pending_peer_run(struct harp_pending_peer *p);
/* Returns whether nothing was received from it yet. */
bool harp_pending_peer_is_mute(const struct harp_pending_peer *p);
/* Returns whether bytes of the handshake wait for the socket. */
bool harp_pending_peer_has_unsent(const struct harp_pending_peer *p);
/* Returns whether the handshake is done and its last byte sent. */
bool harp_pending_peer_is_done(const struct harp_pending_peer *p);
/* Returns what names the connect whose first stream a client's HELLO opens. */
struct harp_connect_name harp_pending_peer_name(const struct harp_pending_peer *p);
/* Turns a finished handshake into a peer, which takes over socket and slot. Returns NULL when that fails; the
 * line is logged. Under the engine's lock. */
struct harp_peer *harp_pending_peer_finish(struct harp_pending_peer *p, struct harp_engine *e,
                                           enum harp_role role, int traffic_class);
/* Returns which stream of the peer that the handshake opens. */
struct harp_link_config harp_pending_peer_stream(const struct harp_pending_peer *p, enum harp_role role);
/* Logs why that stream gets no link, -errno, and destroys the peer: its other side tries again. */
void harp_pending_peer_abandon(struct harp_peer *peer, enum harp_role role, int err);
/* Writes why a handshake was refused: a clause whose subject is the peer. */
void harp_pending_peer_refusal_text(const struct harp_handshake *h, char *text, size_t bytes);

/* Counts a new link and logs it at INFO. */
void harp_link_log_connected(const struct harp_link *link);

#endif
