/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on the control connection: framing, layout, encoding, decoding, MAC. docs/reference/wire.md is
 * normative.
 *
 * Owns no state. Called by the handshake (proto/handshake.c) and afterwards, for PING, PONG and FINAL, by the
 * engine that owns the connection. No I/O, no allocation; nothing that arrives may trip an assert here.
 *
 * Frame: header (16 B), body, MAC (8 B). The MAC is SipHash-2-4 over header and body, its number written
 * big-endian. The framing is the same in every wire version, so that peers of different versions can refuse
 * each other with a reason. */
#ifndef HARP_CONTROL_H
#define HARP_CONTROL_H

#include "base/base.h"
#include "base/endian.h"

enum {
  HARP_CONTROL_MAGIC = 0x48415250, /* "HARP" */
  HARP_CONTROL_HEADER_BYTES = 16,
  HARP_CONTROL_MAC_BYTES = 8,
  HARP_CONTROL_MIN_BYTES = HARP_CONTROL_HEADER_BYTES + HARP_CONTROL_MAC_BYTES,
  HARP_CONTROL_MAX_BYTES = 1024, /* the most bytes of a frame: they are read before the MAC is checked */
  HARP_SECRET_BYTES = 16,
  HARP_NONCE_BYTES = 16,
  HARP_MAC_KEY_BYTES = 16,
  HARP_ENDPOINT_ENIS_MAX = 8,
  HARP_ENDPOINT_PORTS_MAX = 16,
  HARP_ENDPOINT_NAME_BYTES = 64,
  HARP_ENDPOINT_BUILD_BYTES = 48,
  HARP_ENDPOINT_PATHS_MAX = 256,      /* a packet names its path in one byte */
  HARP_ENDPOINT_MTU_MIN_BYTES = 1280, /* IPv6's; the smallest packets fit it */
  HARP_ENDPOINT_SPEED_MBPS = 100,     /* the unit of an ENI's speed */
};

enum harp_control_type {
  HARP_CONTROL_HELLO = 1,
  HARP_CONTROL_WELCOME = 2,
  HARP_CONTROL_CONFIRM = 3,
  HARP_CONTROL_REFUSE = 4,
  HARP_CONTROL_PING = 5,
  HARP_CONTROL_PONG = 6,
  HARP_CONTROL_FINAL = 7,
  HARP_CONTROL_OPEN = 8,
  HARP_CONTROL_OPENED = 9,
  HARP_CONTROL_CLOSE = 10,
  HARP_CONTROL_WANT = 11,
  HARP_CONTROL_ADDRESS = 12,
};

/* What packets and records have besides checksums. Both sides must require the same. */
enum harp_auth_kind {
  HARP_AUTH_KIND_NONE = 0,
  HARP_AUTH_KIND_MAC = 1, /* wire/mac.h */
};

/* Why a handshake, or the opening of a stream, has failed. VERSION, ENDPOINT, BUSY, LISTENER, LIMIT, CROSSED,
 * PATHS, FILES, NO_MACS and MACS are also the reasons that a REFUSE carries; SECRET, BUSY to LIMIT and MEMORY
 * those of an OPENED. */
enum harp_refusal {
  HARP_REFUSAL_NONE = 0,
  HARP_REFUSAL_NOT_HARP = 1, /* wrong magic, length or order: another program, or a scanner */
  HARP_REFUSAL_SECRET = 2,   /* wrong MAC: the sender does not have the handle's secret */
  HARP_REFUSAL_VERSION = 3,  /* no wire version in common */
  HARP_REFUSAL_ENDPOINT = 4, /* invalid endpoint (no address, no port, counts out of range) */
  HARP_REFUSAL_PEER = 5,     /* the peer refused us; its reason is in peer_refusal */
  HARP_REFUSAL_BUSY = 6,     /* too many connections wait for accept */
  HARP_REFUSAL_LISTENER = 7, /* the listener is closed */
  HARP_REFUSAL_STREAM = 8,   /* the stream is open, or out of range */
  HARP_REFUSAL_LIMIT = 9,    /* the engine has its maximum of connections */
  HARP_REFUSAL_CROSSED = 10, /* the server connects to the client itself, and that connect wins */
  HARP_REFUSAL_MEMORY = 11,  /* no memory for the stream */
  HARP_REFUSAL_PATHS = 12,   /* no path is possible: no kind of carrier, or no address family, in common */
  HARP_REFUSAL_FILES = 13,   /* the process has no files left */
  HARP_REFUSAL_NO_MACS = 14, /* the client has HARP_AUTH=off, the server mac */
  HARP_REFUSAL_MACS = 15,    /* the client has HARP_AUTH=mac, the server off */
};

/* ---- layout ---- */

struct harp_wire_control {
  struct harp_be32 magic;
  uint8_t type;
  uint8_t reserved;
  struct harp_be16 length; /* bytes of the whole frame, header and MAC included */
  struct harp_be32 count;  /* 0 in the handshake; after it 0, 1, ... per direction */
  struct harp_be32 reserved2;
} __attribute__((packed, aligned(4)));

struct harp_wire_endpoint {
  struct harp_be64 token;
  struct harp_be32 first_line;
  struct harp_be32 first_message;
  struct harp_be32 first_number;
  struct harp_be32 window_bytes;
  struct harp_be16 path_count;
  struct harp_be16 eni_count;
  struct harp_be32 pid;
  uint8_t name[HARP_ENDPOINT_NAME_BYTES];
} __attribute__((packed, aligned(4)));

struct harp_wire_eni {
  uint8_t family;
  uint8_t port_count;
  struct harp_be16 mtu;
  struct harp_be16 tcp_port;
  struct harp_be16 speed; /* the speed in HARP_ENDPOINT_SPEED_MBPS; 0: unknown */
  uint8_t addr[16];
  struct harp_be16 ports[HARP_ENDPOINT_PORTS_MAX];
} __attribute__((packed, aligned(4)));

struct harp_wire_build {
  uint8_t version[HARP_ENDPOINT_BUILD_BYTES];
} __attribute__((packed, aligned(4)));

/* The ports of ENIs, in their order, that accept connections without data. */
struct harp_wire_answers {
  struct harp_be16 ports[HARP_ENDPOINT_ENIS_MAX];
} __attribute__((packed, aligned(4)));

/* Body of HELLO and WELCOME; eni_count times struct harp_wire_eni follow, one struct harp_wire_build, and one
 * struct harp_wire_answers where it is not zero. */
struct harp_wire_hello {
  uint8_t version_min;
  uint8_t version_max;
  uint8_t version; /* WELCOME: the chosen one */
  uint8_t auth;    /* enum harp_auth_kind */
  struct harp_be32 attempt;
  uint8_t nonce[HARP_NONCE_BYTES];
  struct harp_wire_endpoint endpoint;
} __attribute__((packed, aligned(4)));

struct harp_wire_refuse {
  uint8_t version_min;
  uint8_t version_max;
  struct harp_be16 reason;
  struct harp_be32 reserved;
  /* The MAC of the refused HELLO: shows that this is not a replay. */
  uint8_t hello_mac[HARP_CONTROL_MAC_BYTES];
} __attribute__((packed, aligned(4)));

struct harp_wire_final {
  struct harp_be32 reason;
  struct harp_be32 reserved;
} __attribute__((packed, aligned(4)));

struct harp_wire_open {
  struct harp_be16 stream;
  struct harp_be16 port; /* TCP, of the listener */
  struct harp_be32 first_line;
  struct harp_be32 first_message;
  struct harp_be32 attempt;
  uint8_t proof[HARP_CONTROL_MAC_BYTES];
} __attribute__((packed, aligned(4)));

struct harp_wire_opened {
  struct harp_be16 stream;
  struct harp_be16 refusal; /* 0: it is open */
  struct harp_be32 reserved;
} __attribute__((packed, aligned(4)));

struct harp_wire_close {
  struct harp_be16 stream;
  struct harp_be16 is_sender;
  struct harp_be32 reason;
  struct harp_be32 delivered;
  struct harp_be32 detail[2];
} __attribute__((packed, aligned(4)));

struct harp_wire_want {
  struct harp_be64 paths;
} __attribute__((packed, aligned(4)));

struct harp_wire_address {
  struct harp_be16 index;
  struct harp_be16 answer_port;
  struct harp_wire_eni eni;
} __attribute__((packed, aligned(4)));

_Static_assert(sizeof(struct harp_wire_control) == HARP_CONTROL_HEADER_BYTES, "control header");
_Static_assert(sizeof(struct harp_wire_endpoint) == 96, "endpoint");
_Static_assert(sizeof(struct harp_wire_eni) == 56, "ENI of an endpoint");
_Static_assert(sizeof(struct harp_wire_build) == HARP_ENDPOINT_BUILD_BYTES, "build of an endpoint");
_Static_assert(sizeof(struct harp_wire_answers) == 16, "answers of an endpoint");
_Static_assert(sizeof(struct harp_wire_hello) == 120, "HELLO and WELCOME");
_Static_assert(sizeof(struct harp_wire_refuse) == 16, "REFUSE");
_Static_assert(sizeof(struct harp_wire_final) == 8, "FINAL");
_Static_assert(sizeof(struct harp_wire_open) == 24, "OPEN");
_Static_assert(sizeof(struct harp_wire_opened) == 8, "OPENED");
_Static_assert(sizeof(struct harp_wire_close) == 20, "CLOSE");
_Static_assert(sizeof(struct harp_wire_want) == 8, "WANT");
_Static_assert(sizeof(struct harp_wire_address) == 60, "ADDRESS");

enum {
  HARP_CONTROL_HELLO_MAX_BYTES = HARP_CONTROL_MIN_BYTES + (int)sizeof(struct harp_wire_hello) +
                                 HARP_ENDPOINT_ENIS_MAX * (int)sizeof(struct harp_wire_eni) +
                                 (int)sizeof(struct harp_wire_build) + (int)sizeof(struct harp_wire_answers),
  HARP_CONTROL_REFUSE_BYTES = HARP_CONTROL_MIN_BYTES + (int)sizeof(struct harp_wire_refuse),
  HARP_CONTROL_PING_BYTES = HARP_CONTROL_MIN_BYTES,
  HARP_CONTROL_FINAL_BYTES = HARP_CONTROL_MIN_BYTES + (int)sizeof(struct harp_wire_final),
  HARP_CONTROL_OPEN_BYTES = HARP_CONTROL_MIN_BYTES + (int)sizeof(struct harp_wire_open),
  HARP_CONTROL_OPENED_BYTES = HARP_CONTROL_MIN_BYTES + (int)sizeof(struct harp_wire_opened),
  HARP_CONTROL_CLOSE_BYTES = HARP_CONTROL_MIN_BYTES + (int)sizeof(struct harp_wire_close),
  HARP_CONTROL_WANT_BYTES = HARP_CONTROL_MIN_BYTES + (int)sizeof(struct harp_wire_want),
  HARP_CONTROL_ADDRESS_BYTES = HARP_CONTROL_MIN_BYTES + (int)sizeof(struct harp_wire_address),
};
_Static_assert((int)HARP_CONTROL_HELLO_MAX_BYTES <= (int)HARP_CONTROL_MAX_BYTES, "a HELLO fits a frame");

/* ---- decoded messages ---- */

/* MAC keys after the handshake, by direction. */
struct harp_control_keys {
  uint8_t tx[HARP_MAC_KEY_BYTES], rx[HARP_MAC_KEY_BYTES];
};

/* One ENI of an endpoint. */
struct harp_endpoint_eni {
  uint8_t family; /* 4 or 6 */
  /* It has no address yet. ADDRESS tells the address with the ports; only the count of these holds here. */
  bool is_unnumbered;
  uint8_t addr[16];    /* IPv4 in the first 4 bytes */
  uint16_t mtu;        /* bytes, L3 */
  uint32_t speed_mbps; /* whole units of HARP_ENDPOINT_SPEED_MBPS; 0: unknown */
  uint16_t tcp_port;   /* the port where it accepts tcp paths, host byte order; 0: it does not */
  /* The TCP port where it accepts connections while its process runs, without tcp paths; 0: none. */
  uint16_t answer_port;
  uint8_t port_count;
  uint16_t ports[HARP_ENDPOINT_PORTS_MAX]; /* UDP, host byte order in this struct */
};

/* One side of a connection, as it describes itself. */
struct harp_endpoint {
  uint64_t token;                                   /* the token of all packets to this side */
  uint32_t first_line, first_message, first_number; /* the client chooses them; 0 from the server */
  uint32_t attempt;      /* the attempt of the client's connect; 0 from the server */
  uint32_t window_bytes; /* initial receive window of each of this side's interfaces */
  uint8_t auth;          /* enum harp_auth_kind, or a kind that this side does not know */
  uint16_t path_count;   /* most paths that this side uses; the smaller of both counts */
  uint16_t eni_count;
  struct harp_endpoint_eni enis[HARP_ENDPOINT_ENIS_MAX];
  uint32_t pid;
  char name[HARP_ENDPOINT_NAME_BYTES];   /* host name, NUL-terminated: for messages to people */
  char build[HARP_ENDPOINT_BUILD_BYTES]; /* version of the software, NUL-terminated: for messages to people */
};

/* FINAL: the last message of a side that closes the connection in order. */
struct harp_final {
  uint32_t reason; /* enum harp_status of the error that ended this side; 0: an orderly close */
};

/* OPEN: a request to open a stream. */
struct harp_open {
  uint16_t stream;
  uint16_t port;                         /* TCP, identifies the listener */
  uint32_t first_line, first_message;    /* these name the connect */
  uint32_t attempt;                      /* the attempt of the connect */
  uint8_t proof[HARP_CONTROL_MAC_BYTES]; /* the proof: harp_control_open_proof */
};

/* OPENED: the answer to an OPEN. */
struct harp_opened {
  uint16_t stream;
  enum harp_refusal refusal; /* HARP_REFUSAL_NONE: it is open */
};

/* CLOSE: one side has closed its end of a stream. */
struct harp_close {
  uint16_t stream;
  bool is_sender;     /* the closing side is the stream's sender */
  uint32_t reason;    /* enum harp_status of the error that ended it; 0: an orderly close */
  uint32_t delivered; /* the first line that has not arrived, from the receiver */
  uint32_t detail[2]; /* reason HARP_ERR_USAGE: sizes of the send and of the receive */
};

/* WANT: the tcp paths that the server sends on or is about to, which the client keeps connected. */
struct harp_want {
  uint64_t paths; /* a bit each */
};

/* ADDRESS: an ENI that had no address in the endpoint has one. */
struct harp_numbered {
  uint16_t index; /* the index of the ENI in the endpoint */
  struct harp_endpoint_eni eni;
};

/* HELLO or WELCOME without the endpoint. */
struct harp_hello {
  uint8_t version_min, version_max;
  uint8_t version; /* WELCOME: the chosen one; HELLO: 0 */
  uint8_t nonce[HARP_NONCE_BYTES];
};

struct harp_refuse {
  uint8_t version_min, version_max; /* the versions of the refusing side */
  enum harp_refusal reason;         /* HARP_REFUSAL_PEER: unknown to this version */
  uint8_t hello_mac[HARP_CONTROL_MAC_BYTES];
};

/* A message after the handshake. */
struct harp_control_message {
  enum harp_control_type type; /* PING to ADDRESS */
  uint32_t count;
  union {
    struct harp_final final;
    struct harp_open open;
    struct harp_opened opened;
    struct harp_close close;
    struct harp_want want;
    struct harp_numbered numbered;
  };
};

/* ---- after the handshake ---- */

/* Writes a PING or PONG of HARP_CONTROL_PING_BYTES; returns its length. `count` numbers the sender's messages
 * of any type after the handshake, from 0. */
size_t harp_control_encode_ping(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count);
size_t harp_control_encode_pong(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count);

/* Writes a FINAL of HARP_CONTROL_FINAL_BYTES; returns its length. */
size_t harp_control_encode_final(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                 const struct harp_final *final);

/* Write an OPEN, OPENED, CLOSE, WANT or ADDRESS; return its length. */
size_t harp_control_encode_open(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                const struct harp_open *open);
size_t harp_control_encode_opened(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                  const struct harp_opened *opened);
size_t harp_control_encode_close(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                 const struct harp_close *close);
size_t harp_control_encode_want(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                const struct harp_want *want);
size_t harp_control_encode_address(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                   const struct harp_numbered *numbered);

/* Computes the proof that the sender of an OPEN has the listener's secret: 64-bit SipHash-2-4, keyed with the
 * secret, of a label, both tokens of the connection and the OPEN's other fields. */
void harp_control_open_proof(const struct harp_open *open, const uint8_t secret[HARP_SECRET_BYTES],
                             uint64_t opener_token, uint64_t listener_token,
                             uint8_t proof[HARP_CONTROL_MAC_BYTES]);

/* Compares two MACs or proofs in constant time. */
bool harp_control_mac_equal(const uint8_t a[HARP_CONTROL_MAC_BYTES], const uint8_t b[HARP_CONTROL_MAC_BYTES]);

/* Decodes the frame at the start of `bytes` bytes. Returns its length, 0 when it is not complete yet, or
 * -EBADMSG when it is no valid message after the handshake (as soon as the bytes so far show it) or its MAC
 * is wrong: then the caller closes the connection. The caller passes out->count to harp_control_count_ok. */
int harp_control_decode(const uint8_t *buf, size_t bytes, const uint8_t key[HARP_MAC_KEY_BYTES],
                        struct harp_control_message *out) HARP_MUST_CHECK;

/* Returns whether a count is at least `*next` of its direction, which starts at 0, and advances *next. Gaps
 * are valid: a sender may fail to send a message that it has numbered. */
static inline bool harp_control_count_ok(uint32_t *next, uint32_t count) {
  if (count < *next) return false;
  *next = count + 1;
  return true;
}

/* ---- framing and handshake messages, for proto/handshake.c ---- */

/* Checks magic and length of a frame of which `bytes` bytes are there. Returns the frame's length, 0 when
 * these are too few, or -EBADMSG when no frame begins like this. */
int harp_control_peek(const uint8_t *buf, size_t bytes) HARP_MUST_CHECK;

/* Returns the type of a frame of which at least 5 bytes are there. */
static inline unsigned harp_control_type_of(const uint8_t *buf) {
  return buf[offsetof(struct harp_wire_control, type)];
}

/* Writes header and MAC around a body of `body_bytes` bytes at out + HARP_CONTROL_HEADER_BYTES; returns the
 * frame's length. */
size_t harp_control_seal(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], enum harp_control_type type,
                         uint32_t count, size_t body_bytes);

/* Checks the MAC of a frame of `bytes` bytes in constant time. */
bool harp_control_mac_ok(const uint8_t *frame, size_t bytes, const uint8_t key[HARP_MAC_KEY_BYTES]);

/* Writes the body of HELLO or WELCOME; returns its length. The endpoint's counts must be within their
 * bounds. */
size_t harp_control_put_hello(uint8_t *body, const struct harp_hello *hello,
                              const struct harp_endpoint *endpoint);

/* Reads the version range that every HELLO, WELCOME and REFUSE of every version starts with. Returns false
 * when the body is too short for it. */
bool harp_control_get_versions(const uint8_t *body, size_t bytes, uint8_t *version_min, uint8_t *version_max);

/* Reads all but the endpoint of a HELLO or WELCOME of this version. Returns false when the body is too
 * short. */
bool harp_control_get_hello(const uint8_t *body, size_t bytes, struct harp_hello *hello);

/* Reads and checks the endpoint of a HELLO or WELCOME of this version. Returns false, with *endpoint
 * unspecified, when it is invalid. Replaces bytes of its texts that are not printable ASCII by '?'. */
bool harp_control_get_endpoint(const uint8_t *body, size_t bytes, struct harp_endpoint *endpoint);

/* Write and read the body of a REFUSE. An unknown reason is read as HARP_REFUSAL_PEER. */
size_t harp_control_put_refuse(uint8_t *body, const struct harp_refuse *refuse);
bool harp_control_get_refuse(const uint8_t *body, size_t bytes, struct harp_refuse *refuse);

#endif
