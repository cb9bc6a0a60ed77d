/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/handle.h"

#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"

void harp_handle_encode(struct harp_handle *h, const struct sockaddr_storage *addr, uint32_t engine_id,
                        const uint8_t secret[HARP_SECRET_BYTES]) {
  HARP_ASSERT(addr->ss_family == AF_INET || addr->ss_family == AF_INET6);
  memset(h, 0, sizeof *h);
  h->magic = harp_to_be32(HARP_CONTROL_MAGIC);
  h->layout = harp_to_be16(HARP_HANDLE_LAYOUT);
  h->engine = harp_to_be32(engine_id);
  h->family = harp_to_be16((uint16_t)harp_address_version(addr));
  h->port = harp_to_be16(harp_address_port(addr));
  h->scope = harp_to_be32(harp_address_scope(addr));
  memcpy(h->addr, harp_address_ip(addr), harp_ip_bytes(addr->ss_family));
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
  *addr = harp_address_make(family, h->addr, port, harp_from_be32(h->scope));
  return true;
}
