/* SPDX-License-Identifier: Apache-2.0 */
/* The MACs of packets and records of a session with HARP_AUTH=mac; docs/reference/wire.md is the normative
 * text.
 *
 * A MAC is SipHash-2-4 of the message's POLYVAL and of what is never the same for two messages of a
 * direction: packet number, path and type; with its length. This is a universal hash under a pseudorandom
 * function with a nonce (Wegman and Carter 1981; Black et al., "UMAC", CRYPTO 1999, section 1.3). A forgery
 * under a nonce that was in use has to have the POLYVAL of the true message, which one of n blocks has for
 * n of 2^128 keys; under any other its MAC is a random number. So each attempt succeeds with a probability of
 * 2^-64 + n 2^-128, n at most 2^15, as long as SipHash-2-4 is a pseudorandom function. The hash itself never
 * leaves the process; where a nonce were used twice, nothing would follow but that both messages have one
 * POLYVAL.
 *
 * Pure functions of their arguments; any thread. */
#ifndef HARP_MAC_H
#define HARP_MAC_H

#include "wire/polyval.h"
#include "wire/siphash.h"

enum { HARP_MAC_BYTES = 8 };

/* The keys of one direction. */
struct harp_mac_secret {
  uint8_t hash[HARP_POLYVAL_BYTES];    /* the key of POLYVAL */
  uint8_t tag[HARP_SIPHASH_KEY_BYTES]; /* the key of SipHash */
};

struct harp_mac_key {
  struct harp_polyval_key hash;
  uint8_t tag[HARP_SIPHASH_KEY_BYTES];
};

/* What distinguishes a message from all others of its direction. */
struct harp_mac_nonce {
  uint64_t number;
  uint8_t path, type;
};

/* A message that comes in pieces; begins as zeros. */
struct harp_mac_state {
  uint8_t sum[HARP_POLYVAL_BYTES];
  uint8_t rest[HARP_POLYVAL_BYTES]; /* the bytes since the last whole block */
  uint32_t bytes;
};

void harp_mac_key_init(struct harp_mac_key *key, const struct harp_mac_secret *secret);

/* Continues a message. */
void harp_mac_add(const struct harp_mac_key *key, struct harp_mac_state *state, const void *data,
                  uint32_t bytes);

/* Returns the MAC of a message that is complete. */
uint64_t harp_mac_end(const struct harp_mac_key *key, struct harp_mac_state *state,
                      struct harp_mac_nonce nonce);

/* Writes the MAC of an encoded packet of `bytes` bytes behind it. Returns the bytes with the MAC. */
uint32_t harp_mac_seal(const struct harp_mac_key *key, uint8_t *wire, uint32_t bytes, uint64_t number);

/* Returns whether the MAC behind an encoded packet of `bytes` bytes is right. */
bool harp_mac_ok(const struct harp_mac_key *key, const uint8_t *wire, uint32_t bytes, uint64_t number);

#endif
