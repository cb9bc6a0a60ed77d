/* How two processes meet: TCP sockets that run the handshake, without blocking, until a link can be made.
 *
 * A listener hears for one NCCL listenComm; anyone may connect to its port, so strangers are bounded in
 * number, bytes and time, and cost nothing but a slot in a small table. The engine's pass drives it. A dial
 * is one connect under way; whoever polls connect drives it, one thread at a time. A meeting, the handshake
 * on one socket, is what both are made of. */
#ifndef HARP_MEET_H
#define HARP_MEET_H

#include "engine/engine.h"
#include "engine/handle.h"
#include "proto/handshake.h"

enum { HARP_GUESTS_MAX = 64 };
#define HARP_GUEST_NS HARP_SEC(5) /* a stranger has so long to prove the secret */

/* One handshake on one socket. */
struct harp_meeting {
  int fd; /* -1: none */
  int slot;
  harp_ns since_ns;
  struct sockaddr_storage peer_addr;
  struct harp_handshake handshake;
};

struct harp_listener {
  struct harp_engine *engine;
  struct harp_listener *next; /* of the engine's */
  int fd;
  bool deaf;                    /* nothing can be accepted for now; the runner does not wait for the socket */
  bool shortage_told;           /* that somebody waits because of it */
  _Atomic uint32_t ready_count; /* written under the engine's lock; a glance at it saves taking the lock */
  struct harp_link *ready_first, *ready_last; /* met and not taken yet, oldest first */
  uint8_t secret[HARP_SECRET_BYTES];
  struct harp_meeting guests[HARP_GUESTS_MAX];
};

struct harp_dial {
  struct harp_engine *engine;
  struct sockaddr_storage to;
  int traffic_class;
  bool connected;       /* TCP is up, the handshake runs */
  harp_ns connected_ns; /* since when */
  harp_ns
      deadline_ns; /* moves on by as long as TCP is up: the peer's process lives, and may be slow to accept */
  harp_ns retry_ns;
  unsigned turn; /* of our interfaces, whose address the next attempt comes from */
  int last_errno;
  uint8_t secret[HARP_SECRET_BYTES];
  struct harp_meeting meeting;
};

/* Opens a listening socket on the engine's address and fills the handle. Returns a status; the WARN is
 * logged. */
enum harp_status harp_listener_open(struct harp_listener **l, struct harp_engine *e,
                                    struct harp_handle *handle);
/* Lets guests in and drives their handshakes; those that are done become links and wait for
 * harp_listener_take. Called by the engine's pass, under its lock: a peer gets its connection however late
 * this process asks for its own. */
void harp_listeners_run(struct harp_engine *e, harp_ns now);
/* Any thread: takes the link that has waited longest, NULL if none has come. */
struct harp_link *harp_listener_take(struct harp_listener *l);
/* Closes the socket, sends the guests away and destroys links that nobody took. Takes the engine's lock. */
void harp_listener_close(struct harp_listener *l);

/* Begins to connect. */
enum harp_status harp_dial_open(struct harp_dial **d, struct harp_engine *e, const struct harp_handle *handle,
                                int traffic_class);
/* Drives it; *link is set when it has become a link, else NULL: poll again. Logs the WARN of an error. A peer
 * that cannot be reached, or hangs up, for the peer timeout is an error; one that lives and does not accept
 * is waited for, since it may itself be waiting for a rank that comes later. */
enum harp_status harp_dial_poll(struct harp_dial *d, struct harp_link **link);
void harp_dial_close(struct harp_dial *d);

#endif
