/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a tcp path: layout, encoding, decoding. docs/reference/wire.md is the normative text.
 *
 * A record is a head of HARP_RECORD_HEAD_BYTES and a payload of up to HARP_RECORD_MAX_BYTES. The head begins
 * like a datagram's header (packet.h); its CRC covers the head alone, so that it is checked before the
 * payload is read, and the head contains the payload's CRC-32C. The payload of an ACK record is an
 * acknowledgement datagram, with its MAC where there are MACs. The first record of a connection is a JOIN,
 * which identifies the session and authenticates its sender.
 *
 * Pure functions; no I/O, no allocation. */
#ifndef HARP_RECORD_H
#define HARP_RECORD_H

#include "wire/control.h"
#include "wire/mac.h"
#include "wire/packet.h"

enum {
  HARP_RECORD_HEAD_BYTES = 64,
  HARP_RECORD_MAX_LINES = 4096,
  HARP_RECORD_MAX_BYTES = HARP_RECORD_MAX_LINES * HARP_LINE_BYTES,
};

struct harp_wire_record {
  struct harp_wire_prefix prefix;
  struct harp_be32 time;
  struct harp_be32 message;
  struct harp_be32 line;
  struct harp_be32 offset;
  struct harp_be32 size;
  struct harp_be32 length;
  struct harp_be32 payload_crc;
  struct harp_be16 stream;
  uint8_t reserved[2];
  struct harp_be32 payload_mac;          /* where there are MACs, the lower half; payload_crc is the upper */
  uint8_t proof[HARP_CONTROL_MAC_BYTES]; /* the proof of a JOIN; the MAC of other heads, or zero */
} __attribute__((packed, aligned(4)));

_Static_assert(sizeof(struct harp_wire_record) == HARP_RECORD_HEAD_BYTES, "record head");

/* A decoded record: of DATA and PROBE the fields of `packet.data` but payload; of ACK and JOIN only its
 * prefix. */
struct harp_record {
  struct harp_packet packet;
  uint32_t length; /* bytes of payload that follow the head */
  uint32_t payload_crc;
  uint64_t payload_mac; /* the MAC of DATA, where there are MACs */
};

/* Decodes a head of HARP_RECORD_HEAD_BYTES. Returns HARP_DROP_NONE, or why it is invalid. Does not check the
 * CRC. */
enum harp_drop harp_record_decode(const uint8_t *head, struct harp_record *record) HARP_MUST_CHECK;

/* Checks a head's CRC against the direction's seed and the record's 64-bit number. */
bool harp_record_head_ok(const uint8_t *head, uint32_t seed, uint64_t number);

/* Returns whether the payload has a CRC. */
static inline bool harp_record_is_checked(const struct harp_record *record) {
  return record->packet.type != HARP_PACKET_DATA || !(record->packet.flags & HARP_FLAG_UNCHECKED);
}

/* Returns whether `crc` of the payload is the one in the head, if it has one. */
static inline bool harp_record_payload_ok(const struct harp_record *record, uint32_t crc) {
  return record->payload_crc == crc || !harp_record_is_checked(record);
}

/* Writes the head of a record of `length` bytes of payload whose CRC-32C is `payload_crc`. `fields` is as in
 * harp_packet_encode_data; of ACK and JOIN only its prefix counts. */
void harp_record_encode(uint8_t head[HARP_RECORD_HEAD_BYTES], const struct harp_packet *fields,
                        uint32_t length, uint32_t payload_crc, uint64_t number, uint32_t seed);

/* Writes the MACs of an encoded head and its payload, where records have these: the head's is SipHash-2-4 of
 * all fields before it but the CRC, and of its number. `payload_mac` is 0 but for DATA. */
void harp_record_seal(uint8_t head[HARP_RECORD_HEAD_BYTES], const struct harp_mac_key *key,
                      uint64_t payload_mac, uint64_t number, uint32_t seed);

/* Returns whether the MAC of a head is right. */
bool harp_record_is_authentic(const uint8_t *head, const struct harp_mac_key *key, uint64_t number);

/* Writes a JOIN. `number` counts the path's connection attempts from 0. The proof is SipHash-2-4 of all
 * fields before it, keyed with the control connection's key of this direction. */
void harp_record_encode_join(uint8_t head[HARP_RECORD_HEAD_BYTES], uint64_t token, unsigned path,
                             uint32_t number, uint32_t seed, const uint8_t key[HARP_MAC_KEY_BYTES]);

/* Checks the CRC and the proof of a decoded JOIN. */
bool harp_record_join_ok(const uint8_t *head, uint32_t seed, const uint8_t key[HARP_MAC_KEY_BYTES]);

#endif
