/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

socklen_t harp_address_bytes(const struct sockaddr_storage *a) {
  return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

uint16_t harp_address_port(const struct sockaddr_storage *a) {
  return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                                        : ((const struct sockaddr_in *)a)->sin_port);
}

const char *harp_address_text(const struct sockaddr_storage *a, char text[HARP_ADDRESS_TEXT_BYTES]) {
  char ip[INET6_ADDRSTRLEN] = "?";
  bool v6 = a->ss_family == AF_INET6;
  if (v6)
    inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, ip, sizeof ip);
  else
    inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, ip, sizeof ip);
  uint16_t port =
      ntohs(v6 ? ((const struct sockaddr_in6 *)a)->sin6_port : ((const struct sockaddr_in *)a)->sin_port);
  snprintf(text, HARP_ADDRESS_TEXT_BYTES, v6 ? "[%s]:%u" : "%s:%u", ip, port);
  return text;
}
