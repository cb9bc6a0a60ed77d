/* Messages on the control connection: framing, layout, encoding, decoding, MAC. docs/wire.md is normative.
 *
 * Used during the handshake (proto/handshake.c) and afterwards by the engine for PING, PONG and FINAL. No I/O. */
#ifndef HARP_CONTROL_H
#define HARP_CONTROL_H

#include "base/base.h"
#include "base/endian.h"

enum {
  HARP_CONTROL_MAGIC = 0x48415250, /* "HARP" */
  HARP_CONTROL_HEADER_BYTES = 16,
  HARP_CONTROL_MAX_BYTES = 1024, /* header and body; nobody may make us read more before the MAC is checked */
  HARP_SECRET_BYTES = 16,
  HARP_NONCE_BYTES = 16,
  HARP_MAC_KEY_BYTES = 16,
  HARP_ENDPOINT_ENIS_MAX = 8,
  HARP_ENDPOINT_PORTS_MAX = 16,
  HARP_ENDPOINT_NAME_BYTES = 64,
};

enum harp_control_type {
  HARP_CONTROL_HELLO = 1,
  HARP_CONTROL_WELCOME = 2,
  HARP_CONTROL_CONFIRM = 3,
  HARP_CONTROL_REFUSE = 4,
  HARP_CONTROL_PING = 5,
  HARP_CONTROL_PONG = 6,
  HARP_CONTROL_FINAL = 7,
};

/* MAC keys after the handshake: of what we send and of what we receive. */
struct harp_control_keys {
  uint8_t tx[HARP_MAC_KEY_BYTES], rx[HARP_MAC_KEY_BYTES];
};

/* One ENI of an endpoint. */
struct harp_endpoint_eni {
  uint8_t family;   /* 4 or 6 */
  uint8_t addr[16]; /* IPv4 in the first 4 bytes */
  uint16_t mtu;     /* bytes, L3 */
  uint16_t port_count;
  uint16_t ports[HARP_ENDPOINT_PORTS_MAX]; /* UDP, host byte order in this struct */
};

/* What each side tells about itself. */
struct harp_endpoint {
  uint64_t token;        /* packets to this side carry it */
  uint32_t first_line, first_message, first_number; /* the client's count; the server echoes zeros */
  uint32_t buffer_bytes; /* receive buffer of this side's sockets: bounds the flight on one path */
  uint16_t path_count;   /* paths this side is willing to use; the smaller one counts */
  uint16_t eni_count;
  struct harp_endpoint_eni enis[HARP_ENDPOINT_ENIS_MAX];
  uint32_t pid;
  char name[HARP_ENDPOINT_NAME_BYTES]; /* host name, NUL-terminated: for messages to people */
};

/* FINAL: the last word of a side that leaves in order. */
struct harp_final {
  uint32_t reason;    /* enum harp_status of an error that the peer should know; 0: an orderly close */
  uint32_t delivered; /* receiver: first line that has not arrived */
  uint32_t detail[2]; /* reason HARP_ERR_USAGE: sizes of the send and of the receive */
};

/* The body sizes and encode/decode functions are declared below; see docs/wire.md for the layout. */

