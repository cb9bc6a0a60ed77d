/* SPDX-License-Identifier: Apache-2.0 */
/* The datagrams of wire version 1: layout, encoding, decoding. docs/reference/wire.md is the normative text;
 * tests/meta compares its layouts with the offsets here. Called by the engine on every packet; does no I/O,
 * allocates nothing.
 *
 * One UDP datagram is one packet. Every packet starts with the same prefix; its CRC-32C covers everything
 * from byte 4 to the end of header and payload, starting from a seed that only the two peers know. */
#ifndef HARP_PACKET_H
#define HARP_PACKET_H

#include "base/counters.h"
#include "base/endian.h"
#include "base/linemap.h"
#include "base/ranges.h"

enum {
  HARP_WIRE_VERSION = 1,
  HARP_WIRE_VERSION_MIN = 1, /* the oldest supported */

  HARP_DATA_HEADER_BYTES = 44,
  HARP_ACK_HEADER_BYTES = 40,
  HARP_ACK_RANGE_BYTES = 8,
  HARP_ACK_CREDIT_BYTES = 8,
  HARP_ACK_CREDITS_MAX = 32, /* credits in one acknowledgement */
  HARP_CRC_FROM_BYTE = 4,    /* the CRC does not cover itself */

  HARP_PACKET_MAX_LINES = 69, /* 8832 B: what fits a 9000-byte MTU */
  HARP_PACKET_MIN_LINES = 8,  /* 1024 B: fits the smallest MTU that IPv6 allows, 1280 */
  HARP_PACKET_MAX_PAYLOAD_BYTES = HARP_PACKET_MAX_LINES * HARP_LINE_BYTES,
  HARP_PACKET_MAX_BYTES = HARP_DATA_HEADER_BYTES + HARP_PACKET_MAX_PAYLOAD_BYTES,

  HARP_TICK_NS = 64, /* unit of the time stamps on the wire */

  HARP_WINDOW_UNIT_BYTES = 1024, /* the unit of the window in an acknowledgement */
  /* Added to the size of each packet in flight: overhead of a packet in the kernel's receive buffer. */
  HARP_WINDOW_PACKET_BYTES = 1024,
  HARP_WINDOW_MIN_BYTES = 32 << 10, /* a small superframe, or three of the largest packets */
  HARP_WINDOW_MAX_BYTES = 32 << 20,
};

enum harp_packet_type {
  HARP_PACKET_DATA = 1,  /* payload of one message */
  HARP_PACKET_PROBE = 2, /* requests an acknowledgement; padded to probe a packet size */
  HARP_PACKET_ACK = 3,
  HARP_PACKET_JOIN = 4, /* first record of a tcp path's connection (record.h); no datagram */
};

enum harp_packet_flags {
  HARP_FLAG_ACK_SOON = 1,  /* requests an acknowledgement soon: see docs/reference/wire.md */
  HARP_FLAG_DETOUR = 2,    /* an ACK: this path's packets do not reach the receiver's AF_XDP queues */
  HARP_FLAG_CREDIT = 4,    /* a probe requests the credits of all streams */
  HARP_FLAG_UNCHECKED = 8, /* a DATA record: its payload has no CRC (record.h) */
  HARP_FLAG_SETTLED = /* Data and probes: all that was sent before the last packet with this flag is settled.
                       */
  16,
};

struct harp_wire_prefix {
  struct harp_be32 crc;
  uint8_t version;
  uint8_t type;
  uint8_t flags;
  uint8_t path;
  struct harp_be64 token;
  struct harp_be32 number;
} __attribute__((packed, aligned(4)));

struct harp_wire_data {
  struct harp_wire_prefix prefix;
  struct harp_be32 time;
  struct harp_be32 message;
  struct harp_be32 line;
  struct harp_be32 offset;
  struct harp_be32 size;
  struct harp_be16 length;
  struct harp_be16 stream;
} __attribute__((packed, aligned(4)));

struct harp_wire_ack {
  struct harp_wire_prefix prefix;
  struct harp_be32 echo_time;
  struct harp_be32 echo_delay;
  struct harp_be32 time;
  struct harp_be16 window;
  uint8_t range_count;
  uint8_t credit_count;
  struct harp_be32 ce_bytes;
} __attribute__((packed, aligned(4)));

struct harp_wire_ack_range {
  struct harp_be32 begin;
  struct harp_be32 end;
} __attribute__((packed, aligned(4)));

struct harp_wire_ack_credit {
  struct harp_be32 posted;
  struct harp_be16 stream;
  struct harp_be16 reserved;
} __attribute__((packed, aligned(4)));

_Static_assert(sizeof(struct harp_wire_prefix) == 20, "prefix");
_Static_assert(sizeof(struct harp_wire_data) == HARP_DATA_HEADER_BYTES, "data header");
_Static_assert(sizeof(struct harp_wire_ack) == HARP_ACK_HEADER_BYTES, "ack header");
_Static_assert(sizeof(struct harp_wire_ack_range) == HARP_ACK_RANGE_BYTES, "ack range");
_Static_assert(sizeof(struct harp_wire_ack_credit) == HARP_ACK_CREDIT_BYTES, "ack credit");

enum {
  HARP_ACK_MAX_BYTES = HARP_ACK_HEADER_BYTES + HARP_RANGES_MAX * HARP_ACK_RANGE_BYTES +
                       HARP_ACK_CREDITS_MAX * HARP_ACK_CREDIT_BYTES
};

/* The receiver of a stream has posted receives for all messages before `posted`. */
struct harp_credit {
  uint16_t stream;
  uint32_t posted;
};

/* A decoded packet. Numbers have the 32 bits of the wire; the connection extends them to 64. */
struct harp_packet {
  enum harp_packet_type type;
  uint8_t flags;
  uint8_t path;
  uint64_t token;
  uint32_t number;
  bool detour, ce; /* these are not on the wire: harp_rx_superframe has them */
  union {
    struct { /* DATA and PROBE */
      uint32_t time;
      uint32_t message;
      uint32_t line;
      uint32_t offset; /* bytes; a multiple of HARP_LINE_BYTES */
      uint32_t size;   /* bytes of the whole message */
      uint32_t length; /* bytes of payload */
      uint16_t stream;
      const uint8_t *payload; /* the payload, in the received buffer; borrowed */
    } data;
    struct {
      uint32_t echo_time;
      uint32_t echo_delay;
      uint32_t time;         /* the receiver's clock when it made the acknowledgement */
      uint32_t window_bytes; /* a multiple of HARP_WINDOW_UNIT_BYTES */
      uint32_t range_count, credit_count;
      uint32_t ce_bytes; /* the bytes of the path's packets that came marked as CE, since its start; wraps */
      struct {
        uint32_t begin, end;
      } ranges[HARP_RANGES_MAX];
      struct harp_credit credits[HARP_ACK_CREDITS_MAX];
    } ack;
  };
};

/* Decodes `bytes` bytes of any alignment. Returns HARP_DROP_NONE and fills *p, or the reason to drop the
 * packet. Checks all lengths and fields that need no connection state, but not the CRC. */
enum harp_drop harp_packet_decode(const uint8_t *wire, size_t bytes, struct harp_packet *p);

/* Returns whether the offset, length and size of a DATA packet fit together. */
static inline bool harp_packet_check_data(const struct harp_packet *p) {
  uint64_t end = (uint64_t)p->data.offset + p->data.length;
  if (p->data.offset % HARP_LINE_BYTES || end > p->data.size) return false;
  /* Only the last line of a message may be partial, and only an empty message has no payload. */
  if (end < p->data.size && p->data.length % HARP_LINE_BYTES) return false;
  return p->data.length || !p->data.size;
}

/* Returns how many bytes of a decoded packet its CRC covers, from byte HARP_CRC_FROM_BYTE. */
size_t harp_packet_crc_bytes(const struct harp_packet *p);

/* Checks the CRC of a decoded packet against the direction's seed and the packet's 64-bit number. */
bool harp_packet_crc_ok(const uint8_t *wire, const struct harp_packet *p, uint32_t seed, uint64_t number);

/* Does the same, and copies the payload of a decoded DATA packet to `dst` in the same pass, also when the CRC
 * is wrong. */
bool harp_packet_crc_ok_copy(const uint8_t *wire, const struct harp_packet *p, uint32_t seed, uint64_t number,
                             uint8_t *dst);

/* Returns the initial CRC of a packet: the direction's secret seed XOR the upper half of the packet number,
 * which is not on the wire, so that a packet of an earlier wrap of the number has a wrong CRC. */
static inline uint32_t harp_packet_seed(uint32_t seed, uint64_t number) {
  return seed ^ (uint32_t)(number >> 32);
}

/* Writes the data header to `wire` (HARP_DATA_HEADER_BYTES, any alignment) and copies the payload after it,
 * computing the CRC in the same pass. `fields` has everything but payload; payload may be NULL when
 * length is 0. */
void harp_packet_encode_data(uint8_t *wire, const struct harp_packet *fields, uint64_t number, uint32_t seed,
                             const uint8_t *payload);

/* Writes the data header alone; the payload follows it on the wire. */
void harp_packet_encode_data_header(uint8_t *wire, const struct harp_packet *fields, uint64_t number,
                                    uint32_t seed, const uint8_t *payload);

/* Writes a PROBE whose payload is `fields->data.length` zero bytes. */
void harp_packet_encode_probe(uint8_t *wire, const struct harp_packet *fields, uint64_t number,
                              uint32_t seed);

/* Writes an acknowledgement; returns its length, at most HARP_ACK_MAX_BYTES. */
size_t harp_packet_encode_ack(uint8_t *wire, const struct harp_packet *fields, uint64_t number,
                              uint32_t seed);

/* Converts nanoseconds to ticks of the wire. */
static inline uint32_t harp_ticks_from_ns(harp_ns ns) {
  return (uint32_t)(ns / HARP_TICK_NS);
}

/* Returns the lines of `bytes` of payload: at least one, so that an empty message has a place in the
 * sequence. */
static inline uint32_t harp_lines_of(uint32_t bytes) {
  return (bytes + HARP_LINE_BYTES - 1) / HARP_LINE_BYTES + !bytes;
}

#endif
