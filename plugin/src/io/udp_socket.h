/* SPDX-License-Identifier: Apache-2.0 */
/* UDP sockets as the udp driver wants them: large buffers, DF, merging, and which interface they send by. One
 * that is bound to a port takes what comes from anywhere; beside it there may be some that are connected,
 * each to one peer, from the same port. */
#ifndef HARP_UDP_SOCKET_H
#define HARP_UDP_SOCKET_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/base.h"

struct harp_udp_options {
  int family;
  unsigned ifindex; /* of the only interface that it sends by; 0: as the kernel's tables say */
  bool gro;         /* the kernel merges what it receives */
};

/* Opens an unbound socket; returns it, or -errno. */
int harp_udp_socket_open(int family) HARP_MUST_CHECK;

/* Binds to the next free port of a range, from *port on, which moves past it; low 0: the kernel chooses.
 * Returns 0 or -errno. */
int harp_udp_socket_bind(int fd, const struct sockaddr_storage *addr, uint16_t low, uint16_t high,
                         uint32_t *port) HARP_MUST_CHECK;

/* Returns the port that a socket is bound to, host byte order. */
uint16_t harp_udp_socket_port(int fd);

/* Sets all options, that for merging last; returns 0, or -errno where the kernel cannot merge. *buffer_bytes
 * is what may wait in it. */
int harp_udp_socket_prepare(int fd, const struct harp_udp_options *options,
                            uint32_t *buffer_bytes) HARP_MUST_CHECK;

/* Makes datagrams leave by one interface; they may still arrive by any. */
void harp_udp_socket_set_interface(int fd, const struct harp_udp_options *options);
void harp_udp_socket_stop_merging(int fd);

/* Nobody will receive from it: as little as possible is to pile up there. */
void harp_udp_socket_stop_receiving(int fd);

/* Opens one more socket on the port of a bound one, connected to a peer: the kernel then looks routes up
 * once, and hands it what the peer sends to that port. traffic_class: DSCP << 2, or -1. Returns it, or
 * -errno. */
int harp_udp_socket_connect(int bound, const struct sockaddr_storage *peer, int traffic_class,
                            const struct harp_udp_options *options) HARP_MUST_CHECK;

#endif
