/* SPDX-License-Identifier: Apache-2.0 */
/* IPv4 and IPv6 addresses with their ports, in the kernel's structure. The only place that distinguishes
 * the two versions by the layout of that structure. Pure functions; any thread may call them. */
#ifndef HARP_BASE_ADDRESS_H
#define HARP_BASE_ADDRESS_H

#include <sys/socket.h>

#include "base/base.h"

enum {
  HARP_IP_TEXT_BYTES = 46,      /* an IPv6 address and the terminating zero */
  HARP_ADDRESS_TEXT_BYTES = 54, /* "[IPv6 address]:65535" and the terminating zero */
};

/* Makes an address. version: 4 or 6; `ip` in network byte order, 4 or 16 bytes; `port` in host byte order;
 * `scope` is the interface of a link-local IPv6 address, and ignored for IPv4. */
struct sockaddr_storage harp_address_make(unsigned version, const void *ip, uint16_t port, uint32_t scope);

/* Returns the length that the socket calls want. */
socklen_t harp_address_bytes(const struct sockaddr_storage *a);

/* Returns 4 or 6. */
unsigned harp_address_version(const struct sockaddr_storage *a);

/* Returns the IP address in network byte order, harp_ip_bytes of its family long. */
const void *harp_address_ip(const struct sockaddr_storage *a);

/* Returns the length of an IP address of AF_INET or AF_INET6. */
uint32_t harp_ip_bytes(int family);

/* Returns the scope of an IPv6 address; 0 for IPv4. */
uint32_t harp_address_scope(const struct sockaddr_storage *a);

/* Returns the port, in host byte order. */
uint16_t harp_address_port(const struct sockaddr_storage *a);

/* Turns an IPv4 address that an IPv6 socket has reported (::ffff:10.0.0.1) into that IPv4 address; leaves
 * others as they are. */
void harp_address_unmap(struct sockaddr_storage *a);

/* Sets the port, in host byte order. */
void harp_address_set_port(struct sockaddr_storage *a, uint16_t port);

/* Returns whether both are of one version and have the same IP address; ports and scopes are ignored. */
bool harp_address_has_same_ip(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

/* Returns how many leading bits the IP addresses have in common; 0 where they are of two versions. */
unsigned harp_address_common_bits(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

/* Writes the IP address, "?" where it is neither version; returns text. */
const char *harp_address_ip_text(const struct sockaddr_storage *a, char text[HARP_IP_TEXT_BYTES]);

/* Writes "address:port"; returns text. */
const char *harp_address_text(const struct sockaddr_storage *a, char text[HARP_ADDRESS_TEXT_BYTES]);

#endif
