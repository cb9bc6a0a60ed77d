/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp paths of an engine: kernel TCP connections that carry records (wire/record.h) between two
 * interfaces, beside the datagrams of the packet drivers. To the protocol each is a path like others.
 *
 * An interface without tcp paths listens as well: that its kernel accepts a connection shows that the process
 * runs (control/inquiry.h).
 *
 * The client of the handshake connects to the port that the server's interface listens on, and sends a JOIN
 * first. A connection that ends, or whose path goes DOWN, is closed and opened again after a wait that
 * doubles each time; meanwhile its path is blocked.
 *
 * The client connects the paths that either side's sender has in use, and closes the connection of one that
 * has been DORMANT on both sides, and idle, for HARP_TCP_KEEP_NS. The server says in a WANT which paths its
 * sender has in use. Where the control connection is lost the client connects all paths.
 *
 * The payload of a large record is not copied in user space: the kernel takes it from NCCL's buffer, as a
 * copy or as references to its pages (io/page_pipe.h), from which it reads when it sends and sends again. A
 * message is done when the peer's HARP has acknowledged all of its lines: from then on the peer reads to
 * scrap what still comes of it. A connection that ends is reset where its kernel holds references.
 *
 * Files, each calling only those below it: tcp.c opens the sockets and takes events; tcp_accept.c has
 * accepted connections; tcp_path.c the connection of a path; tcp_bytes.c its bytes. All under the engine's
 * lock. */
#ifndef HARP_TCP_H
#define HARP_TCP_H

#include "base/error.h"
#include "engine/tcp/reference_choice.h"
#include "io/page_pipe.h"
#include "io/ready.h"
#include "io/tcp_socket.h"
#include "proto/records.h"
#include "proto/tcp_trouble.h"
#include "wire/control.h"

struct harp_engine;
struct harp_peer;

enum {
  HARP_TCP_ACCEPTED_MAX = 32,     /* the most connections that have not sent their JOIN yet */
  HARP_TCP_COPY_MAX_BYTES = 4096, /* payload up to this is copied behind its head */
  /* The least payload that goes by reference while the engine receives as well: it finds what it copies in
   * its core's caches. */
  HARP_TCP_REFERENCE_BOTH_WAYS_MIN_BYTES = 128 << 10,
  /* A record by reference with at least so much payload is sent corked. The kernel takes 16 pages at a time;
   * between these, acknowledgements that arrive would make it send the end of each as a small packet. */
  HARP_TCP_CORK_MIN_BYTES = 192 << 10,
  HARP_TCP_DIRECTION_BYTES = 1 << 20, /* the bytes sent between two looks at what was received meanwhile */
  HARP_TCP_OUT_BYTES = 16 << 10, /* heads, acknowledgements and copied payload that wait for the kernel */
};

/* An acknowledgement waits behind unsent bytes for so long at most: longer than what a quick connection has
 * there in passing, where a datagram would cost a system call and save nothing. */
#define HARP_TCP_ACK_WAIT_NS HARP_US(100)

/* The connection of a path that is of no use is kept for so long: experiments put paths to use in turn. */
#define HARP_TCP_KEEP_NS HARP_SEC(10)

/* The connection of one path. */
struct harp_tcp_path {
  struct harp_peer *peer;
  unsigned path;     /* its index in the session */
  unsigned beside;   /* the first datagram path between the same interfaces; `path`: there is none */
  int fd;            /* -1: none */
  bool connecting;   /* the connect is under way: nothing is sent yet */
  bool is_ending;    /* the other side has closed the connection: behind what is left to read comes its end */
  bool readable;     /* it is in the engine's list of paths that may have something to read */
  bool was_up;       /* the path has been UP with this connection */
  bool is_waiting;   /* it waits for the kernel to take more bytes */
  uint32_t attempts; /* client: the number of the next JOIN; server: the lowest number that it accepts */
  harp_ns retry_ns;  /* client: the time to connect next; HARP_NEVER at the server */
  harp_ns wait_ns;   /* the wait before the attempt after that one */
  harp_ns opened_ns; /* the time when the connection, or the attempt, began */
  harp_ns unused_ns; /* client: the time since which it is unwanted and brings nothing; HARP_NEVER: wanted */
  harp_ns look_ns;   /* the time to read the kernel's counts next */
  harp_ns report_ns; /* the time to log that the last connection has ended; HARP_NEVER: not, or done */
  char why[48];      /* the reason why the connection has ended */
  /* the bytes of this connection that the kernel has taken, and those that were acknowledged at the last
   * look */
  uint64_t sent_bytes, acked_bytes;
  uint64_t referenced_to; /* the bytes up to the last that it took by reference; 0: none */
  uint32_t unsent_max;    /* the most that the kernel takes beyond what it has sent; 0: no bound */
  struct harp_tcp_trouble trouble;
  struct harp_tcp_path *next_readable;

  struct sockaddr_storage remote; /* the address that the client connects to; AF_UNSPEC: not known yet */

  /* bytes that wait for the kernel: out[out_sent, out_bytes), then the payload */
  uint32_t out_sent, out_bytes;
  const uint8_t *payload; /* the payload, borrowed from the message's buffer */
  uint32_t payload_bytes;
  uint32_t payload_size; /* the payload of the whole record */
  const struct harp_tx_stream *payload_of;
  uint32_t payload_message;
  bool by_reference; /* the payload goes through the engine's pipe */
  bool is_corked;
  uint8_t out[HARP_TCP_OUT_BYTES];

  /* bytes that were read */
  struct harp_records in;
  uint8_t ahead[HARP_RECORDS_BUFFER_BYTES];
};

/* A connection that was accepted and has not sent its JOIN, which names its path. */
struct harp_tcp_accepted {
  int fd;       /* -1: the entry is free */
  unsigned eni; /* the interface that accepted it */
  harp_ns since_ns;
  uint32_t bytes; /* the bytes of the JOIN that were read */
  uint8_t join[HARP_RECORD_HEAD_BYTES];
};

/* The tcp paths of an engine. */
struct harp_tcp {
  unsigned accepted_count;
  unsigned open_count; /* the number of connections of paths */
  bool has_paths;      /* an interface accepts tcp paths */
  bool is_alone;       /* no interface has datagrams */
  struct harp_tcp_path *readable_first, *readable_last;
  struct harp_tcp_accepted accepted[HARP_TCP_ACCEPTED_MAX];
  struct {
    int fd;        /* -1: none */
    uint16_t port; /* the port in host byte order; 0: the interface has none */
    bool paused;   /* accept failed for lack of files or memory: nobody waits for the socket */
  } listeners[HARP_ENDPOINT_ENIS_MAX];
  struct harp_page_pipe pages; /* the pipe for payload by reference, opened with the first one */
  bool is_short_logged;        /* it has logged that files are scarce, or that none can be accepted */
  bool refuses_references;     /* the kernel does, for a reason that was logged: payload is copied */
  struct harp_reference_choice reference_choice;
  bool is_both_ways; /* a quarter of what was sent between the last two looks, or more, was received */
  uint64_t looked_tx_bytes, looked_rx_bytes; /* the engine's counters at the last look */
  uint8_t scrap[HARP_RECORDS_AHEAD_BYTES];   /* payload that is not wanted is read here */
};

/* Opens a listening socket on each interface. One that fails is logged at INFO, and its interface has
 * datagrams alone; with driver tcp it is an error. Returns 0, or -errno with a sentence in `error`. */
int harp_tcp_open(struct harp_engine *e, struct harp_error *error) HARP_MUST_CHECK;
void harp_tcp_close(struct harp_engine *e);

/* Opens the listening socket of an interface that has an address at last, as harp_tcp_open does. */
int harp_tcp_open_late(struct harp_engine *e, unsigned eni, struct harp_error *error) HARP_MUST_CHECK;

/* Returns whether the configuration gives an interface tcp paths; of one without an address, once it has. */
bool harp_tcp_is_wanted(const struct harp_engine *e, unsigned eni);

/* Returns the port on which an interface listens; 0: none. */
static inline uint16_t harp_tcp_port(const struct harp_tcp *t, unsigned eni) {
  return t->listeners[eni].port;
}

/* Prepares a path of a new peer. */
void harp_tcp_path_init(struct harp_tcp_path *p, struct harp_peer *peer, unsigned path, unsigned beside);
/* Says where the client connects; the next pass does. Until then it is not connected. */
void harp_tcp_path_set_remote(struct harp_tcp_path *p, const struct sockaddr_storage *remote);
static inline bool harp_tcp_path_has_remote(const struct harp_tcp_path *p) {
  return p->remote.ss_family != AF_UNSPEC;
}

/* Closes the connections of a peer that has failed or is destroyed. */
void harp_tcp_leave(struct harp_peer *peer);

/* Ends connections that may still read from buffers of a stream that is being closed, which are NCCL's again:
 * those with a partly written record of it, and those whose kernel holds references while messages of the
 * stream were not delivered. */
void harp_tcp_forget(struct harp_peer *peer, const struct harp_tx_stream *stream, harp_ns now);

/* Returns the tcp paths that our sender has in use, a bit each. Both sides begin with the same. */
uint64_t harp_tcp_paths_in_use(const struct harp_peer *peer);

/* Takes the server's WANT: the paths that it has in use, a bit each. Connections of those that it names again
 * are tested. */
void harp_tcp_on_want(struct harp_peer *peer, uint64_t paths, harp_ns now);

/* Reports to the sender on which paths the kernel makes progress. Called before the sender's timers. */
void harp_tcp_report_progress(struct harp_peer *peer, harp_ns now);

/* Opens the connections of a peer that are due, and ends those of no use; has the client of the handshake
 * open those that are in use here. Returns when to call it again. */
harp_ns harp_tcp_on_time(struct harp_peer *peer, harp_ns now);

/* Returns why the large messages of a peer take the carrier that they take now. */
const char *harp_tcp_why_large(const struct harp_peer *peer);

/* Sends the record that was chosen for a tcp path that is not blocked, and before it an acknowledgement where
 * one is due. */
void harp_tcp_send(struct harp_peer *peer, const struct harp_tx_choice *choice, harp_ns now);

/* Returns the connection of a tcp path that can take a record now; NULL: no tcp path, or blocked. */
struct harp_tcp_path *harp_tcp_ready(struct harp_peer *peer, unsigned path);

/* Returns whether the path's connection takes an acknowledgement, which then waits for little. */
bool harp_tcp_is_clear(struct harp_peer *peer, unsigned path);

/* Returns the first datagram path between the interfaces of a tcp path; the path itself if there is none. */
unsigned harp_tcp_beside(const struct harp_peer *peer, unsigned path);

/* Sends the acknowledgement that is due for `path`, over the tcp path `over`, which takes a record now. */
void harp_tcp_send_ack(struct harp_peer *peer, unsigned over, unsigned path, harp_ns now);

enum harp_tcp_read {
  HARP_TCP_READ_NOTHING,
  HARP_TCP_READ_SOME, /* all that there was */
  HARP_TCP_READ_MORE, /* there may be more */
  HARP_TCP_READ_END,  /* the connection is at its end, or broken; the last of it may have come before */
};

/* Takes an event of a source of tcp paths (io/ready.h). */
void harp_tcp_on_event(struct harp_engine *e, const struct epoll_event *event, harp_ns now);

/* Returns the path whose turn it is to be read, one in a pass; NULL: nothing has come. */
struct harp_tcp_path *harp_tcp_begin_turn(struct harp_engine *e);

/* Reads once and takes the records that are complete; ends the connection where it is at its end, or broken.
 * What came is noted at links and sender: the caller completes it (harp_peer_complete_news). Sets *now as
 * harp_tcp_bytes_read does. */
enum harp_tcp_read harp_tcp_read_once(struct harp_tcp_path *p, harp_ns *now);

/* Ends the path's turn, whose last read returned `what`. */
void harp_tcp_end_turn(struct harp_tcp_path *p, enum harp_tcp_read what);

/* Ends accepted connections that sent no JOIN in time, adopts those whose peer exists by now, and retries a
 * paused accept. */
void harp_tcp_accepts_on_time(struct harp_engine *e, harp_ns now);

#endif
