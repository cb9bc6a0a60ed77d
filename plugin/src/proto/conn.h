/* One connection of two engines: its secrets, its life cycle, and the dispatch of packets to its sending and
 * its receiving half. Owned by one engine. Sans-IO. */
#ifndef HARP_CONN_H
#define HARP_CONN_H

#include "base/status.h"
#include "proto/recv.h"
#include "proto/send.h"

enum harp_conn_state {
  HARP_CONN_OPEN,
  HARP_CONN_FAILED, /* nothing more moves; every request gets the status */
  HARP_CONN_CLOSED, /* buffers are gone; packets are dropped */
};

struct harp_conn_keys {
  uint64_t tx_token, rx_token; /* in the packets that we send, and that we expect */
  uint32_t tx_seed, rx_seed;   /* of their CRCs */
};

struct harp_conn {
  enum harp_conn_state state;
  enum harp_status status; /* why it failed */
  struct harp_conn_keys keys;
  unsigned path_count;
  struct harp_trace *trace;
  struct harp_counters *counters;
  struct harp_sender *sender;     /* NULL: it sends nothing; memory of the owner */
  struct harp_receiver *receiver; /* NULL: it receives nothing; memory of the owner */
};

/* At least one of sender and receiver is given, initialised, with as many paths as the other. */
void harp_conn_init(struct harp_conn *c, const struct harp_conn_keys *keys, struct harp_sender *sender,
                    struct harp_receiver *receiver);

/* Feeds a decoded packet that carried our token: checks direction, path and CRC (over `wire`), then hands it
 * on. On HARP_DROP_NONE the caller copies what `place` says. Counts drops. */
enum harp_drop harp_conn_on_packet(struct harp_conn *c, const uint8_t *wire, const struct harp_packet *p,
                                   struct harp_placement *place, harp_ns now);

/* Runs due timers. */
void harp_conn_on_timeout(struct harp_conn *c, harp_ns now);

/* Moves to FAILED with a status, or to CLOSED; a failed or closed connection keeps its first status. */
void harp_conn_fail(struct harp_conn *c, enum harp_status status, harp_ns now);
void harp_conn_close(struct harp_conn *c, harp_ns now);

#endif
