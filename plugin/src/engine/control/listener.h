/* SPDX-License-Identifier: Apache-2.0 */
/* A listener: the socket of one NCCL listenComm, and the pending peers that it has accepted.
 *
 * The socket of an engine with one interface is bound to that one's address. With several it is bound to the
 * wildcard address, so that one file and one port serve all of them, those of interfaces that come later,
 * too; connections to other addresses of the host are closed at once.
 *
 * Anyone may connect to its port, so pending peers are bounded in number, bytes and time. One that has proved
 * the secret becomes a link before NCCL accepts it; those are bounded in number too. The engine's pass drives
 * it, under the engine's lock.
 *
 * A connect asks again when the connection breaks that was to bring the answer. It gets the same answer then:
 * the link that was made for it moves to the new connection, whether NCCL has accepted it or not. So a
 * listener that NCCL has closed lives on, for those who ask again alone, until its answers are known to have
 * come (answers.h); an engine has HARP_LISTENERS_CLOSED_MAX such ones. */
#ifndef HARP_LISTENER_H
#define HARP_LISTENER_H

#include "base/address.h"
#include "engine/control/answers.h"
#include "engine/control/handle.h"
#include "engine/control/pending_peer.h"
#include "engine/limits.h"

enum {
  HARP_LISTENERS_CLOSED_MAX = 64,
  HARP_LISTENER_REFUSED_BYTES = HARP_ADDRESS_TEXT_BYTES + HARP_LIMIT_TEXT_BYTES + 2,
};
#define HARP_PENDING_PEER_NS HARP_SEC(5) /* time in which a pending peer must prove the secret */

struct harp_listener {
  struct harp_engine *engine;
  struct harp_listener *next; /* the next of the engine's listeners */
  int traffic_class;          /* the traffic class of what its connections send: acknowledgements */
  int fd;
  uint16_t port;
  bool is_closed; /* NCCL has closed it */
  struct harp_answers answers;
  bool accept_paused; /* accept failed for lack of files or memory: the runner does not wait for the socket */
  /* The time since which connections could not be accepted, and the last time when one could not; 0: they
   * can be. */
  harp_ns short_since_ns, short_until_ns;
  int short_of; /* the error */
  bool shortage_logged;
  _Atomic int shortage_error; /* the error of a lasting shortage; 0: there is none */
  _Atomic bool has_refused;   /* a peer was refused for good, and accept has not returned that error yet */
  char refused_text[HARP_LISTENER_REFUSED_BYTES]; /* the address of that peer, and the reason */
  bool busy_logged;                               /* a refusal was logged: too many links wait for accept */
  _Atomic uint32_t ready_count; /* written under the engine's lock; read without it to avoid taking it */
  struct harp_link *ready_first, *ready_last; /* the links that wait for accept, oldest first */
  struct harp_stall_wait wait;                /* the wait of the thread that polls accept */
  uint8_t secret[HARP_SECRET_BYTES];
  unsigned pending_count; /* the pending peers with a connection */
  unsigned place_count;   /* the pending peers allocated; an event may name one that is free */
  struct harp_pending_peer *pending[HARP_PENDING_PEERS_MAX]; /* the first place_count are not NULL */
};

/* Opens a listening socket for the addresses of all of the engine's interfaces and fills the handle, of
 * handle_bytes. traffic_class (-1: none) is that of the connections that it accepts. Returns a status; the
 * WARN is logged. */
enum harp_status harp_listener_open(struct harp_listener **l, struct harp_engine *e, void *handle,
                                    size_t handle_bytes, int traffic_class);
/* Takes an event of the source of this name (io/ready.h): accepts a few connections, or drives one pending
 * peer. One that is done becomes a link and waits for harp_listener_poll, however late that is called. Called
 * by the engine's pass, under its lock. */
void harp_listeners_on_ready(uint64_t name, harp_ns now);
/* Drives all pending peers that have sent something, in the middle of a stage. Under the lock. */
void harp_listeners_drive(struct harp_engine *e, harp_ns now);
/* Checks a few listeners, each in its turn: ends pending peers whose time is over, and retries a paused
 * accept. Under the lock. */
void harp_listeners_on_time(struct harp_engine *e, harp_ns now);
/* Takes the link that has waited longest, for NCCL's accept; *link is NULL if there is none. One thread at a
 * time. Logs what it waits for when that takes long. Returns an error, with its WARN, when a peer that knows
 * the secret was refused for a reason that its next attempt would have too (no wire version or no path in
 * common), once for each such peer; and when a shortage of files or memory has kept connections from being
 * accepted for the peer timeout.
 */
enum harp_status harp_listener_poll(struct harp_listener *l, struct harp_link **link);
/* Ends the pending peers and destroys links that nobody took. Closes the socket, at once or when the answers
 * have come. Takes the engine's lock. */
void harp_listener_close(struct harp_listener *l);
/* Frees all listeners of an engine that closes; NCCL has closed them. */
void harp_listeners_end(struct harp_engine *e);

/* Called by opening.c, under the lock: */

/* Finds the engine's listener on this TCP port; NULL: there is none. */
struct harp_listener *harp_listener_of_port(const struct harp_engine *e, uint16_t port);
/* Returns why a connect gets no answer; HARP_REFUSAL_NONE: it gets one. HARP_REFUSAL_STREAM: a later attempt
 * of it has got one. */
enum harp_refusal harp_listener_judge(const struct harp_listener *l, const struct harp_connect_name *name);
/* Answers a connect over a peer, by this stream of it: makes its link, or moves the one that was made at an
 * earlier attempt. Sends OPENED, if it is given, and CLOSE where that link is closed. Returns 0; errors of
 * harp_link_create. */
int harp_listener_answer(struct harp_listener *l, const struct harp_connect_name *name,
                         struct harp_peer *peer, const struct harp_link_config *stream,
                         const struct harp_opened *opened, harp_ns now) HARP_MUST_CHECK;
/* Counts the links that wait for accept, but for dead ones, and the connects whose pending peers become links
 * with their CONFIRM. */
unsigned harp_listener_count_unaccepted(const struct harp_listener *l);

#endif
