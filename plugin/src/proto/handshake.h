/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of a connection over its control connection (kernel TCP), sans-IO: two peers that hold the
 * same 128-bit secret from NCCL's handle prove it to each other, agree on a wire version and exchange
 * endpoints and keys.
 *
 * client (it connected)                        server (it listens)
 *   HELLO   versions, nonce, endpoint    ->
 *                                        <-    WELCOME version, nonce, endpoint   | REFUSE why
 *   CONFIRM                              ->
 *
 * Every message carries a SipHash-2-4 MAC: HELLO and REFUSE keyed with the secret, the later ones with keys
 * derived from the secret and both nonces, so that a replayed handshake fails. Before its MAC is checked
 * nothing of a message is used but a WELCOME's nonce, which its key needs. After CONFIRM
 * the same framing carries PING, PONG and FINAL (wire/control.h).
 *
 * Owned by a pending peer (engine/control/pending_peer.h); called by the thread that holds the engine's lock.
 * It bounds what it reads; the caller bounds the time, counts and logs a refusal, and closes. No clock, no
 * randomness, no I/O. */
#ifndef HARP_HANDSHAKE_H
#define HARP_HANDSHAKE_H

#include "base/base.h"
#include "proto/session.h"
#include "wire/control.h"

enum harp_handshake_state {
  HARP_HANDSHAKE_WAIT_HELLO,   /* the server waits for HELLO */
  HARP_HANDSHAKE_WAIT_ANSWER,  /* server: a valid HELLO came, harp_handshake_answer is due */
  HARP_HANDSHAKE_WAIT_CONFIRM, /* the server waits for CONFIRM */
  HARP_HANDSHAKE_WAIT_WELCOME, /* the client waits for WELCOME */
  HARP_HANDSHAKE_DONE,         /* a client may still have its CONFIRM to send, before anything else */
  HARP_HANDSHAKE_REFUSED,      /* the reason is `refusal`; a server may still have a REFUSE to send */
  HARP_HANDSHAKE_STATE_COUNT,
};

struct harp_handshake {
  enum harp_handshake_state state;
  enum harp_refusal refusal,
      peer_refusal; /* why it was refused; peer_refusal holds where refusal is HARP_REFUSAL_PEER */
  bool client;
  uint8_t secret[HARP_SECRET_BYTES];
  uint8_t version_min, version_max; /* our versions */
  uint8_t peer_version_min,
      peer_version_max;               /* 0 until a HELLO, WELCOME or REFUSE with a right MAC has come */
  uint8_t version;                    /* the agreed version, when DONE */
  uint8_t nonce[2][HARP_NONCE_BYTES]; /* the client's nonce, and the server's */
  uint8_t hello_mac[HARP_CONTROL_MAC_BYTES]; /* the MAC of the HELLO that was sent or received */
  struct harp_endpoint local,
      peer; /* `peer` is known when DONE; on a server already in WAIT_ANSWER and after it */
  struct harp_session_keys keys;    /* known when DONE; on a server already while it waits for CONFIRM */
  struct harp_session_macs macs;    /* known when `keys` is */
  struct harp_control_keys control; /* the MAC keys of the later messages, known when `keys` is */
  uint32_t in_bytes;
  uint8_t in[HARP_CONTROL_MAX_BYTES];
  uint32_t out_bytes, out_sent; /* the caller sends out[out_sent, out_bytes) and advances out_sent */
  uint8_t out[2 * HARP_CONTROL_MAX_BYTES];
};

/* Starts as client or server; the client's HELLO is in `out` at once. `nonce` is random; local->token is the
 * token of packets sent to us. This build speaks wire versions version_min to version_max. All arguments are
 * copied. A server may do without nonce and endpoint, NULL, until a client has proved the secret. */
void harp_handshake_init(struct harp_handshake *h, bool client, const uint8_t secret[HARP_SECRET_BYTES],
                         const uint8_t nonce[HARP_NONCE_BYTES], uint8_t version_min, uint8_t version_max,
                         const struct harp_endpoint *local);

/* Returns how many bytes to read next: at most the rest of the current message, so that what follows the
 * handshake stays in the socket. 0 when DONE or REFUSED, and in WAIT_ANSWER. */
size_t harp_handshake_wants(const struct harp_handshake *h);

/* Takes received bytes, at most harp_handshake_wants. Refuses as soon as they cannot be the start of a
 * message that is valid in this state. */
void harp_handshake_on_bytes(struct harp_handshake *h, const uint8_t *data, size_t bytes);

/* In WAIT_ANSWER, for a server without them: its nonce and endpoint. */
void harp_handshake_describe(struct harp_handshake *h, const uint8_t nonce[HARP_NONCE_BYTES],
                             const struct harp_endpoint *local);

/* In WAIT_ANSWER: returns why a client that requires other authentication than this side is to be refused;
 * HARP_REFUSAL_NONE: both require the same. */
enum harp_refusal harp_handshake_auth_refusal(const struct harp_handshake *h);

/* In WAIT_ANSWER: sends WELCOME (HARP_REFUSAL_NONE), or REFUSE with BUSY, LISTENER, LIMIT, CROSSED, PATHS,
 * FILES, NO_MACS or MACS. */
void harp_handshake_answer(struct harp_handshake *h, enum harp_refusal why);

/* Returns a clause for logs whose subject is the peer, e.g. "speaks no wire version that this plugin speaks".
 * For PEER, the clause of peer_refusal describes this side. */
const char *harp_refusal_text(enum harp_refusal r);

#endif
