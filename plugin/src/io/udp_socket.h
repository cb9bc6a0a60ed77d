/* SPDX-License-Identifier: Apache-2.0 */
/* UDP sockets of the udp driver: large buffers, DF, GRO, and the interface that they send by.
 *
 * A port has one unconnected socket, which receives from any peer, and may have connected ones beside it,
 * each for one peer. No state; sockets are non-blocking and close-on-exec, and the caller closes them. */
#ifndef HARP_UDP_SOCKET_H
#define HARP_UDP_SOCKET_H

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "base/base.h"

/* Younger than some C libraries' headers. */
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SOL_UDP
#define SOL_UDP 17
#endif

struct harp_udp_options {
  int family;
  unsigned ifindex; /* interface that it sends by; 0: as the routing tables say */
  bool gro;         /* the kernel merges received packets */
  bool ecn;         /* packets leave as ECN-capable, unless sent with another traffic class */
};

/* Opens an unbound socket; returns it, or -errno. */
int harp_udp_socket_open(int family) HARP_MUST_CHECK;

/* Binds to the first free port from *port to `high`, and sets *port to the one after it; low 0: the kernel
 * chooses. No interface need have the address yet. Returns 0, or -errno: -EADDRINUSE when none is free. */
int harp_udp_socket_bind(int fd, const struct sockaddr_storage *addr, uint16_t low, uint16_t high,
                         uint32_t *port) HARP_MUST_CHECK;

/* Returns the port that a socket is bound to, host byte order. */
uint16_t harp_udp_socket_port(int fd);

/* Sets all options, GRO last, and has the traffic class of received packets reported; stores the size of the
 * receive buffer. Returns 0, or -errno when GRO is requested and the kernel has none; the other options are
 * set all the same. */
int harp_udp_socket_prepare(int fd, const struct harp_udp_options *options,
                            uint32_t *buffer_bytes) HARP_MUST_CHECK;

/* Makes datagrams leave by options->ifindex; they may arrive by any interface. */
void harp_udp_socket_set_interface(int fd, const struct harp_udp_options *options);
/* Disables GRO. */
void harp_udp_socket_stop_merging(int fd);

/* Shrinks the receive buffer of a socket from which nothing is received. */
void harp_udp_socket_stop_receiving(int fd);

/* Opens a socket on the port of the socket `bound` that is connected to a peer, and so receives what the peer
 * sends to the port. traffic_class: DSCP << 2, or -1. Returns the socket or -errno. */
int harp_udp_socket_connect(int bound, const struct sockaddr_storage *peer, int traffic_class,
                            const struct harp_udp_options *options) HARP_MUST_CHECK;

#endif
