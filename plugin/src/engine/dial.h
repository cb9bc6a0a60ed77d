/* SPDX-License-Identifier: Apache-2.0 */
/* A dial: one connect of NCCL's that is under way. It asks the peer for a stream where there is one
 * (opening.h), else it meets the engine that listens (meeting.h). Whoever polls connect drives it, one thread
 * at a time. */
#ifndef HARP_DIAL_H
#define HARP_DIAL_H

#include "engine/handle.h"
#include "engine/meeting.h"

struct harp_dial {
  struct harp_engine *engine;
  struct harp_dial *next; /* of the engine's */
  /* the peer that was asked to open a stream; NULL: it is not, or has answered, or is gone */
  struct harp_peer *peer;
  struct harp_dial *next_of_peer;
  struct harp_link *link; /* that the stream is of; NULL: none was asked for */
  bool is_met;  /* the link is of a handshake of ours, whose peer is to show that it is done there too */
  bool is_open; /* the peer has opened it */
  enum harp_refusal refusal;
  harp_ns asked_ns;
  harp_ns met_ns;     /* since when a handshake is under way; 0: none. Under the engine's lock */
  harp_ns hello_ns;   /* since when our HELLO is under way; 0: none. Under the lock */
  harp_ns polled_ns;  /* when somebody drove it last. Under the lock */
  bool has_yielded;   /* its handshake is not to be done: the other side's has won. Under the lock */
  harp_ns crossed_ns; /* when the peer said that its own connect to us has won; 0: it has not */
  uint32_t engine_id; /* that is connected to */
  struct sockaddr_storage to;
  int traffic_class;
  bool connected;       /* TCP is up, the handshake runs */
  harp_ns connected_ns; /* since when */
  harp_ns
      deadline_ns; /* moves on by as long as TCP is up: the peer's process lives, and may be slow to accept */
  harp_ns retry_ns;
  struct harp_stall_wait wait;
  unsigned turn; /* of our interfaces, whose address the next attempt comes from */
  int last_errno;
  bool is_refused_busy; /* the last attempt, by a peer that too many wait for */
  uint8_t secret[HARP_SECRET_BYTES];
  struct harp_meeting meeting;
};

/* Begins to connect. */
enum harp_status harp_dial_open(struct harp_dial **d, struct harp_engine *e, const struct harp_handle *handle,
                                int traffic_class);
/* Drives it; *link is set when it has become a link, else NULL: poll again. Logs the WARN of an error. A peer
 * that cannot be reached, hangs up or has too many waiting, for the peer timeout, is an error; one that lives
 * and does not accept is waited for, since it may itself be waiting for a rank that comes later. */
enum harp_status harp_dial_poll(struct harp_dial *d, struct harp_link **link);
void harp_dial_close(struct harp_dial *d);

#endif
