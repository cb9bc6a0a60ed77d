/* SPDX-License-Identifier: Apache-2.0 */
/* A peer: our engine's connection with one engine of another process. It has the protocol's halves, routes
 * over our drivers, a control connection, and links: NCCL's connections, each a stream of it in one
 * direction. What belongs to the wire between the two engines exists once, here. peer_life.h makes, fails and
 * ends peers.
 *
 * All of it belongs to whoever holds the engine's lock. */
#ifndef HARP_PEER_H
#define HARP_PEER_H

#include <stdatomic.h>

#include "base/log_limit.h"
#include "engine/control/handle.h"
#include "engine/control/inquiry.h"
#include "engine/control/monitor.h"
#include "engine/watch/outage.h"
#include "engine/watch/stall.h"
#include "engine/watch/stats.h"
#include "io/io.h"
#include "proto/session.h"

enum { HARP_PEER_TEXT_BYTES = 160, HARP_ERROR_TEXT_BYTES = 640 };

/* Without a link a peer is kept for so long: communicators are torn down and made again. */
#define HARP_PEER_LINGER_NS HARP_SEC(1)
/* For which nothing has moved for so long, a peer gives memory back that it does not use: longer than most
 * pauses of a job that computes. */
#define HARP_PEER_REST_NS HARP_SEC(60)

struct harp_engine;
struct harp_link;
struct harp_connect;
struct harp_tcp_path;

/* The interfaces that a path joins, and the place of its port among those of each. */
struct harp_path_ends {
  uint8_t local_eni, local_port, remote_eni, remote_port;
};

struct harp_peer {
  struct harp_engine *engine;
  uint32_t slot;                 /* in the engine's table; also the low bits of our token */
  struct harp_peer *next_active; /* of those that have something to do or to wait for */
  bool active;
  bool sends;          /* data of it came lately; kept by inbound.c */
  bool is_client;      /* we began the handshake */
  bool is_multihomed;  /* one of the ends has several interfaces */
  bool is_false;       /* it has acknowledged what was never sent */
  bool is_confirmed;   /* the other side is known to have it; a server's from the beginning */
  _Atomic bool warned; /* its failure was logged, by a thread of NCCL's */
  int traffic_class;   /* of its packets; -1: none */
  harp_ns deadline_ns;
  harp_ns last_received_ns; /* when the last packet of the peer was received */
  harp_ns waits_ns;         /* when requests began to wait for it, the last time that none had */
  harp_ns data_ns;          /* when a packet with data came last */
  harp_ns busy_ns;          /* when NCCL was last seen to wait for it, or its memory was given back */
  harp_ns gone_ns;          /* when its control connection was found to be gone; 0: it was not */
  harp_ns idle_ns;          /* since when it has no link; HARP_NEVER: it has */
  uint32_t outstanding;     /* requests of its links that are posted and not done */
  uint32_t stream_next;     /* id to try first for the next stream that we send on */
  uint32_t link_count;
  struct harp_link *links;
  struct harp_link *arrived;     /* of which something came since the peer was settled */
  struct harp_connect *connects; /* that have requested a stream and wait for the answer */
  struct harp_session session;
  size_t sender_bytes;       /* of session.sender */
  struct harp_trace trace;   /* of its events */
  struct harp_log_limit log; /* of lines that the other side can cause */
  struct harp_peer_stats stats;
  struct harp_peer_stall stall;
  struct harp_inquiry inquiry;
  struct harp_monitor monitor;           /* the control connection: whether the peer's process runs */
  char name[HARP_PEER_TEXT_BYTES];       /* "host (address) process 123" */
  char build[HARP_ENDPOINT_BUILD_BYTES]; /* "HARP 1.0.0" */
  char error[HARP_ERROR_TEXT_BYTES];     /* why it failed */
  uint32_t engine_id;                    /* the other engine: the upper half of all its tokens */
  struct sockaddr_storage engine_addr;   /* of its first interface */
  unsigned path_count, route_count;
  struct harp_io_route *routes[HARP_PATHS_MAX]; /* NULL: an end of the path has no address yet */
  unsigned tcp_count; /* of the paths that are kernel TCP connections, the last ones; they have no route */
  struct harp_tcp_path *tcp;
  uint64_t tcp_wanted;     /* that the server's sender has in use, by its last WANT; a bit each */
  unsigned carrier_trials; /* experiments, up to the last look */
  bool prefers_datagrams;  /* what they had found then */
  struct harp_path_ends ends[HARP_PATHS_MAX];
  uint16_t packet_limits[HARP_PATHS_MAX]; /* payload that the path is limited to; 0: it is not */
  unsigned remote_eni_count;
  struct harp_endpoint_eni remote_enis[HARP_ENDPOINT_ENIS_MAX]; /* what the peer has said of its interfaces */
  struct sockaddr_storage enis[HARP_ENDPOINT_ENIS_MAX];         /* addresses of those that paths lead to */
  struct harp_outage outages[HARP_ENDPOINT_ENIS_MAX];           /* of these */
};

/* What a new peer is made of; everything is copied. */
struct harp_peer_config {
  bool is_client; /* we began the handshake */
  uint32_t slot;
  struct harp_session_keys keys;
  struct harp_control_keys control;
  int control_fd; /* owned by the peer from here on, also on failure */
  const struct harp_endpoint *local, *peer;
  struct sockaddr_storage peer_addr; /* of the control connection, for messages */
  int traffic_class;
};

/* Returns whether new links may be opened on it. */
bool harp_peer_is_usable(const struct harp_peer *peer);

/* Makes the peer due: this pass, or the next, visits it. */
void harp_peer_touch(struct harp_peer *peer);

/* Notes why a packet of the peer was dropped. One that acknowledged what was never sent fails at the next
 * review of its monitor, so that it gains nothing: callers are in the middle of something. */
static inline void harp_peer_note_drop(struct harp_peer *peer, enum harp_drop drop) {
  if (harp_likely(drop != HARP_DROP_FALSE_ACK)) return;
  peer->is_false = true;
  harp_peer_touch(peer);
}

/* Finds the usable peer that is the engine which made this handle, for this traffic class; NULL: none. */
struct harp_peer *harp_peer_find(struct harp_engine *e, const struct harp_contact *contact,
                                 int traffic_class);

/* Returns whether there is a usable peer with that engine and traffic class whose handshake we began, and
 * whose side may not know yet that it is done. */
bool harp_peer_has_unconfirmed(const struct harp_engine *e, uint32_t engine_id, int traffic_class);

#endif
