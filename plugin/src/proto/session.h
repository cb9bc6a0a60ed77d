/* SPDX-License-Identifier: Apache-2.0 */
/* The association of two engines: its keys, its state, and the dispatch of packets to its sending and its
 * receiving half. Sans-IO.
 *
 * Owns and alone writes struct harp_session, but for the list of records.c. Owned by one engine, called under
 * its lock. Rules:
 *
 *   1. OPEN -> FAILED or CLOSED; it keeps the first status.
 *   2. A packet is fed to a half only when the session is open, the path exists, and direction, CRC and MAC
 *      are right. Each failure counts a reason.
 *   3. A wrong head of a record ends its connection, since nothing behind such a head can be trusted. */
#ifndef HARP_SESSION_H
#define HARP_SESSION_H

#include "base/status.h"
#include "proto/recv.h"
#include "proto/send.h"
#include "wire/mac.h"
#include "wire/record.h"

enum harp_session_state {
  HARP_SESSION_OPEN,
  HARP_SESSION_FAILED, /* nothing more moves; every request gets the status */
  HARP_SESSION_CLOSED, /* buffers are gone; packets are dropped */
};

struct harp_session_keys {
  uint64_t tx_token, rx_token; /* the tokens in the packets that we send, and that we expect */
  uint32_t tx_seed, rx_seed;   /* the seeds of their CRCs */
};

/* The keys of the MACs, where both sides require these. */
struct harp_session_macs {
  bool is_on;
  struct harp_mac_secret tx, rx;
};

struct harp_records;

struct harp_session {
  enum harp_session_state state;
  enum harp_status status; /* the reason why it failed */
  bool has_macs;           /* every packet and record has a MAC */
  struct harp_session_keys keys;
  unsigned path_count;
  const struct harp_trace *trace;
  struct harp_counters *counters;
  struct harp_sender *sender;     /* the owner's memory; NULL: it sends nothing */
  struct harp_receiver *receiver; /* the owner's memory; NULL: it receives nothing */
  struct harp_records *reading;   /* the tcp paths whose payload is being read in place: records.c's list */
  struct harp_mac_key tx_mac, rx_mac; /* where it has MACs */
};

/* At least one of sender and receiver is given, initialised, with as many paths as the other. */
void harp_session_init(struct harp_session *c, const struct harp_session_keys *keys,
                       struct harp_sender *sender, struct harp_receiver *receiver);

/* Has all packets and records carry MACs, before the first of either. */
void harp_session_use_macs(struct harp_session *c, const struct harp_session_macs *macs);

/* Returns the bytes of the MAC behind each packet; 0: there is none. */
static inline uint32_t harp_session_mac_bytes(const struct harp_session *c) {
  return harp_likely(!c->has_macs) ? 0 : HARP_MAC_BYTES;
}

/* Writes the MAC behind an encoded packet, where the session has these. Returns the packet's bytes. */
static inline uint32_t harp_session_seal(const struct harp_session *c, uint8_t *wire, uint32_t bytes,
                                         uint64_t number) {
  return harp_likely(!c->has_macs) ? bytes : harp_mac_seal(&c->tx_mac, wire, bytes, number);
}

/* Sets where the session, its sender and its receiver trace; borrowed. */
void harp_session_set_trace(struct harp_session *c, const struct harp_trace *trace);

/* Feeds a decoded packet that carried our token: checks direction, path, CRC and MAC (over the `bytes` bytes
 * at `wire`), then hands it on. On HARP_DROP_NONE the caller copies as `place` describes. Counts drops. */
enum harp_drop harp_session_on_packet(struct harp_session *c, const uint8_t *wire, uint32_t bytes,
                                      const struct harp_packet *p, struct harp_placement *place, harp_ns now);

/* Checks the head of a record that came on a tcp path: session, path, direction, CRC and MAC; fills in its
 * number. Anything but HARP_DROP_NONE ends the connection, since nothing behind such a head can be trusted.
 */
enum harp_drop harp_session_on_head(struct harp_session *c, unsigned path, const uint8_t *head,
                                    const struct harp_record *record, uint64_t *number);

/* Feeds a record of DATA or PROBE that came whole, with its payload, as on_packet does. `place` is NULL where
 * the payload is in place already. */
enum harp_drop harp_session_on_record(struct harp_session *c, const struct harp_record *record,
                                      uint64_t number, struct harp_placement *place, harp_ns now);

/* Runs due timers. */
void harp_session_on_timeout(struct harp_session *c, harp_ns now);

/* Moves to FAILED with a status, or to CLOSED; a failed or closed session keeps its first status. */
void harp_session_fail(struct harp_session *c, enum harp_status status, harp_ns now);
void harp_session_close(struct harp_session *c, harp_ns now);

#endif
