/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/mac.h"

#include <string.h>

#include "wire/packet.h"

void harp_mac_key_init(struct harp_mac_key *key, const struct harp_mac_secret *secret) {
  harp_polyval_key_init(&key->hash, secret->hash);
  memcpy(key->tag, secret->tag, sizeof key->tag);
}

static uint64_t tag_of(const struct harp_mac_key *key, const uint8_t sum[HARP_POLYVAL_BYTES], uint32_t bytes,
                       struct harp_mac_nonce nonce) {
  struct {
    uint8_t sum[HARP_POLYVAL_BYTES];
    struct harp_be64 number;
    struct harp_be32 bytes;
    uint8_t path, type, zeros[2];
  } input = {.number = harp_to_be64(nonce.number),
             .bytes = harp_to_be32(bytes),
             .path = nonce.path,
             .type = nonce.type};
  _Static_assert(sizeof input == 32, "no padding");
  memcpy(input.sum, sum, sizeof input.sum);
  return harp_siphash(key->tag, &input, sizeof input);
}

/* ---- in pieces ---- */

/* Adds bytes to those that wait for the rest of their block. Returns how many. */
static uint32_t fill_rest(const struct harp_mac_key *key, struct harp_mac_state *state, const uint8_t *src,
                          uint32_t bytes) {
  uint32_t held = state->bytes % HARP_POLYVAL_BYTES;
  uint32_t taken = HARP_MIN(bytes, HARP_POLYVAL_BYTES - held);
  memcpy(state->rest + held, src, taken);
  if (held + taken == HARP_POLYVAL_BYTES)
    harp_polyval_add(&key->hash, state->sum, state->rest, sizeof state->rest);
  return taken;
}

void harp_mac_add(const struct harp_mac_key *key, struct harp_mac_state *state, const void *data,
                  uint32_t bytes) {
  const uint8_t *src = data;
  uint32_t taken = state->bytes % HARP_POLYVAL_BYTES ? fill_rest(key, state, src, bytes) : 0;
  uint32_t rest = (bytes - taken) % HARP_POLYVAL_BYTES, whole = bytes - taken - rest;
  if (whole) harp_polyval_add(&key->hash, state->sum, src + taken, whole);
  memcpy(state->rest, src + taken + whole, rest);
  state->bytes += bytes;
}

uint64_t harp_mac_end(const struct harp_mac_key *key, struct harp_mac_state *state,
                      struct harp_mac_nonce nonce) {
  uint32_t rest = state->bytes % HARP_POLYVAL_BYTES;
  if (rest) harp_polyval_add(&key->hash, state->sum, state->rest, rest);
  return tag_of(key, state->sum, state->bytes, nonce);
}

/* ---- packets ---- */

static uint64_t packet_tag(const struct harp_mac_key *key, const uint8_t *wire, uint32_t bytes,
                           uint64_t number) {
  struct harp_wire_prefix prefix;
  uint8_t sum[HARP_POLYVAL_BYTES] = {0};
  memcpy(&prefix, wire, sizeof prefix);
  harp_polyval_add(&key->hash, sum, wire, bytes);
  return tag_of(key, sum, bytes, (struct harp_mac_nonce){number, prefix.path, prefix.type});
}

uint32_t harp_mac_seal(const struct harp_mac_key *key, uint8_t *wire, uint32_t bytes, uint64_t number) {
  struct harp_be64 tag = harp_to_be64(packet_tag(key, wire, bytes, number));
  _Static_assert(sizeof tag == HARP_MAC_BYTES, "a MAC");
  memcpy(wire + bytes, &tag, sizeof tag);
  return bytes + HARP_MAC_BYTES;
}

bool harp_mac_ok(const struct harp_mac_key *key, const uint8_t *wire, uint32_t bytes, uint64_t number) {
  struct harp_be64 tag;
  memcpy(&tag, wire + bytes, sizeof tag);
  return (packet_tag(key, wire, bytes, number) ^ harp_from_be64(tag)) == 0; /* all bits: constant time */
}
