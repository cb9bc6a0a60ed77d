/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp paths of an engine: kernel TCP connections that carry records (wire/record.h) between two
 * interfaces, beside the datagrams of the packet drivers. To the protocol each is a path like others; this is
 * what opens its connection, moves its bytes, and gives it up.
 *
 * The side that was the client of the handshake connects, to the port that the other side's interface
 * listens on, and begins with a JOIN. A connection that ends, or whose path goes DOWN, is closed, and opened
 * again after a while, ever more rarely; its path takes nothing meanwhile.
 *
 * What a record takes from NCCL's buffer is read by the kernel when it sends, so a record that is not wholly
 * with the kernel ends with its connection when its stream is closed. All under the engine's lock. */
#ifndef HARP_TCP_H
#define HARP_TCP_H

#include "base/error.h"
#include "io/tcp_socket.h"
#include "proto/carrier.h"
#include "proto/records.h"
#include "proto/zerocopy.h"
#include "wire/control.h"

struct harp_engine;
struct harp_peer;

enum {
  HARP_TCP_ACCEPTED_MAX = 32,     /* connections that have not sent their JOIN yet */
  HARP_TCP_COPY_MAX_BYTES = 4096, /* payload up to this is copied behind its head */
  HARP_TCP_OUT_BYTES = 16 << 10,  /* heads, acknowledgements and copied payload that wait for the kernel */
};

/* Nothing has come for so long: it may be long until something does. */
#define HARP_TCP_IDLE_NS HARP_MS(1)

/* The connection of one path. */
struct harp_tcp_path {
  struct harp_peer *peer;
  unsigned path;        /* its number in the session */
  unsigned beside;      /* the first datagram path between the same interfaces; path: there is none */
  int fd;               /* -1: none */
  bool connecting;      /* the fd is, and takes nothing yet */
  bool readable;        /* something may have come; in the engine's list then */
  bool was_up;          /* the path was, with this connection */
  bool is_waiting;      /* for the kernel to take more */
  uint32_t attempts;    /* connections so far: the number of the next JOIN, or the least that is accepted */
  harp_ns retry_ns;     /* when to connect; client only */
  harp_ns wait_ns;      /* between the next attempt that fails and the one after it */
  harp_ns opened_ns;    /* when the connection, or the attempt, began */
  harp_ns look_ns;      /* when to look for progress */
  uint64_t sent_bytes;  /* that the kernel has taken */
  uint64_t acked_bytes; /* at the last look */
  struct harp_carrier carrier; /* whether large messages take it */
  struct harp_zerocopy zerocopy;
  unsigned unreaped; /* sends without a copy of which the kernel may still have to tell */
  struct harp_tcp_path *next_readable;

  struct sockaddr_storage remote; /* where to connect */

  /* what waits for the kernel: out, then the payload */
  uint32_t out_sent, out_bytes;
  const uint8_t *payload; /* borrowed from the stream's message */
  uint32_t payload_bytes;
  const struct harp_tx_stream *payload_of;
  uint32_t payload_message;
  bool uncopied; /* it goes without a copy */
  uint8_t out[HARP_TCP_OUT_BYTES];

  struct harp_records in;
  uint8_t ahead[HARP_RECORDS_AHEAD_BYTES];
};

/* A connection that was accepted and has not sent its JOIN: its path is not known yet. */
struct harp_tcp_accepted {
  int fd; /* -1: none */
  unsigned eni;
  harp_ns since_ns;
  uint32_t bytes;
  uint8_t join[HARP_RECORD_HEAD_BYTES];
};

struct harp_tcp {
  int fd; /* epoll set of all of it; -1: the engine has no tcp paths */
  unsigned accepted_count;
  unsigned open_count; /* connections of paths */
  bool is_alone;       /* no interface has datagrams */
  harp_ns poll_ns;     /* not before this again, while nothing comes */
  harp_ns brought_ns;  /* when something came last */
  struct harp_tcp_path *readable_first, *readable_last;
  struct harp_tcp_path *brought; /* the path that brought something last; NULL: none did */
  bool is_steady;                /* and it did so the time before, too */
  unsigned tries;                /* of it since the kernel was asked */
  struct harp_tcp_accepted accepted[HARP_TCP_ACCEPTED_MAX];
  struct {
    int fd;
    uint16_t port; /* host byte order; 0: the interface has none */
  } listeners[HARP_ENDPOINT_ENIS_MAX];
  uint8_t scrap[HARP_RECORDS_AHEAD_BYTES]; /* for what belongs nowhere */
};

/* Opens what the configuration asks for, a listening socket on each interface. One that fails is said at
 * INFO, and has no tcp paths; where it could have no others, it is an error. Returns 0, or -errno with a
 * sentence in `error`. */
int harp_tcp_open(struct harp_engine *e, struct harp_error *error) HARP_MUST_CHECK;
void harp_tcp_close(struct harp_engine *e);

/* Returns the port on which an interface accepts tcp paths; 0: none. */
static inline uint16_t harp_tcp_port(const struct harp_tcp *t, unsigned eni) {
  return t->listeners[eni].port;
}

/* Returns whether something has come lately. */
static inline bool harp_tcp_is_live(const struct harp_tcp *t, harp_ns now) {
  return now - t->brought_ns < HARP_TCP_IDLE_NS;
}

/* Describes a path of a new peer; nothing is connected before the next pass. Only the client's has a remote
 * address. */
void harp_tcp_path_init(struct harp_tcp_path *p, struct harp_peer *peer, unsigned path, unsigned beside,
                        const struct sockaddr_storage *remote);

/* Closes the connections of a peer that is failed or destroyed. */
void harp_tcp_leave(struct harp_peer *peer);

/* A stream is being closed: nothing is sent from its buffers any more. */
void harp_tcp_forget(struct harp_peer *peer, const struct harp_tx_stream *stream, harp_ns now);

/* Tells the sender which paths go on, as their kernel sees them, before it judges them by their silence. */
void harp_tcp_note_progress(struct harp_peer *peer, harp_ns now);

/* Looks after the connections of a peer: opens them, and gives them up. Returns when to look again. */
harp_ns harp_tcp_review(struct harp_peer *peer, harp_ns now);

/* Sends the record that was chosen, with an acknowledgement before it where one is due. Its path is not
 * blocked. */
void harp_tcp_send(struct harp_peer *peer, const struct harp_tx_choice *choice, harp_ns now);

/* Returns the connection of a path that takes a record now; NULL: the path is no tcp path, or blocked. */
struct harp_tcp_path *harp_tcp_ready(struct harp_peer *peer, unsigned path);

/* Returns the first path of datagrams between the interfaces of a tcp path; the path itself: there is none.
 */
unsigned harp_tcp_beside(const struct harp_peer *peer, unsigned path);

/* Sends the acknowledgement that is due for `path`, over the tcp path `over`, which takes a record now. */
void harp_tcp_send_ack(struct harp_peer *peer, unsigned over, unsigned path, harp_ns now);

/* Takes what has come on all connections, a bounded part of it; returns how many reads brought something. */
unsigned harp_tcp_receive(struct harp_engine *e, harp_ns now);

/* Ends accepted connections whose time is over, and adopts those whose peer exists by now. */
void harp_tcp_tend(struct harp_engine *e, harp_ns now);

#endif
