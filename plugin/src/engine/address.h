/* SPDX-License-Identifier: Apache-2.0 */
/* IP addresses with their ports: what the socket calls and messages to people need of them. */
#ifndef HARP_ADDRESS_H
#define HARP_ADDRESS_H

#include <sys/socket.h>

#include "base/base.h"

enum { HARP_ADDRESS_TEXT_BYTES = 54 }; /* "[IPv6 address]:65535" and the end */

socklen_t harp_address_bytes(const struct sockaddr_storage *a);
uint16_t harp_address_port(const struct sockaddr_storage *a);
/* Writes "address:port"; returns text. */
const char *harp_address_text(const struct sockaddr_storage *a, char text[HARP_ADDRESS_TEXT_BYTES]);

#endif
