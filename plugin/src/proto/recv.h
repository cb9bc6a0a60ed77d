/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving half of a session, sans-IO: which packets came over which path, what to acknowledge and when,
 * and which streams may go on sending (credit).
 *
 * Owns and alone writes struct harp_receiver, and of each stream the fields that rx_stream.h lists for it.
 * Owned by one engine, called by the thread that runs its pass. What the packets of a stream bring is the
 * stream's (rx_stream.h). Rules:
 *
 *   Acknowledgements go to the address that the peer told, which may be a third party's:
 *   1. A path is unproved until our own sender finds that packets reach the peer there
 *      (harp_receiver_on_proved).
 *   2. Until then the acknowledgements of a path have at most as many bytes as came on it; the headers before
 *      them are as long. One that exceeds that is not sent: the next packet on the path brings another.
 *   3. Probes are padded, so that each brings an acknowledgement.
 *   4. Credit is left out of an acknowledgement before the acknowledgement is.
 *
 *   When an acknowledgement leaves, and when credit does:
 *   5. It leaves at once, soon or late, by what came (recv.c has the times).
 *   6. A packet of data in the other direction carries one that is nearly due.
 *   7. New credit goes with the acknowledgement of the path that brought data last, and is announced
 *      CREDIT_REPEATS times, since acknowledgements get lost.
 *
 *   8. A number that has come already, or is below those that still count, is a packet that the network, or
 *      somebody else, has sent again: it is dropped without an answer. A sender never uses a number twice. */
#ifndef HARP_RECV_H
#define HARP_RECV_H

#include "base/ranges.h"
#include "base/seq.h"
#include "proto/rx_stream.h"

struct harp_receiver_config {
  uint32_t first_number;
  unsigned path_count;
  unsigned stream_max;   /* streams have ids below this; at most HARP_STREAMS_MAX */
  uint32_t window_bytes; /* the receive window to announce: see harp_receiver_set_window */
  uint64_t unproved;     /* paths whose address may not be the peer's, a bit each */
};

struct harp_rx_path {
  /* what has come */
  uint64_t next_number;        /* one above the highest number received */
  struct harp_ranges received; /* the numbers received that the sender has not settled */
  uint64_t settled_number;     /* the number of the last packet with HARP_FLAG_SETTLED */
  uint64_t least_number;       /* the numbers below it are forgotten */
  uint32_t echo_time;          /* the time stamp of the last packet that arrived */
  harp_ns echo_arrival_ns;     /* the time when it arrived */
  bool detour;                 /* the latest packet came by a slower way; acknowledgements report it */
  uint32_t ce_bytes;           /* the bytes that came marked as CE, with headers, modulo 2^32 */
  uint64_t received_bytes;     /* statistics: the bytes acknowledged, with headers */

  /* the next acknowledgement */
  uint64_t ack_number; /* the number of the acknowledgement */
  harp_ns ack_due_ns;  /* the time when it is due; HARP_NEVER: nothing is to be acknowledged */
  uint32_t unacked_bytes;
  uint64_t allowance_bytes; /* the most bytes of acknowledgements while unproved (rule 2) */
};

/* Open streams, in the order in which they came to the list. */
struct harp_rx_list {
  struct harp_rx_stream *first, *last;
};

struct harp_receiver {
  const struct harp_trace *trace;
  struct harp_counters *counters;
  bool packet_trace;        /* each packet that comes is traced: for tests */
  uint32_t window_bytes;    /* the receive window, which acknowledgements announce */
  uint32_t ack_every_bytes; /* an acknowledgement is sent for so many bytes at least */
  uint32_t mac_bytes;       /* the bytes of the MAC behind each acknowledgement */

  /* streams */
  unsigned stream_max;
  struct harp_rx_stream **streams; /* the streams by id, in memory behind the paths; NULL: none is open */
  uint64_t *closed; /* a bit for each id whose last stream was closed, in memory behind `streams` */

  /* credit: each open stream is in one list */
  struct harp_rx_list fresh;     /* the streams whose credit was not announced yet */
  struct harp_rx_list repeated;  /* the streams whose credit is to be announced once more */
  struct harp_rx_list announced; /* the streams whose credit was announced often enough */
  uint32_t fresh_count;          /* the number of streams in `fresh` */
  /* The path that carries new credit: the one that brought data or a request for credit last, since the
   * sender takes it for one that works; before those the path that brought the first packet. */
  uint8_t latest;

  /* acknowledgements; sets of paths have a bit each */
  harp_ns ack_due_ns; /* the first of the paths' times */
  uint64_t waiting;   /* the paths with an acknowledgement to send */
  uint64_t elsewhere; /* the paths whose last acknowledgement went by another path */
  uint64_t unproved;  /* the paths whose address may not be the peer's (rule 1) */
  bool is_requested;  /* the sender has requested an acknowledgement since none was waiting */

  unsigned path_count;
  struct harp_rx_path paths[]; /* path_count of them */
};

/* Returns the bytes that a receiver of this configuration takes; the caller owns the memory. */
size_t harp_receiver_bytes(const struct harp_receiver_config *config);

void harp_receiver_init(struct harp_receiver *r, const struct harp_receiver_config *config,
                        const struct harp_trace *trace, struct harp_counters *counters);

/* Opens a stream whose id is free; closes it: its packets are dropped from then on, and acknowledged. The
 * stream's memory is the caller's, and borrowed while it is open. */
void harp_receiver_open(struct harp_receiver *r, struct harp_rx_stream *st,
                        const struct harp_rx_stream_config *config);
void harp_receiver_close(struct harp_receiver *r, struct harp_rx_stream *st);

/* Posts a receive on an open stream: harp_rx_stream_post. */
int harp_receiver_post(struct harp_receiver *r, struct harp_rx_stream *st, void *data, uint32_t capacity,
                       bool is_watched, void *cookie, struct harp_placement *place, const uint8_t **early,
                       harp_ns now) HARP_MUST_CHECK;

/* Sets what the peer may have in flight to each of our interfaces, announced from the next acknowledgement
 * on; bounded (harp_receive_window_bounded). */
void harp_receiver_set_window(struct harp_receiver *r, uint32_t bytes);

/* Returns the open stream of this id; NULL: there is none. */
static inline struct harp_rx_stream *harp_receiver_stream(const struct harp_receiver *r, uint16_t id) {
  return id < r->stream_max ? r->streams[id] : NULL;
}

/* Widens the number of a packet whose path is in range, for its CRC. */
static inline uint64_t harp_receiver_number(const struct harp_receiver *r, const struct harp_packet *p) {
  return harp_seq_widen(p->number, r->paths[p->path].next_number);
}

/* Feeds a decoded DATA or PROBE packet whose path is in range and whose CRC was good, with its widened
 * number. HARP_DROP_NONE: place->count runs are to be copied now (none for a probe or an empty message).
 * Otherwise the reason for which nothing is placed. `place` is NULL for a DATA
 * packet whose payload is in place already (rx_stream.h). */
enum harp_drop harp_receiver_on_packet(struct harp_receiver *r, const struct harp_packet *p, uint64_t number,
                                       struct harp_placement *place, harp_ns now);

/* Learns that packets to the peer arrive on a path: its acknowledgements are not limited any more. */
void harp_receiver_on_proved(struct harp_receiver *r, unsigned path, harp_ns now);
static inline bool harp_receiver_is_unproved(const struct harp_receiver *r, unsigned path) {
  return harp_unlikely(r->unproved >> path & 1);
}

/* Returns the path whose acknowledgement has been due longest, none of `except` (a bit each); -1 when none is
 * due. */
int harp_receiver_next_ack(const struct harp_receiver *r, uint64_t except, harp_ns now);

/* Takes the acknowledgement of a path, ready to encode but for the token. */
void harp_receiver_take_ack(struct harp_receiver *r, unsigned path, struct harp_packet *ack, uint64_t *number,
                            harp_ns now);

/* Learns that the acknowledgement of a path, taken just now, goes by another one, which may lose it. The
 * sender may be unable to send what would bring one more, so it goes by its own path as well: in front of the
 * next record, or alone when the caller finds that the path takes it, and repeats it. */
static inline void harp_receiver_on_ack_elsewhere(struct harp_receiver *r, unsigned path) {
  r->elsewhere |= 1ull << path;
}
static inline uint64_t harp_receiver_elsewhere(const struct harp_receiver *r) {
  return r->elsewhere;
}
/* Returns whether a tcp path owes nothing but that repetition. */
static inline bool harp_receiver_is_repeat(const struct harp_receiver *r, unsigned path) {
  return (r->elsewhere & ~r->waiting) >> path & 1;
}
void harp_receiver_repeat_ack(struct harp_receiver *r, unsigned path, harp_ns now);

/* Returns the bytes that the acknowledgement of a path takes at least, if one is due or nearly so: to ride in
 * a superframe of data. 0: there is none. */
uint32_t harp_receiver_ride_bytes(const struct harp_receiver *r, unsigned path, harp_ns now);

/* Takes that acknowledgement, with as much credit as fits `room_bytes`. Returns false when it does not fit,
 * or there is none. */
bool harp_receiver_ride_ack(struct harp_receiver *r, unsigned path, uint32_t room_bytes,
                            struct harp_packet *ack, uint64_t *number, harp_ns now);

/* Makes every acknowledgement that waits due at once, if the sender has requested one: it waits for a message
 * that may have come over several paths. */
void harp_receiver_ack_requested(struct harp_receiver *r, harp_ns now);

/* Returns when an acknowledgement falls due, of a path that is none of `except`; HARP_NEVER if none is
 * waiting. */
harp_ns harp_receiver_deadline_ns(const struct harp_receiver *r, uint64_t except);

/* Asserts the invariants; for tests. */
void harp_receiver_check(const struct harp_receiver *r);

#endif
