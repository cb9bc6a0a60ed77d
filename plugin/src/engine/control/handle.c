/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/handle.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/identity.h"

enum {
  IP4_BYTES = sizeof(struct in_addr),
  IP6_BYTES = sizeof(struct in6_addr),
  HEAD_BYTES = offsetof(struct harp_handle, addrs),
};

/* The addresses of a handle that is being filled. */
struct room {
  size_t left; /* bytes */
  bool is_taken[HARP_HANDLE_ADDRESSES_MAX];
};

static void take_address(struct room *room, const struct harp_contact *contact, unsigned i) {
  size_t bytes = harp_ip_bytes(contact->at[i].ss_family);
  if (room->is_taken[i] || bytes > room->left) return;
  room->is_taken[i] = true;
  room->left -= bytes;
}

static void take_family(struct room *room, const struct harp_contact *contact, int family) {
  for (unsigned i = 0; i < contact->count; i++)
    if (contact->at[i].ss_family == family) take_address(room, contact, i);
}

/* Writes the addresses of a family that were taken, in their order. Returns how many. */
static uint8_t put_family(uint8_t **at, const struct room *room, const struct harp_contact *contact,
                          int family) {
  uint8_t count = 0;
  for (unsigned i = 0; i < contact->count; i++) {
    if (!room->is_taken[i] || contact->at[i].ss_family != family) continue;
    memcpy(*at, harp_address_ip(&contact->at[i]), harp_ip_bytes(family));
    *at += harp_ip_bytes(family);
    count++;
  }
  return count;
}

void harp_handle_encode(void *handle, size_t bytes, const struct harp_contact *contact) {
  struct harp_handle *h = handle;
  struct room room = {.left = bytes - HEAD_BYTES};
  uint8_t *at = h->addrs;
  HARP_ASSERT(bytes == HARP_HANDLE_BYTES || bytes == HARP_HANDLE_BYTES_V4);
  HARP_ASSERT(contact->count && contact->count <= HARP_HANDLE_ADDRESSES_MAX);
  memset(handle, 0, bytes);
  h->magic = harp_to_be32(HARP_CONTROL_MAGIC);
  h->layout = harp_to_be16(HARP_HANDLE_LAYOUT);
  h->port = harp_to_be16(contact->port);
  h->engine = harp_to_be32(contact->engine_id);
  h->engine_number = (uint8_t)contact->engine_number;
  h->engine_count = (uint8_t)contact->engine_count;
  memcpy(h->secret, contact->secret, sizeof h->secret);
  take_address(&room, contact, 0);
  take_family(&room, contact, AF_INET);
  take_family(&room, contact, AF_INET6);
  h->ip4_count = put_family(&at, &room, contact, AF_INET);
  h->ip6_count = put_family(&at, &room, contact, AF_INET6);
}

/* Reads addresses of an IP version, of which `count` are announced, up to the end of the handle. */
static void read_family(struct harp_contact *contact, unsigned version, unsigned count, const uint8_t **at,
                        const uint8_t *end) {
  ptrdiff_t bytes = version == 6 ? IP6_BYTES : IP4_BYTES;
  for (; count && end - *at >= bytes; count--, *at += bytes)
    contact->at[contact->count++] = harp_address_make(version, *at, contact->port, 0);
}

bool harp_handle_decode(const void *handle, size_t bytes, struct harp_contact *contact,
                        struct harp_error *error) {
  const struct harp_handle *h = handle;
  HARP_ASSERT(bytes == HARP_HANDLE_BYTES || bytes == HARP_HANDLE_BYTES_V4);
  memset(contact, 0, sizeof *contact);
  if (harp_from_be32(h->magic) != HARP_CONTROL_MAGIC) {
    (void)harp_error_set(
        error, 0,
        "the peer's connection handle is not one of HARP's: does that rank run another network plugin, "
        "or %s's sockets? All ranks must load the same %s",
        harp_user_name(), harp_plugin_name());
    return false;
  }
  uint16_t layout = harp_from_be16(h->layout), port = harp_from_be16(h->port);
  if (layout != HARP_HANDLE_LAYOUT) {
    (void)harp_error_set(
        error, 0,
        "the peer's connection handle has layout %u, this plugin knows layout %u: install the "
        "same %s on all hosts",
        layout, HARP_HANDLE_LAYOUT, harp_plugin_name());
    return false;
  }
  unsigned count = (unsigned)h->ip4_count + h->ip6_count;
  if (!count || count > HARP_HANDLE_ADDRESSES_MAX || !port) {
    (void)harp_error_set(error, 0, "the peer's connection handle is damaged (%u + %u addresses, port %u)",
                         h->ip4_count, h->ip6_count, port);
    return false;
  }
  contact->engine_id = harp_from_be32(h->engine);
  contact->engine_number = h->engine_number;
  contact->engine_count = h->engine_count;
  contact->port = port;
  memcpy(contact->secret, h->secret, sizeof contact->secret);
  const uint8_t *at = h->addrs, *end = (const uint8_t *)handle + bytes;
  read_family(contact, 4, h->ip4_count, &at, end);
  read_family(contact, 6, h->ip6_count, &at, end);
  HARP_ASSERT(contact->count); /* the smallest handle has room for one of either */
  return true;
}

bool harp_contact_has(const struct harp_contact *contact, const struct sockaddr_storage *addr) {
  for (unsigned i = 0; i < contact->count; i++)
    if (harp_address_has_same_ip(&contact->at[i], addr)) return true;
  return false;
}

const char *harp_contact_text(const struct harp_contact *contact, char text[HARP_CONTACT_TEXT_BYTES]) {
  size_t used = 0;
  for (unsigned i = 0; i < contact->count && used < HARP_CONTACT_TEXT_BYTES; i++) {
    char address[HARP_ADDRESS_TEXT_BYTES];
    used += (size_t)snprintf(text + used, HARP_CONTACT_TEXT_BYTES - used, "%s%s", i ? ", " : "",
                             harp_address_text(&contact->at[i], address));
  }
  return text;
}
