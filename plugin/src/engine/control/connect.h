/* SPDX-License-Identifier: Apache-2.0 */
/* One connect of NCCL's that is under way. It requests a stream from the peer where there is one (opening.h),
 * else it connects to one of the addresses of the engine that listens (dials.h) and runs a handshake with it
 * (pending_peer.h). The thread that polls connect drives it, one thread at a time; other threads read or
 * change it only under the engine's lock (connect_state.h).
 *
 *   WAITING ─┬─▶ DIALING ──▶ HANDSHAKE ─┬─▶ CONFIRMING ─┬─▶ OPENED ──▶ DONE
 *            └─▶ REQUESTED ─────────────│───────────────┤
 *                                       └─▶ YIELDED     └─▶ REFUSED, LOST
 *
 * DIALING, HANDSHAKE, YIELDED, REFUSED and LOST end in WAITING, from where the next attempt begins. */
#ifndef HARP_CONNECT_H
#define HARP_CONNECT_H

#include <stdatomic.h>

#include "engine/control/dials.h"
#include "engine/control/handle.h"
#include "engine/control/pending_peer.h"

enum harp_connect_state {
  /* The connect waits until retry_ns, then for another handshake with that engine that is under way. */
  HARP_CONNECT_WAITING,
  HARP_CONNECT_DIALING, /* no TCP connection is up yet (dials.h) */
  HARP_CONNECT_HANDSHAKE,
  HARP_CONNECT_YIELDED,    /* the handshake is to be given up: the other side's has won */
  HARP_CONNECT_CONFIRMING, /* the handshake is done here; the peer is to show that it is done there too */
  HARP_CONNECT_REQUESTED,  /* a stream of a peer that was there before; the peer is to answer */
  HARP_CONNECT_OPENED,     /* the stream is open at the peer, too */
  HARP_CONNECT_REFUSED,
  HARP_CONNECT_LOST, /* the peer does not answer any more */
  HARP_CONNECT_DONE, /* the link was handed over */
  HARP_CONNECT_STATES
};

struct harp_connect {
  struct harp_engine *engine;
  struct harp_connect *next;     /* the next of the engine's connects */
  struct harp_contact contact;   /* the engine to connect to */
  struct harp_connect_name name; /* its name, with the attempt that is under way or comes next */
  int traffic_class;
  struct harp_stall_wait wait;

  /* Written by harp_connect_enter alone, under the engine's lock; the thread that polls reads it without. */
  _Atomic uint32_t state;
  harp_ns since_ns; /* the time when it came into that state */

  /* the stream */
  struct harp_peer *peer; /* REQUESTED: the peer in whose list of connects it is; else NULL */
  struct harp_connect *next_of_peer;
  /* The link exists from CONFIRMING or REQUESTED until OPENED, REFUSED or LOST was polled; else it is NULL.
   */
  struct harp_link *link;
  enum harp_refusal refusal; /* the reason of REFUSED */

  /* other connects to that engine */
  harp_ns polled_ns;  /* the time when the handshake was last driven */
  harp_ns crossed_ns; /* the time when the peer answered that its own connect has won; 0: it has not */

  /* attempts */
  struct harp_dials dials;
  struct harp_pending_peer pending; /* its handshake, over the connection that was up first, or a later one */
  harp_ns others_ns;                /* HANDSHAKE: the time to dial others if the peer does not answer */
  unsigned moves; /* the number of times that another connection replaced one without an answer */
  /* The time to give up. It moves on by the time in which the peer's process is known to run, since that
   * may be slow to accept. */
  harp_ns deadline_ns;
  harp_ns called_ns; /* when it was polled last, or opened */
  harp_ns retry_ns;
  int last_errno;
  bool is_refused_busy; /* the last attempt was refused, since too many connections wait for accept there */
};

static inline enum harp_connect_state harp_connect_state(const struct harp_connect *c) {
  return (enum harp_connect_state)atomic_load_explicit(&c->state, memory_order_relaxed);
}

/* Returns whether a handshake of its own is under way, or TCP is being connected for it. */
static inline bool harp_connect_is_in_attempt(const struct harp_connect *c) {
  enum harp_connect_state s = harp_connect_state(c);
  return s == HARP_CONNECT_DIALING || s == HARP_CONNECT_HANDSHAKE || s == HARP_CONNECT_YIELDED;
}

/* Returns whether the peer's process runs, as far as is known: its kernel has accepted the connection. */
static inline bool harp_connect_has_met(const struct harp_connect *c) {
  return harp_connect_state(c) > HARP_CONNECT_DIALING;
}

/* Begins to connect. Returns HARP_OK, or an error whose WARN is logged. */
enum harp_status harp_connect_open(struct harp_connect **c, struct harp_engine *e, const void *handle,
                                   size_t handle_bytes, int traffic_class);
/* Drives it. Sets *link once there is one, else NULL: poll again. Logs the WARN of an error. It is an error
 * when the peer cannot be reached, hangs up or has too many connections waiting for the length of the peer
 * timeout. A peer whose process runs and does not accept is waited for: it may itself wait for a rank that
 * comes later. */
enum harp_status harp_connect_poll(struct harp_connect *c, struct harp_link **link);
void harp_connect_close(struct harp_connect *c);

#endif
