/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's handle: where the receiver listens, and the secret that proves who may connect. 64 bytes, so that
 * the plugin ABI v4 can carry it. Layout: docs/wire.md. The bytes travel over NCCL's bootstrap; another
 * plugin's handle may come in their place, so they are checked like anything from the network. */
#ifndef HARP_HANDLE_H
#define HARP_HANDLE_H

#include <sys/socket.h>

#include "base/endian.h"
#include "base/error.h"
#include "wire/control.h"

enum { HARP_HANDLE_BYTES = 64, HARP_HANDLE_LAYOUT = 1 };

struct harp_handle {
  struct harp_be32 magic;  /* HARP_CONTROL_MAGIC */
  struct harp_be16 layout; /* HARP_HANDLE_LAYOUT */
  struct harp_be16 family; /* 4 or 6 */
  struct harp_be16 port;   /* of the listening TCP socket */
  struct harp_be16 reserved;
  uint8_t addr[16];       /* IPv4 in the first 4 bytes */
  struct harp_be32 scope; /* of a link-local IPv6 address */
  uint8_t secret[HARP_SECRET_BYTES];
  /* Which connect is under way. Written by the connecting process only; 0 from the listener. */
  uint8_t cookie[8];
  struct harp_be32 engine; /* that listens: the upper half of all its tokens */
  uint8_t zero[4];
} __attribute__((packed));

_Static_assert(sizeof(struct harp_handle) == HARP_HANDLE_BYTES, "fits ABI v4");

/* Fills the handle for a listener. */
void harp_handle_encode(struct harp_handle *h, const struct sockaddr_storage *addr, uint32_t engine_id,
                        const uint8_t secret[HARP_SECRET_BYTES]);

/* Checks a handle and takes out the address. Returns false, with a sentence in `error`, when it is none of
 * ours. */
bool harp_handle_decode(const struct harp_handle *h, struct sockaddr_storage *addr, struct harp_error *error);

#endif
