/* SPDX-License-Identifier: Apache-2.0 */
/* The first message of a client that knows the secret of a handle, whose handshake goes no further. */
#ifndef HARP_TESTS_HELLO_H
#define HARP_TESTS_HELLO_H

#include "engine/control/handle.h"
#include "proto/handshake.h"

/* Begins the handshake of a client on 127.0.0.1; `connect` tells connects, and their engines, apart. HELLO is
 * in h->out. Returns where it is to go. */
static inline struct harp_contact hello_begin(struct harp_handshake *h, const struct harp_handle *handle,
                                              uint8_t connect) {
  struct harp_contact to = {0};
  struct harp_error error;
  const uint8_t nonce[HARP_NONCE_BYTES] = {connect};
  struct harp_endpoint self = {
      .token = (uint64_t)(0x1000 + connect) << 32,
      .first_line = connect,
      .window_bytes = 1 << 20,
      .path_count = 1,
      .eni_count = 1,
      .attempt = 1,
      .enis = {{.family = 4, .addr = {127, 0, 0, 1}, .mtu = 1500, .port_count = 1, .ports = {9}}},
      .name = "client",
      .build = "a test",
  };
  if (!harp_handle_decode(handle, HARP_HANDLE_BYTES, &to, &error)) __builtin_abort();
  harp_handshake_init(h, true, to.secret, nonce, HARP_WIRE_VERSION_MIN, HARP_WIRE_VERSION, &self);
  return to;
}

#endif
