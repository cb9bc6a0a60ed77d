/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel TCP sockets for records: opening, options, statistics.
 *
 * No state; any thread. All sockets are non-blocking, and errors are -errno. The caller closes the returned
 * descriptors with harp_files_close. */
#ifndef HARP_TCP_SOCKET_H
#define HARP_TCP_SOCKET_H

#include <sys/socket.h>

#include "base/base.h"

/* Options of an interface's connections. */
struct harp_tcp_options {
  const struct sockaddr_storage *local; /* address of the interface; its port is ignored */
  unsigned ifindex;                     /* interface that they send by; 0: as the routing tables say */
  int traffic_class;                    /* DSCP << 2, or -1 */
  harp_ns timeout_ns;                   /* the argument of harp_tcp_socket_set_timeouts */
  bool spares_files;                    /* connect leaves the process a quarter of its files */
};

/* Listens on the interface's address, which it need not have yet: on *port (host byte order) if it is free
 * and not 0, else on the first free port from `low` to `high`, or on one that the kernel chooses if these are
 * 0. Stores the port. Returns the socket, or -errno: -EADDRINUSE when no port is free. */
int harp_tcp_socket_listen(const struct harp_tcp_options *options, uint16_t low, uint16_t high,
                           uint16_t *port) HARP_MUST_CHECK;

/* Accepts a connection and sets its options. Returns the socket, or -errno: -EAGAIN when none is pending. */
int harp_tcp_socket_accept(int listener, const struct harp_tcp_options *options) HARP_MUST_CHECK;

/* Sets keepalive and user timeout, so that the connection fails about that long after the peer's host has
 * become unreachable, with or without unacknowledged data. */
void harp_tcp_socket_set_timeouts(int fd, harp_ns timeout_ns);

/* Lets a connection with timeouts last through an outage that is far longer than these. Its keepalives go on,
 * so that firewalls remember it. Whether the peer is lost is for the caller to find out. */
void harp_tcp_socket_outlive_outages(int fd);

/* Sets the options of an open socket; ignores failures. */
void harp_tcp_socket_set_options(int fd, const struct harp_tcp_options *options);

/* Bounds what the kernel takes beyond what it has sent: as much as it moves while the caller is away. */
void harp_tcp_socket_bound_unsent(int fd, uint32_t bytes);

/* Keeps the kernel from sending a segment that is not full, until it is set to false; that sends what is
 * there. */
void harp_tcp_socket_set_cork(int fd, bool corked);

/* Returns the bytes that were written and not sent yet. */
uint32_t harp_tcp_socket_unsent(int fd);

/* Starts to connect. Returns the socket, which becomes writable when the attempt has ended (then see
 * harp_tcp_socket_error), or -errno; -HARP_EFEWFILES: files are to be spared, and few are left. */
int harp_tcp_socket_connect(const struct harp_tcp_options *options,
                            const struct sockaddr_storage *peer) HARP_MUST_CHECK;

/* Returns and clears the socket's pending error: 0 or -errno. */
int harp_tcp_socket_error(int fd);

/* Has close reset the connection: the kernel drops what it has not sent and repeats nothing. */
void harp_tcp_socket_reset_at_close(int fd);

/* Returns how many of the `sent_bytes` bytes that were written the kernel no longer holds, since the other
 * side's TCP has acknowledged them; 0 where that is unknown. */
uint64_t harp_tcp_socket_acked(int fd, uint64_t sent_bytes);

/* The kernel's counters since the connection was opened. */
struct harp_tcp_stats {
  /* The bytes that the peer's kernel acknowledged; before Linux 4.1 those sent and no longer queued. */
  uint64_t acked_bytes;
  uint32_t retransmitted; /* segments */
  uint32_t segments;      /* sent with data; before Linux 4.6: estimated from acked_bytes and the MSS */
  harp_ns rtt_ns;         /* the smoothed RTT */
  harp_ns rtt_min_ns;     /* the lowest RTT of the last minutes; 0: unknown, and before Linux 4.6 */
};

/* Reads the counters of a connection on which `sent_bytes` bytes were sent; zeros when they cannot be
 * read. */
void harp_tcp_socket_read_stats(int fd, uint64_t sent_bytes, struct harp_tcp_stats *stats);

#endif
