/* SPDX-License-Identifier: Apache-2.0 */
/* Socket addresses from texts. */
#ifndef HARP_TESTS_ADDRESSES_H
#define HARP_TESTS_ADDRESSES_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"

/* Returns the address of an IPv4 or IPv6 text, with a port in host byte order. */
static inline struct sockaddr_storage address(const char *text, uint16_t port) {
  uint8_t ip[sizeof(struct in6_addr)];
  bool is_v6 = strchr(text, ':') != NULL;
  if (inet_pton(is_v6 ? AF_INET6 : AF_INET, text, ip) != 1) abort();
  return harp_address_make(is_v6 ? 6 : 4, ip, port, 0);
}

#endif
