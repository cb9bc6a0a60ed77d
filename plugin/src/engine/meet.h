/* How two processes meet: TCP sockets that run the handshake, without blocking, until a link can be made.
 *
 * A listener hears for one NCCL listenComm; anyone may connect to its port, so strangers are bounded in number, bytes
 * and time, and cost nothing but a slot in a small table. A dial is one connect under way. Both are driven by whoever
 * polls accept or connect; one thread at a time each. */
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
  int fd;
  uint8_t secret[HARP_SECRET_BYTES];
  struct harp_meeting guests[HARP_GUESTS_MAX];
};

struct harp_dial {
  struct harp_engine *engine;
  struct sockaddr_storage to;
  int traffic_class;
  bool connected;      /* TCP is up, the handshake runs */
  harp_ns connected_ns; /* since when */
  harp_ns deadline_ns;  /* moves on by as long as TCP is up: the peer's process lives, and may be slow to accept */
  harp_ns retry_ns;
  int last_errno;
  uint8_t secret[HARP_SECRET_BYTES];
  struct harp_meeting meeting;
};

/* Opens a listening socket on the engine's address and fills the handle. Returns a status; the WARN is logged. */
enum harp_status harp_listener_open(struct harp_listener **l, struct harp_engine *e, struct harp_handle *handle);
/* Drives the guests; *link is set when one has become a link, else NULL. */
enum harp_status harp_listener_poll(struct harp_listener *l, struct harp_link **link);
void harp_listener_close(struct harp_listener *l);

/* Begins to connect. */
enum harp_status harp_dial_open(struct harp_dial **d, struct harp_engine *e, const struct harp_handle *handle,
                                int traffic_class);
/* Drives it; *link is set when it has become a link, else NULL: poll again. Logs the WARN of an error. A peer that
 * cannot be reached, or hangs up, for the peer timeout is an error; one that lives and does not accept is waited for,
 * since it may itself be waiting for a rank that comes later. */
enum harp_status harp_dial_poll(struct harp_dial *d, struct harp_link **link);
void harp_dial_close(struct harp_dial *d);

#endif
