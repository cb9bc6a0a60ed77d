/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake, both roles: arbitrary bytes in arbitrary pieces, and real exchanges in which bytes are
 * changed on the way, with the MAC left as it was or, as by somebody who knows the secret, made good again.
 *
 * What must hold: sizes stay in their bounds, nothing is wanted after the end, a changed message without a
 * good MAC ends nothing but the handshake, and whoever comes to DONE knows a sound peer. */
#include "proto/handshake.h"

#include "fuzz/fuzz_input.h"

static const uint8_t secret[HARP_SECRET_BYTES] = "sixteen bytes...";

static struct harp_endpoint endpoint_of(uint8_t host, unsigned enis) {
  struct harp_endpoint e = {
      .token = host, .path_count = 4, .eni_count = (uint16_t)enis, .pid = host, .name = "host"};
  for (unsigned i = 0; i < enis; i++)
    e.enis[i] = (struct harp_endpoint_eni){
        .family = 4, .addr = {10, (uint8_t)i, 0, host}, .mtu = 1500, .port_count = 2, .ports = {4000, 4001}};
  return e;
}

static void start(struct harp_handshake *h, bool client, uint8_t versions, unsigned enis) {
  const uint8_t nonce[HARP_NONCE_BYTES] = {client, 7};
  struct harp_endpoint local = endpoint_of(client ? 1 : 2, enis);
  local.auth = versions / 9 % 2 ? HARP_AUTH_KIND_MAC : HARP_AUTH_KIND_NONE;
  uint8_t min = 1 + versions % 3, max = (uint8_t)(min + versions / 3 % 3);
  harp_handshake_init(h, client, secret, nonce, min, max, &local);
}

static void check(const struct harp_handshake *h) {
  bool ended = h->state == HARP_HANDSHAKE_DONE || h->state == HARP_HANDSHAKE_REFUSED ||
               h->state == HARP_HANDSHAKE_WAIT_ANSWER;
  FUZZ_CHECK((harp_handshake_wants(h) == 0) == ended);
  FUZZ_CHECK(h->in_bytes <= sizeof h->in && harp_handshake_wants(h) <= sizeof h->in - h->in_bytes);
  FUZZ_CHECK(h->out_bytes <= sizeof h->out && h->out_sent <= h->out_bytes);
  FUZZ_CHECK((h->refusal != HARP_REFUSAL_NONE) == (h->state == HARP_HANDSHAKE_REFUSED));
  if (h->state != HARP_HANDSHAKE_DONE) return;
  FUZZ_CHECK(h->version >= h->version_min && h->version <= h->version_max);
  FUZZ_CHECK(h->version >= h->peer_version_min && h->version <= h->peer_version_max);
  FUZZ_CHECK(h->peer.eni_count >= 1 && h->peer.eni_count <= HARP_ENDPOINT_ENIS_MAX);
  for (unsigned i = 0; i < h->peer.eni_count; i++)
    FUZZ_CHECK(h->peer.enis[i].port_count || h->peer.enis[i].tcp_port);
  FUZZ_CHECK(memchr(h->peer.name, 0, sizeof h->peer.name));
  FUZZ_CHECK(h->peer.auth == h->local.auth && h->macs.is_on == (h->local.auth == HARP_AUTH_KIND_MAC));
}

/* Feeds bytes in pieces whose sizes come from the input; what is not wanted any more is left. */
static void feed(struct harp_handshake *h, const uint8_t *data, size_t bytes, uint8_t piece) {
  while (bytes) {
    size_t n = harp_handshake_wants(h);
    if (n > bytes) n = bytes;
    if (n > (size_t)piece + 1) n = (size_t)piece + 1;
    if (!n) return;
    harp_handshake_on_bytes(h, data, n);
    check(h);
    data += n;
    bytes -= n;
  }
}

static void run_arbitrary(struct fuzz_input *in) {
  static struct harp_handshake h;
  uint8_t how = fuzz_u8(in);
  start(&h, how & 1, how >> 1, 1);
  check(&h);
  while (in->bytes) {
    uint8_t some[256], piece = fuzz_u8(in);
    size_t n = fuzz_bytes(in, some, piece);
    feed(&h, some, n, fuzz_u8(in));
  }
  FUZZ_CHECK(h.state != HARP_HANDSHAKE_DONE); /* nobody guesses a MAC */
}

/* Corrects the MAC of a whole frame. */
static void reseal(uint8_t *frame, size_t bytes, const uint8_t *key) {
  uint8_t header[HARP_CONTROL_HEADER_BYTES];
  if (bytes < HARP_CONTROL_MIN_BYTES) return;
  memcpy(header, frame, sizeof header);
  harp_control_seal(frame, key, (enum harp_control_type)harp_control_type_of(frame), 0,
                    bytes - HARP_CONTROL_MIN_BYTES);
}

/* Bits of the input byte that selects how a frame is changed. */
enum {
  CHANGED_BYTES_MASK = 7, /* number of bytes that are overwritten */
  NEW_LENGTH = 8,         /* truncated, or extended by zeros */
  NEW_MAC = 16,           /* with a correct MAC */
  ZEROS_MAX = 200,
};

/* Passes the output of `from` to `to`, changed as the input selects. Returns whether it was changed without a
 * correct MAC. */
static bool carry(struct harp_handshake *from, struct harp_handshake *to, struct fuzz_input *in) {
  uint8_t frame[sizeof from->out + 256], original[sizeof frame];
  size_t bytes = from->out_bytes - from->out_sent, sent = bytes;
  memset(frame, 0, sizeof frame);
  memcpy(frame, from->out + from->out_sent, bytes);
  memcpy(original, frame, sizeof frame);
  from->out_sent = from->out_bytes;
  uint8_t how = fuzz_u8(in);
  for (unsigned changes = how & CHANGED_BYTES_MASK; changes && sent; changes--) {
    size_t at = fuzz_u16(in) % sent;
    frame[at] = fuzz_u8(in);
  }
  if (how & NEW_LENGTH) sent = fuzz_u16(in) % (sent + ZEROS_MAX);
  bool changed = sent < bytes || memcmp(frame, original, sent < bytes ? sent : bytes) != 0;
  if (how & NEW_MAC) {
    if (sent > HARP_CONTROL_MAX_BYTES) sent = HARP_CONTROL_MAX_BYTES;
    bool by_secret = harp_control_type_of(frame) == HARP_CONTROL_HELLO ||
                     harp_control_type_of(frame) == HARP_CONTROL_REFUSE;
    reseal(frame, sent, by_secret ? secret : from->control.tx);
  }
  feed(to, frame, sent, fuzz_u8(in));
  return changed && !(how & NEW_MAC);
}

static void run_exchange(struct fuzz_input *in) {
  static struct harp_handshake client, server;
  uint8_t how = fuzz_u8(in);
  bool is_busy = how >> 7;
  start(&client, true, fuzz_u8(in), 1 + how % HARP_ENDPOINT_ENIS_MAX);
  start(&server, false, fuzz_u8(in), 1 + how / 8 % HARP_ENDPOINT_ENIS_MAX);
  bool spoiled = carry(&client, &server, in);
  if (server.state == HARP_HANDSHAKE_WAIT_ANSWER)
    harp_handshake_answer(&server, is_busy ? HARP_REFUSAL_BUSY : harp_handshake_auth_refusal(&server));
  check(&server);
  if (spoiled || is_busy) FUZZ_CHECK(server.state != HARP_HANDSHAKE_WAIT_CONFIRM);
  spoiled |= carry(&server, &client, in);
  if (spoiled || is_busy) FUZZ_CHECK(client.state != HARP_HANDSHAKE_DONE);
  spoiled |= carry(&client, &server, in);
  if (spoiled) FUZZ_CHECK(server.state != HARP_HANDSHAKE_DONE);
  if (client.state == HARP_HANDSHAKE_DONE && server.state == HARP_HANDSHAKE_DONE) {
    FUZZ_CHECK(client.version == server.version);
    FUZZ_CHECK(!memcmp(client.control.tx, server.control.rx, sizeof client.control.tx));
    FUZZ_CHECK(!memcmp(client.control.rx, server.control.tx, sizeof client.control.rx));
    FUZZ_CHECK(!memcmp(&client.macs.tx, &server.macs.rx, sizeof client.macs.tx));
    FUZZ_CHECK(!memcmp(&client.macs.rx, &server.macs.tx, sizeof client.macs.rx));
    FUZZ_CHECK(client.keys.tx_seed == server.keys.rx_seed && client.keys.rx_seed == server.keys.tx_seed);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct fuzz_input in = {data, bytes};
  if (fuzz_u8(&in) & 1)
    run_arbitrary(&in);
  else
    run_exchange(&in);
  return 0;
}
