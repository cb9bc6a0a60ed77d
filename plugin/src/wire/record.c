/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/record.h"

#include <string.h>

#include "wire/crc32c.h"
#include "wire/siphash.h"

static enum harp_drop decode_data(const struct harp_wire_record *h, struct harp_record *r) {
  struct harp_packet *p = &r->packet;
  p->data.time = harp_from_be32(h->time);
  p->data.message = harp_from_be32(h->message);
  p->data.line = harp_from_be32(h->line);
  p->data.offset = harp_from_be32(h->offset);
  p->data.size = harp_from_be32(h->size);
  p->data.length = r->length;
  p->data.stream = harp_from_be16(h->stream);
  p->data.payload = NULL;
  if (p->type == HARP_PACKET_PROBE) return r->length ? HARP_DROP_FIELD : HARP_DROP_NONE;
  return harp_packet_check_data(p) ? HARP_DROP_NONE : HARP_DROP_FIELD;
}

enum harp_drop harp_record_decode(const uint8_t *head, struct harp_record *r) {
  struct harp_wire_record h;
  memcpy(&h, head, sizeof h);
  if (h.prefix.version != HARP_WIRE_VERSION) return HARP_DROP_VERSION;
  *r = (struct harp_record){.packet = {.type = (enum harp_packet_type)h.prefix.type,
                                       .flags = h.prefix.flags,
                                       .path = h.prefix.path,
                                       .token = harp_from_be64(h.prefix.token),
                                       .number = harp_from_be32(h.prefix.number)},
                            .length = harp_from_be32(h.length),
                            .payload_crc = harp_from_be32(h.payload_crc)};
  r->payload_mac = (uint64_t)r->payload_crc << 32 | harp_from_be32(h.payload_mac);
  switch (h.prefix.type) {
  case HARP_PACKET_DATA:
  case HARP_PACKET_PROBE:
    return r->length > HARP_RECORD_MAX_BYTES ? HARP_DROP_FIELD : decode_data(&h, r);
  case HARP_PACKET_ACK:
    return r->length > HARP_ACK_MAX_BYTES + HARP_MAC_BYTES || r->length < HARP_ACK_HEADER_BYTES
               ? HARP_DROP_FIELD
               : HARP_DROP_NONE;
  case HARP_PACKET_JOIN:
    return r->length ? HARP_DROP_FIELD : HARP_DROP_NONE;
  default:
    return HARP_DROP_TYPE;
  }
}

static uint32_t head_crc(const uint8_t *head, uint32_t seed, uint64_t number) {
  return harp_crc32c(harp_packet_seed(seed, number), head + HARP_CRC_FROM_BYTE,
                     HARP_RECORD_HEAD_BYTES - HARP_CRC_FROM_BYTE);
}

bool harp_record_head_ok(const uint8_t *head, uint32_t seed, uint64_t number) {
  struct harp_be32 crc;
  memcpy(&crc, head, sizeof crc);
  return head_crc(head, seed, number) == harp_from_be32(crc);
}

/* Writes the head, with its CRC. */
static void seal_head(uint8_t *head, const struct harp_wire_record *h, uint32_t seed, uint64_t number) {
  memcpy(head, h, sizeof *h);
  struct harp_be32 crc = harp_to_be32(head_crc(head, seed, number));
  memcpy(head, &crc, sizeof crc);
}

static struct harp_wire_record record_of(const struct harp_packet *f, uint64_t number) {
  return (struct harp_wire_record){.prefix = {.version = HARP_WIRE_VERSION,
                                              .type = (uint8_t)f->type,
                                              .flags = f->flags,
                                              .path = f->path,
                                              .token = harp_to_be64(f->token),
                                              .number = harp_to_be32((uint32_t)number)}};
}

void harp_record_encode(uint8_t head[HARP_RECORD_HEAD_BYTES], const struct harp_packet *f, uint32_t length,
                        uint32_t payload_crc, uint64_t number, uint32_t seed) {
  struct harp_wire_record h = record_of(f, number);
  h.length = harp_to_be32(length);
  h.payload_crc = harp_to_be32(payload_crc);
  if (f->type == HARP_PACKET_DATA || f->type == HARP_PACKET_PROBE) {
    h.time = harp_to_be32(f->data.time);
    h.message = harp_to_be32(f->data.message);
    h.line = harp_to_be32(f->data.line);
    h.offset = harp_to_be32(f->data.offset);
    h.size = harp_to_be32(f->data.size);
    h.stream = harp_to_be16(f->data.stream);
  }
  seal_head(head, &h, seed, number);
}

/* Computes the MAC of a head. */
static void head_mac(const struct harp_wire_record *h, const struct harp_mac_key *key, uint64_t number,
                     uint8_t mac[HARP_MAC_BYTES]) {
  enum { FIELDS_BYTES = offsetof(struct harp_wire_record, proof) - HARP_CRC_FROM_BYTE };
  uint8_t input[FIELDS_BYTES + sizeof(struct harp_be64)];
  struct harp_be64 be = harp_to_be64(number);
  memcpy(input, (const uint8_t *)h + HARP_CRC_FROM_BYTE, FIELDS_BYTES);
  memcpy(input + FIELDS_BYTES, &be, sizeof be);
  struct harp_be64 tag = harp_to_be64(harp_siphash(key->tag, input, sizeof input));
  memcpy(mac, &tag, sizeof tag);
}

void harp_record_seal(uint8_t head[HARP_RECORD_HEAD_BYTES], const struct harp_mac_key *key,
                      uint64_t payload_mac, uint64_t number, uint32_t seed) {
  struct harp_wire_record h;
  memcpy(&h, head, sizeof h);
  if (h.prefix.type == HARP_PACKET_DATA) {
    h.payload_crc = harp_to_be32((uint32_t)(payload_mac >> 32));
    h.payload_mac = harp_to_be32((uint32_t)payload_mac);
  }
  head_mac(&h, key, number, h.proof);
  seal_head(head, &h, seed, number);
}

bool harp_record_is_authentic(const uint8_t *head, const struct harp_mac_key *key, uint64_t number) {
  struct harp_wire_record h;
  uint8_t mac[HARP_MAC_BYTES];
  memcpy(&h, head, sizeof h);
  head_mac(&h, key, number, mac);
  return harp_control_mac_equal(mac, h.proof);
}

/* Computes the proof of a JOIN: the MAC of all fields before it but the CRC. */
static void join_proof(const struct harp_wire_record *h, const uint8_t key[HARP_MAC_KEY_BYTES],
                       uint8_t proof[HARP_CONTROL_MAC_BYTES]) {
  const uint8_t *from = (const uint8_t *)h + HARP_CRC_FROM_BYTE;
  size_t bytes = offsetof(struct harp_wire_record, proof) - HARP_CRC_FROM_BYTE;
  struct harp_be64 mac = harp_to_be64(harp_siphash(key, from, bytes));
  memcpy(proof, &mac, sizeof mac);
}

void harp_record_encode_join(uint8_t head[HARP_RECORD_HEAD_BYTES], uint64_t token, unsigned path,
                             uint32_t number, uint32_t seed, const uint8_t key[HARP_MAC_KEY_BYTES]) {
  struct harp_packet fields = {.type = HARP_PACKET_JOIN, .path = (uint8_t)path, .token = token};
  struct harp_wire_record h = record_of(&fields, number);
  join_proof(&h, key, h.proof);
  seal_head(head, &h, seed, number);
}

bool harp_record_join_ok(const uint8_t *head, uint32_t seed, const uint8_t key[HARP_MAC_KEY_BYTES]) {
  struct harp_wire_record h;
  uint8_t proof[HARP_CONTROL_MAC_BYTES];
  memcpy(&h, head, sizeof h);
  join_proof(&h, key, proof);
  return harp_record_head_ok(head, seed, harp_from_be32(h.prefix.number)) &&
         harp_control_mac_equal(proof, h.proof);
}
