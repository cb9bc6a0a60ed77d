/* SPDX-License-Identifier: Apache-2.0 */
/* See address.h. */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* The port has one place for both versions. */
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
               "the port of IPv4 and IPv6");

static bool is_v6(const struct sockaddr_storage *a) {
  return a->ss_family == AF_INET6;
}

struct sockaddr_storage harp_address_make(unsigned version, const void *ip, uint16_t port, uint32_t scope) {
  struct sockaddr_storage a = {.ss_family = version == 6 ? AF_INET6 : AF_INET};
  struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a;
  if (is_v6(&a)) {
    in6->sin6_scope_id = scope;
    memcpy(&in6->sin6_addr, ip, sizeof in6->sin6_addr);
  } else {
    memcpy(&((struct sockaddr_in *)&a)->sin_addr, ip, sizeof(struct in_addr));
  }
  harp_address_set_port(&a, port);
  return a;
}

socklen_t harp_address_bytes(const struct sockaddr_storage *a) {
  return is_v6(a) ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

unsigned harp_address_version(const struct sockaddr_storage *a) {
  return is_v6(a) ? 6 : 4;
}

const void *harp_address_ip(const struct sockaddr_storage *a) {
  return is_v6(a) ? (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr
                  : (const void *)&((const struct sockaddr_in *)a)->sin_addr;
}

uint32_t harp_ip_bytes(int family) {
  return family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
}

uint32_t harp_address_scope(const struct sockaddr_storage *a) {
  return is_v6(a) ? ((const struct sockaddr_in6 *)a)->sin6_scope_id : 0;
}

uint16_t harp_address_port(const struct sockaddr_storage *a) {
  return ntohs(((const struct sockaddr_in *)a)->sin_port);
}

void harp_address_set_port(struct sockaddr_storage *a, uint16_t port) {
  ((struct sockaddr_in *)a)->sin_port = htons(port);
}

void harp_address_unmap(struct sockaddr_storage *a) {
  const struct in6_addr ip = ((const struct sockaddr_in6 *)a)->sin6_addr;
  if (!is_v6(a) || !IN6_IS_ADDR_V4MAPPED(&ip)) return;
  *a = harp_address_make(4, &ip.s6_addr[12], harp_address_port(a), 0);
}

bool harp_address_has_same_ip(const struct sockaddr_storage *a, const struct sockaddr_storage *b) {
  return a->ss_family == b->ss_family &&
         !memcmp(harp_address_ip(a), harp_address_ip(b), harp_ip_bytes(a->ss_family));
}

unsigned harp_address_common_bits(const struct sockaddr_storage *a, const struct sockaddr_storage *b) {
  const uint8_t *x = harp_address_ip(a), *y = harp_address_ip(b);
  unsigned bytes = harp_ip_bytes(a->ss_family), at = 0;
  if (a->ss_family != b->ss_family) return 0;
  while (at < bytes && x[at] == y[at]) at++;
  return 8 * at + (at < bytes ? (unsigned)__builtin_clz((unsigned)x[at] ^ y[at]) - 24 : 0);
}

const char *harp_address_ip_text(const struct sockaddr_storage *a, char text[HARP_IP_TEXT_BYTES]) {
  if (!inet_ntop(a->ss_family, harp_address_ip(a), text, HARP_IP_TEXT_BYTES)) snprintf(text, 2, "?");
  return text;
}

const char *harp_address_text(const struct sockaddr_storage *a, char text[HARP_ADDRESS_TEXT_BYTES]) {
  char ip[HARP_IP_TEXT_BYTES];
  snprintf(text, HARP_ADDRESS_TEXT_BYTES, is_v6(a) ? "[%s]:%u" : "%s:%u", harp_address_ip_text(a, ip),
           harp_address_port(a));
  return text;
}
