/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP connection over several links, as a model: bytes in segments, delivered in order, CUBIC.
 *
 * Idealised where TCP is good: what has arrived is known segment by segment with every acknowledgement (as by
 * SACK), the first later arrival tells a loss (its route does not reorder), the host costs nothing. As it is
 * where TCP is slow: windows of CUBIC (RFC 9438) without pacing, a lost tail is found by a probe after two
 * round trips (RFC 8985, section 7), and when that is lost by a timeout of 200 ms and more (RFC 6298 with
 * Linux's minimum). As in Linux two superframes of a socket, or what it sends in a millisecond, wait in its
 * host's queue at most, and a window that is not in use does not grow. */
#ifndef HARP_CLUSTER_SOCKET_H
#define HARP_CLUSTER_SOCKET_H

#include "models/cubic.h"
#include "models/trip.h"

/* Segments of the receive window: about a tcp_rmem of 6 MB in segments of 1448 bytes. */
enum { SOCKET_WINDOW_SEGMENTS_MAX = 4096 };

struct segment {
  uint64_t number;
  uint64_t order; /* the number of this sending of the segment, from 0 */
  harp_ns sent_ns;
  harp_ns left_ns; /* when it has left its host */
  bool is_dropped;
};

struct socket_trip {
  struct trip trip; /* first: the socket is found from it */
  struct socket *socket;
};

struct socket {
  struct agenda *agenda;
  struct socket_trip there, back;
  struct lane data, acks;
  struct source timer; /* the timer of the probe, then of the timeout */
  struct source room;  /* fires when its host's queue takes more */
  struct cubic_window window;
  uint32_t segment_bytes;
  uint64_t seed; /* the seed of its port, for the hash of the fabric */

  /* the sending end */
  uint64_t next, end;     /* segments: the next new one, and behind the last that was written */
  uint64_t order;         /* sendings so far */
  harp_ns rtt_min_ns;     /* 0: not measured yet */
  struct segment *flight; /* a ring of sendings that no acknowledgement has settled, in order */
  uint32_t flight_room, flight_head, flight_count;
  uint64_t *again; /* a ring of segments that are to be sent again */
  uint32_t again_room, again_head, again_count;
  unsigned timeouts; /* the timeouts after the last acknowledgement */

  /* the receiving end */
  uint64_t received; /* segments, in order */
  uint64_t bits[SOCKET_WINDOW_SEGMENTS_MAX / 64];
  uint32_t unacked; /* segments */
  uint64_t last_order;

  uint64_t sent, lost;                                /* segments */
  void (*on_progress)(struct socket *s, harp_ns now); /* `received` has grown */
  void *owner;
};

/* Prepares a connection whose trips the caller then fills with hops. */
void socket_init(struct socket *s, struct agenda *a, uint32_t segment_bytes, uint64_t seed);
void socket_fini(struct socket *s);

/* Writes so many segments more. */
void socket_write(struct socket *s, uint64_t segments, harp_ns now);

#endif
