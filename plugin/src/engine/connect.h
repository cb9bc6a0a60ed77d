/* SPDX-License-Identifier: Apache-2.0 */
/* One connect of NCCL's that is under way. It requests a stream from the peer where there is one (opening.h),
 * else it runs a handshake with the engine that listens (pending_peer.h). The thread that polls connect
 * drives it, one thread at a time; other threads read or change it only under the engine's lock. */
#ifndef HARP_CONNECT_H
#define HARP_CONNECT_H

#include "engine/handle.h"
#include "engine/pending_peer.h"

struct harp_connect {
  struct harp_engine *engine;
  struct harp_connect *next; /* of the engine's */
  uint32_t engine_id;        /* of the engine to connect to */
  struct sockaddr_storage to;
  int traffic_class;
  uint8_t secret[HARP_SECRET_BYTES];
  struct harp_stall_wait wait;

  /* the stream that was requested */
  /* The peer that is to answer; NULL: no request is open, or it was answered, or the peer is gone. */
  struct harp_peer *peer;
  struct harp_connect *next_of_peer;
  struct harp_link *link; /* of that stream; NULL: none was requested */
  bool is_handshaken; /* the link is of our own handshake, and the peer must show that it is done there too */
  bool is_open;       /* the peer has opened it */
  enum harp_refusal refusal;
  harp_ns requested_ns;

  /* our own handshake with that engine, as others see it; under the engine's lock */
  harp_ns handshake_ns; /* when it began; 0: none is under way */
  harp_ns hello_ns;     /* when our HELLO was sent; 0: none is under way */
  harp_ns polled_ns;    /* when it was last driven */
  bool has_yielded;     /* it is to be given up: the other side's has won */
  harp_ns crossed_ns;   /* when the peer answered that its own connect to us has won; 0: it has not */

  /* attempts */
  struct harp_pending_peer pending;
  bool connected;       /* TCP is up and the handshake runs */
  harp_ns connected_ns; /* when it came up */
  /* When to give up. Extended by the time that TCP is up: the peer's process runs and may be slow to
   * accept. */
  harp_ns deadline_ns;
  harp_ns retry_ns;
  unsigned turn; /* our interface whose address the next attempt uses */
  int last_errno;
  bool is_refused_busy; /* the last attempt, by a peer with too many connections that wait for accept */
};

/* Begins to connect. Returns HARP_OK, or an error whose WARN is logged. */
enum harp_status harp_connect_open(struct harp_connect **c, struct harp_engine *e,
                                   const struct harp_handle *handle, int traffic_class);
/* Drives it. Sets *link once there is one, else NULL: poll again. Logs the WARN of an error. It is an error
 * when the peer cannot be reached, hangs up or has too many connections waiting for the length of the peer
 * timeout. A peer whose process runs and does not accept is waited for: it may itself wait for a rank that
 * comes later. */
enum harp_status harp_connect_poll(struct harp_connect *c, struct harp_link **link);
void harp_connect_close(struct harp_connect *c);

#endif
