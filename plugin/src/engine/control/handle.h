/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's handle: where the receiver listens, and the secret that proves who may connect. At most as long as
 * NCCL's room for it: 64 bytes in the ABI v4, which the first fields and a few addresses fill, 128 in all
 * newer ones. Layout: docs/reference/wire.md. The bytes travel over NCCL's bootstrap; another plugin's handle
 * may come in their place, so they are checked like anything from the network. */
#ifndef HARP_HANDLE_H
#define HARP_HANDLE_H

#include <sys/socket.h>

#include "base/endian.h"
#include "base/error.h"
#include "wire/control.h"

enum {
  HARP_HANDLE_BYTES_V4 = 64,
  HARP_HANDLE_BYTES = 128,
  HARP_HANDLE_LAYOUT = 2,
  HARP_HANDLE_ADDRESSES_MAX = HARP_ENDPOINT_ENIS_MAX,
};

struct harp_handle {
  struct harp_be32 magic;  /* HARP_CONTROL_MAGIC */
  struct harp_be16 layout; /* HARP_HANDLE_LAYOUT */
  struct harp_be16 port;   /* the port of the listening TCP socket, at all addresses */
  struct harp_be32 engine; /* the engine that listens: the upper half of all its tokens */
  uint8_t ip4_count, ip6_count;
  uint8_t engine_number, engine_count; /* its place among the engines of its process's device, from 0 */
  uint8_t secret[HARP_SECRET_BYTES];
  /* The number of the connect under way; the connecting process alone writes it, and the listener sets 0. */
  uint8_t cookie[8];
  uint8_t addrs[88]; /* ip4_count of 4 bytes, then ip6_count of 16 bytes; the first 24 bytes with ABI v4 */
} __attribute__((packed));

_Static_assert(sizeof(struct harp_handle) == HARP_HANDLE_BYTES, "fits the ABI from v5 on");

/* The content of a handle. */
struct harp_contact {
  uint32_t engine_id;
  unsigned engine_number, engine_count;
  uint16_t port;
  unsigned count;                                        /* the number of addresses */
  struct sockaddr_storage at[HARP_HANDLE_ADDRESSES_MAX]; /* the addresses, with the port */
  uint8_t secret[HARP_SECRET_BYTES];
};

/* Fills a handle of `bytes`, HARP_HANDLE_BYTES or HARP_HANDLE_BYTES_V4: with the first address, then with the
 * IPv4 ones and the IPv6 ones that fit. */
void harp_handle_encode(void *handle, size_t bytes, const struct harp_contact *contact);

/* Checks a handle of `bytes` and takes out what it says; of the addresses those that lie within. Returns
 * false, with a sentence in `error`, when it is none of ours. */
bool harp_handle_decode(const void *handle, size_t bytes, struct harp_contact *contact,
                        struct harp_error *error);

/* Returns whether the peer can be reached at that IP address, as its handle says. */
bool harp_contact_has(const struct harp_contact *contact, const struct sockaddr_storage *addr);

enum { HARP_CONTACT_TEXT_BYTES = 256 };
/* Writes all addresses, "10.0.0.1:4000, 10.0.1.1:4000". Returns text. */
const char *harp_contact_text(const struct harp_contact *contact, char text[HARP_CONTACT_TEXT_BYTES]);

#endif
