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

/* A peer without a link is kept for so long: communicators are torn down and made again. */
#define HARP_PEER_LINGER_NS HARP_SEC(1)
/* A peer that nothing has moved for so long gives memory back that it does not use: longer than most
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
  /* peer_life.c sets these when it makes the peer */
  struct harp_engine *engine;
  uint32_t slot;                         /* its slot in the engine's table; also the low bits of our token */
  uint32_t engine_id;                    /* the other engine: the upper half of all its tokens */
  bool is_client;                        /* we began the handshake */
  bool is_multihomed;                    /* one of the ends has several interfaces */
  int traffic_class;                     /* the traffic class of its packets; -1: none */
  size_t sender_bytes;                   /* the bytes of session.sender */
  char name[HARP_PEER_TEXT_BYTES];       /* "host (address) process 123" */
  char build[HARP_ENDPOINT_BUILD_BYTES]; /* "HARP 1.0.0" */
  struct sockaddr_storage engine_addr;   /* the address of its first interface */

  /* its state */
  struct harp_session session;
  struct harp_monitor monitor; /* the control connection: whether the peer's process runs */
  struct harp_inquiry inquiry;
  bool is_confirmed;                 /* the other side is known to have it; a server's from the beginning */
  bool is_false;                     /* it has acknowledged what was never sent */
  char error[HARP_ERROR_TEXT_BYTES]; /* the reason why it failed */
  _Atomic bool warned;               /* a thread of NCCL's has logged the failure */

  /* times */
  harp_ns deadline_ns;      /* transmit.c: its next deadline */
  harp_ns last_received_ns; /* the time when the last packet of the peer was received */
  harp_ns data_ns;          /* the time when a packet with data came last */
  harp_ns waits_ns;         /* the time when requests began to wait for it, the last time that none had */
  harp_ns busy_ns;          /* the time when NCCL last waited for it, or its memory was given back */
  harp_ns gone_ns;          /* the time when its control connection was found to be gone; 0: it was not */
  harp_ns idle_ns;          /* the time since which it has no link; HARP_NEVER: it has */
  struct harp_peer *next_active; /* engine.c: the next peer that has something to do or to wait for */
  bool active;                   /* engine.c: it is in that list */
  bool sends;                    /* inbound.c: data of it came lately */

  /* links */
  uint32_t link_count;
  struct harp_link *links;
  struct harp_link *arrived;     /* the links that something came for since harp_peer_complete_news */
  struct harp_connect *connects; /* the connects that have requested a stream and wait for the answer */
  uint32_t stream_next;          /* the id to try first for the next stream that we send on */
  uint32_t outstanding;          /* the requests of its links that are posted and not done */

  /* paths: routes.c */
  unsigned path_count, route_count;
  struct harp_path_ends ends[HARP_PATHS_MAX];
  struct harp_io_route *routes[HARP_PATHS_MAX]; /* NULL: an end of the path has no address yet */
  unsigned remote_eni_count;
  struct harp_endpoint_eni remote_enis[HARP_ENDPOINT_ENIS_MAX]; /* what the peer has said of its interfaces */
  struct sockaddr_storage enis[HARP_ENDPOINT_ENIS_MAX];         /* the addresses that paths lead to */

  /* tcp paths: tcp/ */
  unsigned tcp_count; /* the number of tcp paths, which are the last ones and have no route */
  struct harp_tcp_path *tcp;
  uint64_t tcp_wanted; /* the paths that the server's sender uses, by its last WANT, a bit each; at the server
                          without those whose connection has ended since */

  /* what is reported of it: watch/, transmit.c */
  struct harp_trace trace;   /* the recorder of its events */
  struct harp_log_limit log; /* the limit of lines that the other side can cause */
  struct harp_peer_stats stats;
  struct harp_peer_stall stall;
  unsigned carrier_trials;                /* the number of experiments at the last look */
  bool prefers_datagrams;                 /* what they had found then */
  uint16_t packet_limits[HARP_PATHS_MAX]; /* the payload that a path is limited to; 0: it is not */
  struct harp_outage outages[HARP_ENDPOINT_ENIS_MAX]; /* the outages of its interfaces */
};

/* The parts of a new peer; everything is copied. */
struct harp_peer_config {
  bool is_client; /* we began the handshake */
  uint32_t slot;
  struct harp_session_keys keys;
  struct harp_session_macs macs;
  struct harp_control_keys control;
  int control_fd; /* the peer owns it from here on, also on failure */
  const struct harp_endpoint *local, *peer;
  struct sockaddr_storage peer_addr; /* the address of the control connection, for log lines */
  int traffic_class;
};

/* Returns whether new links may be opened on it. */
bool harp_peer_is_usable(const struct harp_peer *peer);

/* Makes the peer due: this pass, or the next, visits it. */
void harp_peer_touch(struct harp_peer *peer);

/* Reacts to a dropped packet of the peer. A peer that acknowledged what was never sent gains nothing: it
 * fails, at the next visit (harp_liveness_on_visit), since the callers still use it. */
static inline void harp_peer_on_drop(struct harp_peer *peer, enum harp_drop drop) {
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
