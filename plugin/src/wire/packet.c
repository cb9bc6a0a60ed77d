/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/packet.h"

#include <string.h>

#include "base/assert.h"
#include "wire/crc32c.h"

/* Names the oldest and newest wire version in the file (harpctl
 * preflight). */
static const char mark[] HARP_KEPT = "@(#)HARP-WIRE 1-1";
_Static_assert(HARP_WIRE_VERSION_MIN == 1 && HARP_WIRE_VERSION == 1, "the mark above names them");

static enum harp_drop decode_data(const uint8_t *wire, size_t bytes, struct harp_packet *p) {
  struct harp_wire_data h;
  memcpy(&h, wire, sizeof h);
  p->data.time = harp_from_be32(h.time);
  p->data.message = harp_from_be32(h.message);
  p->data.line = harp_from_be32(h.line);
  p->data.offset = harp_from_be32(h.offset);
  p->data.size = harp_from_be32(h.size);
  p->data.length = harp_from_be16(h.length);
  p->data.stream = harp_from_be16(h.stream);
  p->data.payload = wire + sizeof h;
  if (p->data.length > bytes - sizeof h) return HARP_DROP_SHORT;
  if (p->data.length > HARP_PACKET_MAX_PAYLOAD_BYTES) return HARP_DROP_FIELD;
  if (p->type == HARP_PACKET_PROBE) return HARP_DROP_NONE;
  return harp_packet_check_data(p) ? HARP_DROP_NONE : HARP_DROP_FIELD;
}

/* Bytes of ranges and credits. */
static size_t ack_body_bytes(const struct harp_packet *p) {
  return p->ack.range_count * (size_t)HARP_ACK_RANGE_BYTES +
         p->ack.credit_count * (size_t)HARP_ACK_CREDIT_BYTES;
}

static enum harp_drop decode_ack(const uint8_t *wire, size_t bytes, struct harp_packet *p) {
  struct harp_wire_ack h;
  memcpy(&h, wire, sizeof h);
  p->ack.echo_time = harp_from_be32(h.echo_time);
  p->ack.echo_delay = harp_from_be32(h.echo_delay);
  p->ack.time = harp_from_be32(h.time);
  p->ack.window_bytes = (uint32_t)harp_from_be16(h.window) * HARP_WINDOW_UNIT_BYTES;
  p->ack.range_count = h.range_count;
  p->ack.credit_count = h.credit_count;
  p->ack.ce_bytes = harp_from_be32(h.ce_bytes);
  if (p->ack.range_count > HARP_RANGES_MAX || p->ack.credit_count > HARP_ACK_CREDITS_MAX)
    return HARP_DROP_FIELD;
  if (ack_body_bytes(p) > bytes - sizeof h) return HARP_DROP_SHORT;
  for (uint32_t i = 0; i < p->ack.range_count; i++) {
    struct harp_wire_ack_range r;
    memcpy(&r, wire + sizeof h + i * sizeof r, sizeof r);
    p->ack.ranges[i].begin = harp_from_be32(r.begin);
    p->ack.ranges[i].end = harp_from_be32(r.end);
  }
  wire += sizeof h + p->ack.range_count * sizeof(struct harp_wire_ack_range);
  for (uint32_t i = 0; i < p->ack.credit_count; i++) {
    struct harp_wire_ack_credit c;
    memcpy(&c, wire + i * sizeof c, sizeof c);
    p->ack.credits[i] = (struct harp_credit){harp_from_be16(c.stream), harp_from_be32(c.posted)};
  }
  return HARP_DROP_NONE;
}

enum harp_drop harp_packet_decode(const uint8_t *wire, size_t bytes, struct harp_packet *p) {
  struct harp_wire_prefix h;
  if (bytes < sizeof h) return HARP_DROP_SHORT;
  memcpy(&h, wire, sizeof h);
  if (h.version != HARP_WIRE_VERSION) return HARP_DROP_VERSION;
  p->type = (enum harp_packet_type)h.type;
  p->flags = h.flags;
  p->path = h.path;
  p->token = harp_from_be64(h.token);
  p->number = harp_from_be32(h.number);
  p->detour = p->ce = false;
  switch (h.type) {
  case HARP_PACKET_DATA:
  case HARP_PACKET_PROBE:
    return bytes < HARP_DATA_HEADER_BYTES ? HARP_DROP_SHORT : decode_data(wire, bytes, p);
  case HARP_PACKET_ACK:
    return bytes < HARP_ACK_HEADER_BYTES ? HARP_DROP_SHORT : decode_ack(wire, bytes, p);
  default:
    return HARP_DROP_TYPE;
  }
}

size_t harp_packet_crc_bytes(const struct harp_packet *p) {
  size_t bytes = p->type == HARP_PACKET_ACK ? HARP_ACK_HEADER_BYTES + ack_body_bytes(p)
                                            : HARP_DATA_HEADER_BYTES + (size_t)p->data.length;
  return bytes - HARP_CRC_FROM_BYTE;
}

bool harp_packet_crc_ok(const uint8_t *wire, const struct harp_packet *p, uint32_t seed, uint64_t number) {
  struct harp_be32 crc;
  memcpy(&crc, wire, sizeof crc);
  return harp_crc32c(harp_packet_seed(seed, number), wire + HARP_CRC_FROM_BYTE, harp_packet_crc_bytes(p)) ==
         harp_from_be32(crc);
}

bool harp_packet_crc_ok_copy(const uint8_t *wire, const struct harp_packet *p, uint32_t seed, uint64_t number,
                             uint8_t *dst) {
  struct harp_be32 expected;
  memcpy(&expected, wire, sizeof expected);
  uint32_t crc = harp_crc32c(harp_packet_seed(seed, number), wire + HARP_CRC_FROM_BYTE,
                             HARP_DATA_HEADER_BYTES - HARP_CRC_FROM_BYTE);
  return harp_crc32c_copy(crc, dst, p->data.payload, p->data.length) == harp_from_be32(expected);
}

static struct harp_wire_prefix prefix_of(const struct harp_packet *f, uint64_t number) {
  return (struct harp_wire_prefix){
      .version = HARP_WIRE_VERSION,
      .type = (uint8_t)f->type,
      .flags = f->flags,
      .path = f->path,
      .token = harp_to_be64(f->token),
      .number = harp_to_be32((uint32_t)number),
  };
}

/* Writes header bytes from HARP_CRC_FROM_BYTE on, and returns their CRC. */
static uint32_t put_header(uint8_t *wire, const void *header, size_t bytes, uint32_t seed, uint64_t number) {
  memcpy(wire, header, bytes);
  return harp_crc32c(harp_packet_seed(seed, number), wire + HARP_CRC_FROM_BYTE, bytes - HARP_CRC_FROM_BYTE);
}

static void put_crc(uint8_t *wire, uint32_t crc) {
  struct harp_be32 be = harp_to_be32(crc);
  memcpy(wire, &be, sizeof be);
}

static uint32_t put_data_header(uint8_t *wire, const struct harp_packet *f, uint64_t number, uint32_t seed) {
  struct harp_wire_data h = {
      .prefix = prefix_of(f, number),
      .time = harp_to_be32(f->data.time),
      .message = harp_to_be32(f->data.message),
      .line = harp_to_be32(f->data.line),
      .offset = harp_to_be32(f->data.offset),
      .size = harp_to_be32(f->data.size),
      .length = harp_to_be16((uint16_t)f->data.length),
      .stream = harp_to_be16(f->data.stream),
  };
  HARP_ASSERT(f->data.length <= HARP_PACKET_MAX_PAYLOAD_BYTES);
  return put_header(wire, &h, sizeof h, seed, number);
}

void harp_packet_encode_data(uint8_t *wire, const struct harp_packet *fields, uint64_t number, uint32_t seed,
                             const uint8_t *payload) {
  uint32_t crc = put_data_header(wire, fields, number, seed);
  if (fields->data.length)
    crc = harp_crc32c_copy(crc, wire + HARP_DATA_HEADER_BYTES, payload, fields->data.length);
  put_crc(wire, crc);
}

void harp_packet_encode_data_header(uint8_t *wire, const struct harp_packet *fields, uint64_t number,
                                    uint32_t seed, const uint8_t *payload) {
  uint32_t crc = put_data_header(wire, fields, number, seed);
  put_crc(wire, fields->data.length ? harp_crc32c(crc, payload, fields->data.length) : crc);
}

void harp_packet_encode_probe(uint8_t *wire, const struct harp_packet *fields, uint64_t number,
                              uint32_t seed) {
  uint32_t crc = put_data_header(wire, fields, number, seed);
  memset(wire + HARP_DATA_HEADER_BYTES, 0, fields->data.length);
  put_crc(wire, harp_crc32c(crc, wire + HARP_DATA_HEADER_BYTES, fields->data.length));
}

size_t harp_packet_encode_ack(uint8_t *wire, const struct harp_packet *fields, uint64_t number,
                              uint32_t seed) {
  uint8_t h[HARP_ACK_MAX_BYTES], *at = h + HARP_ACK_HEADER_BYTES;
  HARP_ASSERT(fields->ack.range_count <= HARP_RANGES_MAX && fields->ack.credit_count <= HARP_ACK_CREDITS_MAX);
  struct harp_wire_ack head = {
      .prefix = prefix_of(fields, number),
      .echo_time = harp_to_be32(fields->ack.echo_time),
      .echo_delay = harp_to_be32(fields->ack.echo_delay),
      .time = harp_to_be32(fields->ack.time),
      .window = harp_to_be16((uint16_t)(fields->ack.window_bytes / HARP_WINDOW_UNIT_BYTES)),
      .range_count = (uint8_t)fields->ack.range_count,
      .credit_count = (uint8_t)fields->ack.credit_count,
      .ce_bytes = harp_to_be32(fields->ack.ce_bytes),
  };
  memcpy(h, &head, sizeof head);
  for (uint32_t i = 0; i < fields->ack.range_count; i++, at += HARP_ACK_RANGE_BYTES) {
    struct harp_wire_ack_range r = {harp_to_be32(fields->ack.ranges[i].begin),
                                    harp_to_be32(fields->ack.ranges[i].end)};
    memcpy(at, &r, sizeof r);
  }
  for (uint32_t i = 0; i < fields->ack.credit_count; i++, at += HARP_ACK_CREDIT_BYTES) {
    struct harp_wire_ack_credit c = {.posted = harp_to_be32(fields->ack.credits[i].posted),
                                     .stream = harp_to_be16(fields->ack.credits[i].stream)};
    memcpy(at, &c, sizeof c);
  }
  size_t bytes = (size_t)(at - h);
  put_crc(wire, put_header(wire, h, bytes, seed, number));
  return bytes;
}
