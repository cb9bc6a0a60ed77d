/* SPDX-License-Identifier: Apache-2.0 */
/* A listener: what hears for one NCCL listenComm, and its guests, the handshakes on the sockets that it has
 * accepted.
 *
 * Anyone may connect to its port, so strangers are bounded in number, bytes and time, and cost nothing but a
 * slot in a small table. Who knows the secret gets a link before it is accepted; those are bounded in number.
 * The engine's pass drives it. */
#ifndef HARP_LISTENER_H
#define HARP_LISTENER_H

#include "engine/handle.h"
#include "engine/meeting.h"

#define HARP_GUEST_NS HARP_SEC(5) /* a stranger has so long to prove the secret */

struct harp_listener {
  struct harp_engine *engine;
  struct harp_listener *next; /* of the engine's */
  int traffic_class;          /* of what its connections send: acknowledgements */
  int fd;
  uint16_t port;
  bool deaf;                    /* nothing can be accepted for now; the runner does not wait for the socket */
  bool shortage_told;           /* that somebody waits because of it */
  bool busy_told;               /* that somebody was refused since too many wait for accept */
  _Atomic uint32_t ready_count; /* written under the engine's lock; a glance at it saves taking the lock */
  struct harp_link *ready_first, *ready_last; /* met and not taken yet, oldest first */
  struct harp_stall_wait wait;                /* of who polls accept */
  uint8_t secret[HARP_SECRET_BYTES];
  unsigned guest_count;
  struct harp_meeting guests[HARP_GUESTS_MAX];
};

/* Opens a listening socket on the engine's address and fills the handle. traffic_class (-1: none) is that of
 * the connections that it accepts. Returns a status; the WARN is logged. */
enum harp_status harp_listener_open(struct harp_listener **l, struct harp_engine *e,
                                    struct harp_handle *handle, int traffic_class);
/* Takes an event of the control epoll whose data is no slot: lets a few guests in, or drives the handshake of
 * one; those that are done become links and wait for harp_listener_take. Called by the engine's pass, under
 * its lock: a peer gets its connection however late this process asks for its own. */
void harp_listeners_on_ready(uint64_t what, harp_ns now);
/* Looks after a few listeners, each in its turn: guests whose time is over go, and one that had no file for a
 * guest tries again. Under the lock. */
void harp_listeners_tend(struct harp_engine *e, harp_ns now);
/* Any thread: takes the link that has waited longest, NULL if none has come. */
struct harp_link *harp_listener_take(struct harp_listener *l);
/* The same for NCCL's accept, one thread at a time: one that waits for long says for whom. */
struct harp_link *harp_listener_poll(struct harp_listener *l);
/* Closes the socket, sends the guests away and destroys links that nobody took. Takes the engine's lock. */
void harp_listener_close(struct harp_listener *l);

/* For opening.c, under the lock: */

/* Finds the engine's listener on this TCP port; NULL: there is none. */
struct harp_listener *harp_listener_of_port(const struct harp_engine *e, uint16_t port);
/* Counts the links that wait for accept, and the guests that become links with their CONFIRM. */
unsigned harp_listener_count_unaccepted(const struct harp_listener *l);
/* Puts a link among those that wait for their accept. */
void harp_listener_put_ready(struct harp_listener *l, struct harp_link *link);

#endif
