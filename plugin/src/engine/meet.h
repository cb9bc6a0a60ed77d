/* How two processes meet: TCP sockets that run the handshake, without blocking, until there is a peer with a
 * link; and how a further link is made of a peer that there is, by one round trip on its control connection.
 *
 * A listener hears for one NCCL listenComm; anyone may connect to its port, so strangers are bounded in
 * number, bytes and time, and cost nothing but a slot in a small table. Who knows the secret gets a link
 * before it is accepted; those are bounded in number. The engine's pass drives it. A dial is one connect
 * under way; whoever polls connect drives it, one thread at a time. A meeting, the handshake on one socket,
 * is what both are made of. */
#ifndef HARP_MEET_H
#define HARP_MEET_H

#include "engine/engine.h"
#include "engine/handle.h"
#include "proto/handshake.h"

enum {
  HARP_GUESTS_MAX = 64,
  HARP_UNACCEPTED_MAX = 8, /* of a listener: those that wait for accept, or only for their CONFIRM */
};
#define HARP_GUEST_NS HARP_SEC(5) /* a stranger has so long to prove the secret */

/* One handshake on one socket. */
struct harp_meeting {
  int fd; /* -1: none */
  int slot;
  struct harp_listener *listener; /* whose guest it is; NULL: a dial's */
  harp_ns since_ns;
  struct sockaddr_storage peer_addr;
  struct harp_handshake handshake;
};

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
  uint8_t secret[HARP_SECRET_BYTES];
  unsigned guest_count;
  struct harp_meeting guests[HARP_GUESTS_MAX];
};

struct harp_dial {
  struct harp_engine *engine;
  struct harp_dial *next; /* of the engine's */
  /* the peer that was asked to open a stream; NULL: it is not, or has answered, or is gone */
  struct harp_peer *peer;
  struct harp_dial *next_of_peer;
  struct harp_link *link; /* that the stream is of; NULL: none was asked for */
  bool is_open;           /* the peer has opened it */
  enum harp_refusal refusal;
  harp_ns asked_ns;
  harp_ns met_ns;     /* since when a handshake is under way; 0: none. Under the engine's lock */
  uint32_t engine_id; /* that is connected to */
  struct sockaddr_storage to;
  int traffic_class;
  bool connected;       /* TCP is up, the handshake runs */
  harp_ns connected_ns; /* since when */
  harp_ns
      deadline_ns; /* moves on by as long as TCP is up: the peer's process lives, and may be slow to accept */
  harp_ns retry_ns;
  unsigned turn; /* of our interfaces, whose address the next attempt comes from */
  int last_errno;
  bool is_refused_busy; /* the last attempt, by a peer that too many wait for */
  uint8_t secret[HARP_SECRET_BYTES];
  struct harp_meeting meeting;
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
/* A peer asks for a stream: makes a link of it, which waits for harp_listener_take, and answers. Under the
 * lock.
 */
void harp_listeners_on_open(struct harp_peer *peer, const struct harp_open *open);
/* Any thread: takes the link that has waited longest, NULL if none has come. */
struct harp_link *harp_listener_take(struct harp_listener *l);
/* Closes the socket, sends the guests away and destroys links that nobody took. Takes the engine's lock. */
void harp_listener_close(struct harp_listener *l);

/* Begins to connect. */
enum harp_status harp_dial_open(struct harp_dial **d, struct harp_engine *e, const struct harp_handle *handle,
                                int traffic_class);
/* Drives it; *link is set when it has become a link, else NULL: poll again. Logs the WARN of an error. A peer
 * that cannot be reached, hangs up or has too many waiting, for the peer timeout, is an error; one that lives
 * and does not accept is waited for, since it may itself be waiting for a rank that comes later. */
enum harp_status harp_dial_poll(struct harp_dial *d, struct harp_link **link);
void harp_dial_close(struct harp_dial *d);

/* A peer has answered. Under the lock. */
void harp_dials_on_opened(struct harp_peer *peer, const struct harp_opened *opened);
/* A peer will answer no more: those that wait for it try again. Under the lock. */
void harp_dials_forget(struct harp_peer *peer);

#endif
