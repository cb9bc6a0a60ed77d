/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/handle.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

void harp_handle_encode(struct harp_handle *h, const struct sockaddr_storage *addr, uint32_t engine_id,
                        const uint8_t secret[HARP_SECRET_BYTES]) {
  memset(h, 0, sizeof *h);
  h->magic = harp_to_be32(HARP_CONTROL_MAGIC);
  h->layout = harp_to_be16(HARP_HANDLE_LAYOUT);
  h->engine = harp_to_be32(engine_id);
  if (addr->ss_family == AF_INET6) {
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
    h->family = harp_to_be16(6);
    h->port = harp_to_be16(ntohs(in6->sin6_port));
    h->scope = harp_to_be32(in6->sin6_scope_id);
    memcpy(h->addr, &in6->sin6_addr, 16);
  } else {
    const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
    h->family = harp_to_be16(4);
    h->port = harp_to_be16(ntohs(in->sin_port));
    memcpy(h->addr, &in->sin_addr, 4);
  }
  memcpy(h->secret, secret, HARP_SECRET_BYTES);
}

bool harp_handle_decode(const struct harp_handle *h, struct sockaddr_storage *addr,
                        struct harp_error *error) {
  memset(addr, 0, sizeof *addr);
  if (harp_from_be32(h->magic) != HARP_CONTROL_MAGIC) {
    (void)harp_error_set(
        error, 0,
        "the peer's connection handle is not one of HARP's: does that rank run another network plugin, "
        "or NCCL's "
        "sockets? All ranks must load the same libnccl-net.so");
    return false;
  }
  uint16_t layout = harp_from_be16(h->layout), family = harp_from_be16(h->family),
           port = harp_from_be16(h->port);
  if (layout != HARP_HANDLE_LAYOUT) {
    (void)harp_error_set(
        error, 0,
        "the peer's connection handle has layout %u, this plugin knows layout %u: install the "
        "same libnccl-net.so on all hosts",
        layout, HARP_HANDLE_LAYOUT);
    return false;
  }
  if ((family != 4 && family != 6) || !port) {
    (void)harp_error_set(error, 0, "the peer's connection handle is damaged (address family %u, port %u)",
                         family, port);
    return false;
  }
  if (family == 6) {
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    in6->sin6_scope_id = harp_from_be32(h->scope);
    memcpy(&in6->sin6_addr, h->addr, 16);
  } else {
    struct sockaddr_in *in = (struct sockaddr_in *)addr;
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    memcpy(&in->sin_addr, h->addr, 4);
  }
  return true;
}
