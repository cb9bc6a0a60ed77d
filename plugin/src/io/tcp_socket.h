/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel TCP sockets that carry records: options, and the system calls around them. No state. All sockets are
 * non-blocking; errors are -errno. Whoever gets a file descriptor closes it with harp_files_close. */
#ifndef HARP_TCP_SOCKET_H
#define HARP_TCP_SOCKET_H

#include <sys/socket.h>

#include "base/base.h"

/* How the connections of an interface are made. */
struct harp_tcp_options {
  const struct sockaddr_storage *local; /* address of the interface; its port is ignored */
  unsigned ifindex;   /* what is sent must leave by this interface; 0: as the kernel's tables say */
  int traffic_class;  /* DSCP << 2, or -1 */
  harp_ns timeout_ns; /* of harp_tcp_socket_set_timeouts */
};

/* Listens on the interface's address: on *port (host byte order), or where that is taken, or 0, on the first
 * free one from `low` to `high`, or where these are 0 on one that the kernel chooses; *port says which.
 * Returns the socket, or -errno: -EADDRINUSE where none is free. */
int harp_tcp_socket_listen(const struct harp_tcp_options *options, uint16_t low, uint16_t high,
                           uint16_t *port) HARP_MUST_CHECK;

/* Accepts a connection; -EAGAIN: none waits. */
int harp_tcp_socket_accept(int listener, const struct harp_tcp_options *options) HARP_MUST_CHECK;

/* Sets a TCP socket's keepalive and timeout, so that a host that is gone breaks the connection in that time,
 * whether something waits to be acknowledged or not. */
void harp_tcp_socket_set_timeouts(int fd, harp_ns timeout_ns);

/* Sets the options of a socket that is open. */
void harp_tcp_socket_set_options(int fd, const struct harp_tcp_options *options);

/* Begins to connect. The socket is writable when that has ended: harp_tcp_socket_error. */
int harp_tcp_socket_connect(const struct harp_tcp_options *options,
                            const struct sockaddr_storage *peer) HARP_MUST_CHECK;

/* Returns the error that waits on the socket, 0 or -errno, and clears it. */
int harp_tcp_socket_error(int fd);

/* Allows MSG_ZEROCOPY on a socket; returns 0, or -errno where the kernel has no such thing. */
int harp_tcp_socket_allow_zerocopy(int fd) HARP_MUST_CHECK;

/* Takes what the kernel tells of payload that it sent without a copy, from the socket's error queue. Returns
 * whether it copied any of it all the same. */
bool harp_tcp_socket_reap(int fd);

/* What the kernel has counted since the connection began. */
struct harp_tcp_stats {
  uint64_t acked_bytes;   /* by the peer's kernel; before Linux 4.1 what is no longer queued */
  uint32_t retransmitted; /* segments */
  uint32_t segments;      /* with data, sent; before Linux 4.6 as many as the acknowledged bytes fill */
  harp_ns rtt_ns;         /* smoothed */
  harp_ns rtt_min_ns;     /* of the last minutes; before Linux 4.6 0 */
};

/* Fills in the figures of a connection, of which the kernel has been given `sent_bytes`. */
void harp_tcp_socket_read_stats(int fd, uint64_t sent_bytes, struct harp_tcp_stats *figures);

#endif
