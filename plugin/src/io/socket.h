/* SPDX-License-Identifier: Apache-2.0 */
/* Socket options that TCP and UDP sockets share. No state; any thread; nothing blocks. */
#ifndef HARP_IO_SOCKET_H
#define HARP_IO_SOCKET_H

#include "base/base.h"

/* Sets an option whose value is an int. Returns 0 or -errno. */
int harp_socket_set(int fd, int level, int option, int value);

/* Lets a socket be bound to an address that no interface has yet. Returns 0 or -errno. */
int harp_socket_set_free_bind(int fd);

/* Makes what the socket of this address family sends leave by an interface. Returns 0 or -errno. */
int harp_socket_set_interface(int fd, int family, unsigned ifindex);

/* Sets the traffic class (DSCP << 2) of what the socket of this address family sends. Returns 0 or -errno. */
int harp_socket_set_traffic_class(int fd, int family, int traffic_class);

#endif
