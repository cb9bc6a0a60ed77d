/* SPDX-License-Identifier: Apache-2.0 */
/* UDP ports of this host: whether a process has one. Called by what looks for traces of killed processes. */
#ifndef HARP_IO_XDP_PORT_H
#define HARP_IO_XDP_PORT_H

#include <sys/socket.h>

#include "base/base.h"

/* Binds a port (host byte order) of an address that no process has, so that none gets it meanwhile. Returns a
 * file descriptor, which the caller closes; -1 when one has it, or when that can not be found out. */
HARP_MUST_CHECK int harp_port_hold(const struct sockaddr_storage *local, uint16_t port);

#endif
