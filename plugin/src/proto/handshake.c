/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/handshake.h"

#include <string.h>

#include "base/assert.h"
#include "wire/siphash.h"

enum { CLIENT, SERVER }; /* the sender of the nonce */

/* The one transition function. */
static void move_to(struct harp_handshake *h, enum harp_handshake_state to) {
  static const bool allowed[HARP_HANDSHAKE_STATE_COUNT][HARP_HANDSHAKE_STATE_COUNT] = {
      [HARP_HANDSHAKE_WAIT_HELLO] = {[HARP_HANDSHAKE_WAIT_ANSWER] = true, [HARP_HANDSHAKE_REFUSED] = true},
      [HARP_HANDSHAKE_WAIT_ANSWER] = {[HARP_HANDSHAKE_WAIT_CONFIRM] = true, [HARP_HANDSHAKE_REFUSED] = true},
      [HARP_HANDSHAKE_WAIT_CONFIRM] = {[HARP_HANDSHAKE_DONE] = true, [HARP_HANDSHAKE_REFUSED] = true},
      [HARP_HANDSHAKE_WAIT_WELCOME] = {[HARP_HANDSHAKE_DONE] = true, [HARP_HANDSHAKE_REFUSED] = true},
  };
  HARP_ASSERT(allowed[h->state][to]);
  h->state = to;
}

static void refuse_peer(struct harp_handshake *h, enum harp_refusal why) {
  h->refusal = why;
  move_to(h, HARP_HANDSHAKE_REFUSED);
}

/* ---- keys ---- */

/* One derived secret: SipHash-2-4-128, keyed with the shared secret, of a label of 15 characters, the version
 * and both nonces. */
static void derive_secret(const struct harp_handshake *h, const char label[16],
                          uint8_t out[HARP_MAC_KEY_BYTES]) {
  struct {
    uint8_t label[15], version, nonce[2][HARP_NONCE_BYTES];
  } input;
  _Static_assert(sizeof input == 48, "no padding");
  memcpy(input.label, label, sizeof input.label);
  input.version = h->version;
  memcpy(input.nonce, h->nonce, sizeof input.nonce);
  harp_siphash128(h->secret, &input, sizeof input, out);
}

static uint32_t derive_seed(const struct harp_handshake *h, const char label[16]) {
  uint8_t bytes[HARP_MAC_KEY_BYTES];
  struct harp_be32 seed;
  derive_secret(h, label, bytes);
  memcpy(&seed, bytes, sizeof seed);
  return harp_from_be32(seed);
}

static void derive_mac_secret(const struct harp_handshake *h, const char hash_label[16],
                              const char tag_label[16], struct harp_mac_secret *out) {
  derive_secret(h, hash_label, out->hash);
  derive_secret(h, tag_label, out->tag);
}

/* Both nonces and the version are known: everything secret follows. */
static void derive_all(struct harp_handshake *h) {
  derive_secret(h, "HARP mac client", h->client ? h->control.tx : h->control.rx);
  derive_secret(h, "HARP mac server", h->client ? h->control.rx : h->control.tx);
  uint32_t client_seed = derive_seed(h, "HARP crc client");
  uint32_t server_seed = derive_seed(h, "HARP crc server");
  h->keys.tx_seed = h->client ? client_seed : server_seed;
  h->keys.rx_seed = h->client ? server_seed : client_seed;
  h->macs.is_on = h->local.auth == HARP_AUTH_KIND_MAC;
  if (!h->macs.is_on) return;
  derive_mac_secret(h, "HARP key client", "HARP tag client", h->client ? &h->macs.tx : &h->macs.rx);
  derive_mac_secret(h, "HARP key server", "HARP tag server", h->client ? &h->macs.rx : &h->macs.tx);
}

static void take_tokens(struct harp_handshake *h) {
  h->keys.tx_token = h->peer.token;
  h->keys.rx_token = h->local.token;
}

/* ---- sending ---- */

/* Seals the frame whose body lies behind `out` already, and appends it. */
static void append_message(struct harp_handshake *h, const uint8_t *key, enum harp_control_type type,
                           size_t body_bytes) {
  HARP_ASSERT(h->out_bytes + HARP_CONTROL_MIN_BYTES + body_bytes <= sizeof h->out);
  h->out_bytes += (uint32_t)harp_control_seal(h->out + h->out_bytes, key, type, 0, body_bytes);
}

static uint8_t *next_body(struct harp_handshake *h) {
  return h->out + h->out_bytes + HARP_CONTROL_HEADER_BYTES;
}

static void send_hello(struct harp_handshake *h, const uint8_t *key, enum harp_control_type type) {
  struct harp_hello hello = {
      .version_min = h->version_min, .version_max = h->version_max, .version = h->version};
  memcpy(hello.nonce, h->nonce[h->client ? CLIENT : SERVER], sizeof hello.nonce);
  append_message(h, key, type, harp_control_put_hello(next_body(h), &hello, &h->local));
}

static void send_refuse(struct harp_handshake *h, enum harp_refusal why) {
  struct harp_refuse r = {.version_min = h->version_min, .version_max = h->version_max, .reason = why};
  memcpy(r.hello_mac, h->hello_mac, sizeof r.hello_mac);
  append_message(h, h->secret, HARP_CONTROL_REFUSE, harp_control_put_refuse(next_body(h), &r));
  refuse_peer(h, why);
}

static void set_self(struct harp_handshake *h, const uint8_t nonce[HARP_NONCE_BYTES],
                     const struct harp_endpoint *local) {
  h->local = *local;
  memcpy(h->nonce[h->client ? CLIENT : SERVER], nonce, HARP_NONCE_BYTES);
}

void harp_handshake_init(struct harp_handshake *h, bool client, const uint8_t secret[HARP_SECRET_BYTES],
                         const uint8_t nonce[HARP_NONCE_BYTES], uint8_t version_min, uint8_t version_max,
                         const struct harp_endpoint *local) {
  HARP_ASSERT(version_min && version_min <= version_max && (local || !client));
  memset(h, 0, sizeof *h);
  h->state = client ? HARP_HANDSHAKE_WAIT_WELCOME : HARP_HANDSHAKE_WAIT_HELLO;
  h->client = client;
  h->version_min = version_min;
  h->version_max = version_max;
  memcpy(h->secret, secret, sizeof h->secret);
  if (local) set_self(h, nonce, local);
  if (!client) return;
  send_hello(h, h->secret, HARP_CONTROL_HELLO);
  memcpy(h->hello_mac, h->out + h->out_bytes - sizeof h->hello_mac, sizeof h->hello_mac);
}

/* ---- receiving: each is given the body of a whole frame ---- */

/* Returns the newest version that both speak, 0 when there is none. */
static uint8_t common_version(const struct harp_handshake *h) {
  uint8_t newest = HARP_MIN(h->version_max, h->peer_version_max);
  return newest < h->version_min || newest < h->peer_version_min ? 0 : newest;
}

static void on_hello(struct harp_handshake *h, const uint8_t *body, size_t bytes) {
  struct harp_hello hello;
  if (!harp_control_mac_ok(h->in, h->in_bytes, h->secret)) {
    refuse_peer(h, HARP_REFUSAL_SECRET);
    return;
  }
  if (!harp_control_get_versions(body, bytes, &h->peer_version_min, &h->peer_version_max)) {
    refuse_peer(h, HARP_REFUSAL_NOT_HARP);
    return;
  }
  memcpy(h->hello_mac, h->in + h->in_bytes - sizeof h->hello_mac, sizeof h->hello_mac);
  h->version = common_version(h);
  if (!h->version) {
    send_refuse(h, HARP_REFUSAL_VERSION);
    return;
  }
  if (!harp_control_get_hello(body, bytes, &hello) || !harp_control_get_endpoint(body, bytes, &h->peer)) {
    send_refuse(h, HARP_REFUSAL_ENDPOINT);
    return;
  }
  memcpy(h->nonce[CLIENT], hello.nonce, sizeof hello.nonce);
  move_to(h, HARP_HANDSHAKE_WAIT_ANSWER);
}

void harp_handshake_describe(struct harp_handshake *h, const uint8_t nonce[HARP_NONCE_BYTES],
                             const struct harp_endpoint *local) {
  HARP_ASSERT(h->state == HARP_HANDSHAKE_WAIT_ANSWER && !h->client);
  set_self(h, nonce, local);
}

enum harp_refusal harp_handshake_auth_refusal(const struct harp_handshake *h) {
  HARP_ASSERT(h->state == HARP_HANDSHAKE_WAIT_ANSWER);
  if (h->peer.auth == h->local.auth) return HARP_REFUSAL_NONE;
  return h->local.auth == HARP_AUTH_KIND_MAC ? HARP_REFUSAL_NO_MACS : HARP_REFUSAL_MACS;
}

void harp_handshake_answer(struct harp_handshake *h, enum harp_refusal why) {
  HARP_ASSERT(h->state == HARP_HANDSHAKE_WAIT_ANSWER);
  HARP_ASSERT(why == HARP_REFUSAL_NONE || why == HARP_REFUSAL_BUSY || why == HARP_REFUSAL_LIMIT ||
              why == HARP_REFUSAL_CROSSED || why == HARP_REFUSAL_PATHS || why == HARP_REFUSAL_FILES ||
              why == HARP_REFUSAL_LISTENER || why == HARP_REFUSAL_NO_MACS || why == HARP_REFUSAL_MACS);
  HARP_ASSERT(why || !harp_handshake_auth_refusal(h));
  if (why) {
    send_refuse(h, why);
    return;
  }
  derive_all(h);
  take_tokens(h);
  send_hello(h, h->control.tx, HARP_CONTROL_WELCOME);
  move_to(h, HARP_HANDSHAKE_WAIT_CONFIRM);
}

static void on_confirm(struct harp_handshake *h, const uint8_t *body, size_t bytes) {
  (void)body, (void)bytes;
  if (harp_control_mac_ok(h->in, h->in_bytes, h->control.rx))
    move_to(h, HARP_HANDSHAKE_DONE);
  else
    refuse_peer(h, HARP_REFUSAL_SECRET);
}

static void on_welcome(struct harp_handshake *h, const uint8_t *body, size_t bytes) {
  struct harp_hello hello;
  if (!harp_control_get_hello(body, bytes, &hello)) {
    refuse_peer(h, HARP_REFUSAL_NOT_HARP);
    return;
  }
  h->version = hello.version;
  memcpy(h->nonce[SERVER], hello.nonce, sizeof hello.nonce);
  derive_all(h);
  if (!harp_control_mac_ok(h->in, h->in_bytes, h->control.rx)) {
    refuse_peer(h, HARP_REFUSAL_SECRET);
    return;
  }
  h->peer_version_min = hello.version_min;
  h->peer_version_max = hello.version_max;
  if (!h->version || h->version != common_version(h)) {
    refuse_peer(h, HARP_REFUSAL_VERSION);
    return;
  }
  if (!harp_control_get_endpoint(body, bytes, &h->peer)) {
    refuse_peer(h, HARP_REFUSAL_ENDPOINT);
    return;
  }
  if (h->peer.auth != h->local.auth) { /* our HELLO said what we require: it had to refuse */
    refuse_peer(h, HARP_REFUSAL_NOT_HARP);
    return;
  }
  take_tokens(h);
  append_message(h, h->control.tx, HARP_CONTROL_CONFIRM, 0);
  move_to(h, HARP_HANDSHAKE_DONE);
}

static void on_refuse(struct harp_handshake *h, const uint8_t *body, size_t bytes) {
  struct harp_refuse r;
  if (!harp_control_mac_ok(h->in, h->in_bytes, h->secret)) {
    refuse_peer(h, HARP_REFUSAL_SECRET);
    return;
  }
  if (!harp_control_get_refuse(body, bytes, &r)) {
    refuse_peer(h, HARP_REFUSAL_NOT_HARP);
    return;
  }
  if (memcmp(r.hello_mac, h->hello_mac, sizeof r.hello_mac)) { /* recorded from another handshake */
    refuse_peer(h, HARP_REFUSAL_SECRET);
    return;
  }
  h->peer_version_min = r.version_min;
  h->peer_version_max = r.version_max;
  h->peer_refusal = r.reason;
  refuse_peer(h, r.reason == HARP_REFUSAL_VERSION ? HARP_REFUSAL_VERSION : HARP_REFUSAL_PEER);
}

typedef void on_message(struct harp_handshake *h, const uint8_t *body, size_t bytes);

/* Returns what takes a message of that type now, NULL when none is due. */
static on_message *handler_of(const struct harp_handshake *h, unsigned type) {
  static on_message *const handlers[HARP_HANDSHAKE_STATE_COUNT][HARP_CONTROL_FINAL + 1] = {
      [HARP_HANDSHAKE_WAIT_HELLO] = {[HARP_CONTROL_HELLO] = on_hello},
      [HARP_HANDSHAKE_WAIT_CONFIRM] = {[HARP_CONTROL_CONFIRM] = on_confirm},
      [HARP_HANDSHAKE_WAIT_WELCOME] =
          {[HARP_CONTROL_WELCOME] = on_welcome, [HARP_CONTROL_REFUSE] = on_refuse},
  };
  return type <= HARP_CONTROL_FINAL ? handlers[h->state][type] : NULL;
}

size_t harp_handshake_wants(const struct harp_handshake *h) {
  if (h->state == HARP_HANDSHAKE_DONE || h->state == HARP_HANDSHAKE_REFUSED ||
      h->state == HARP_HANDSHAKE_WAIT_ANSWER)
    return 0;
  int length = harp_control_peek(h->in, h->in_bytes); /* a bad beginning was refused when it came */
  HARP_ASSERT(length >= 0);
  return (length ? (size_t)length : HARP_CONTROL_MIN_BYTES) - h->in_bytes;
}

void harp_handshake_on_bytes(struct harp_handshake *h, const uint8_t *data, size_t bytes) {
  HARP_ASSERT(bytes <= harp_handshake_wants(h));
  if (!bytes) return;
  memcpy(h->in + h->in_bytes, data, bytes);
  h->in_bytes += (uint32_t)bytes;

  on_message *handler = NULL;
  int length = harp_control_peek(h->in, h->in_bytes);
  bool type_seen = h->in_bytes > offsetof(struct harp_wire_control, type);
  if (type_seen) handler = handler_of(h, harp_control_type_of(h->in));
  if (length < 0 || (type_seen && !handler)) {
    refuse_peer(h, HARP_REFUSAL_NOT_HARP);
  } else if (length && h->in_bytes == (uint32_t)length) {
    handler(h, h->in + HARP_CONTROL_HEADER_BYTES, (size_t)length - HARP_CONTROL_MIN_BYTES);
    h->in_bytes = 0;
  }
}

const char *harp_refusal_text(enum harp_refusal r) {
  switch (r) {
  case HARP_REFUSAL_NONE:
    return "did not refuse";
  case HARP_REFUSAL_NOT_HARP:
    return "does not speak HARP's protocol";
  case HARP_REFUSAL_SECRET:
    return "does not know the secret of the handle";
  case HARP_REFUSAL_VERSION:
    return "speaks no wire version that this plugin speaks";
  case HARP_REFUSAL_ENDPOINT:
    return "describes addresses, ports or MTUs that make no sense";
  case HARP_REFUSAL_PEER:
    return "refused this connection";
  case HARP_REFUSAL_BUSY:
    return "comes while too many connections wait for accept";
  case HARP_REFUSAL_LISTENER:
    return "requests a listener that is closed";
  case HARP_REFUSAL_STREAM:
    return "requests a stream that is open, or out of range";
  case HARP_REFUSAL_CROSSED:
    return "is being connected to from here at the same moment";
  case HARP_REFUSAL_LIMIT:
    return "requests more connections than the engine here can have";
  case HARP_REFUSAL_MEMORY:
    return "requests a connection for which there is no memory";
  case HARP_REFUSAL_PATHS:
    return "has no kind of path in common with this one: configure the same driver and the same address "
           "family "
           "on all hosts";
  case HARP_REFUSAL_FILES:
    return "comes while this process has no files left";
  case HARP_REFUSAL_NO_MACS:
    return "has HARP_AUTH=off and the other side HARP_AUTH=mac: set the same on all hosts";
  case HARP_REFUSAL_MACS:
    return "has HARP_AUTH=mac and the other side HARP_AUTH=off: set the same on all hosts";
  }
  return "failed for an unknown reason";
}
