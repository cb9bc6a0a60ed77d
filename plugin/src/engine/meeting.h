/* SPDX-License-Identifier: Apache-2.0 */
/* A meeting: the handshake of two processes on one TCP socket, without blocking, until there is a peer with a
 * link. A listener's guests and a dial's attempts are made of it.
 *
 * It owns its socket, and its slot in the engine's table of peers, until the peer takes them over. Who drives
 * it: listener.h, dial.h. */
#ifndef HARP_MEETING_H
#define HARP_MEETING_H

#include "engine/engine.h"
#include "proto/handshake.h"

/* One handshake on one socket. */
struct harp_meeting {
  int fd; /* -1: none */
  int slot;
  struct harp_listener *listener; /* whose guest it is; NULL: a dial's */
  harp_ns since_ns;
  struct sockaddr_storage peer_addr;
  struct harp_handshake handshake;
};

/* Opens a TCP socket of the engine's family, without blocking. Returns it, or -1 with errno. */
int harp_meeting_socket(const struct harp_engine *e);

/* Starts a handshake on a socket; reserves the slot that its token names. Under the engine's lock. Returns 0
 * or -errno. */
int harp_meeting_start(struct harp_meeting *m, struct harp_engine *e, bool client,
                       const uint8_t secret[HARP_SECRET_BYTES]);
/* Closes the socket and gives the slot back. Under the engine's lock. */
void harp_meeting_end(struct harp_meeting *m, struct harp_engine *e);
/* Moves bytes both ways, but does not read for ever from a peer that goes on writing. Returns 0, or -errno
 * when the connection broke (-ECONNRESET at its end). */
int harp_meeting_run(struct harp_meeting *m);
/* Returns whether something of the handshake waits for the socket. */
bool harp_meeting_has_unsent(const struct harp_meeting *m);
/* Returns whether the handshake is done, its last word sent. */
bool harp_meeting_done(const struct harp_meeting *m);
/* Turns a finished handshake into a peer with one link, of the client's first stream; socket and slot pass
 * over to it. NULL: the WARN is logged. Under the engine's lock. */
struct harp_link *harp_meeting_link(struct harp_meeting *m, struct harp_engine *e, enum harp_role role,
                                    int traffic_class);
/* Writes why a handshake was refused: a clause whose subject is the peer. */
void harp_meeting_refusal_text(const struct harp_handshake *h, char *text, size_t bytes);

/* Counts a new link and says it at INFO. */
void harp_link_tell_connected(const struct harp_link *link, const struct sockaddr_storage *addr);

#endif
