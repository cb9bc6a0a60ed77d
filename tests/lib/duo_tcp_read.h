/* SPDX-License-Identifier: Apache-2.0 */
/* What an end of a duo has of its tcp paths, and how it reads them. Called by lib/duo_tcp.c alone. */
#ifndef HARP_TESTS_DUO_TCP_READ_H
#define HARP_TESTS_DUO_TCP_READ_H

#include "lib/duo_tcp.h"
#include "proto/records.h"

enum {
  DUO_TCP_CONNS = 3, /* the connections of a path: its ends', and one before its JOIN */
  DUO_TCP_OUT_BYTES = 16 << 10,
  DUO_TCP_SCRAP_BYTES = 8 << 10,
};

struct duo_tcp_conn {
  struct tcpnet net;
  unsigned users;   /* ends that have not closed it, a bit each; 0: free */
  bool is_unjoined; /* end 1 waits for its JOIN */
  uint32_t join_bytes;
  uint8_t join[HARP_RECORD_HEAD_BYTES];
};

/* A path at one end. */
struct duo_tcp_end {
  unsigned path;
  struct duo_tcp_conn *conn; /* NULL: none */
  bool is_connecting, was_up, is_waiting;
  uint32_t attempts;
  harp_ns retry_ns, wait_ns, opened_ns, look_ns;
  harp_ns want_ns; /* at end 0: the time when it hears that the other end uses the path without connection */
  harp_ns read_ns; /* not before this the next read */
  uint64_t acked;  /* at the last look */
  uint64_t came;   /* bytes read */

  uint32_t out_sent, out_bytes, payload_bytes, payload_message;
  const uint8_t *payload;
  const struct duo_stream *payload_of;
  uint8_t out[DUO_TCP_OUT_BYTES];

  struct harp_records in;
  uint8_t ahead[HARP_RECORDS_BUFFER_BYTES];
};

struct duo_tcp {
  struct rng rng;
  unsigned first, count; /* its part of the duo's paths */
  uint64_t told;         /* the paths that end 1 uses, as end 0 was told, a bit each */
  harp_ns keepalive_ns[DUO_ENDS];
  struct duo_tcp_conn conns[DUO_TCP_MAX][DUO_TCP_CONNS];
  struct duo_tcp_end ends[DUO_ENDS][DUO_TCP_MAX];
  uint8_t scrap[DUO_TCP_SCRAP_BYTES];
  struct duo_tcp_tally tally;
};

/* Reads once, and takes what is complete. */
void duo_tcp_read(struct duo *d, struct duo_end *e, struct duo_tcp_end *p);

/* Closes the end's connection of a path. */
void duo_tcp_end_path(struct duo *d, struct duo_end *e, struct duo_tcp_end *p);

#endif
