/* SPDX-License-Identifier: Apache-2.0 */
/* The flight of one path: the packets that were sent and are not settled yet, which means neither
 * acknowledged nor found lost.
 *
 * Owns struct harp_flight, a part of struct harp_path. path.c adds records; loss.c marks their packets and
 * removes them; tail_duplication.c marks a burst as duplicated; send.c detaches a closed stream. Called under
 * the engine's lock. Rules:
 *
 *   1. A record stands for a burst: consecutive packets that carry consecutive lines of one message, sent at
 *      one moment. So a lossless transfer costs one record per superframe, not one per packet.
 *   2. Records are in order of packet number, oldest at head.
 *   3. A record leaves when all its packets are settled and it is the oldest; one with lost packets stays for
 *      a while, since a late acknowledgement may still show that the loss was reordering. */
#ifndef HARP_FLIGHT_H
#define HARP_FLIGHT_H

#include "base/assert.h"
#include "base/base.h"
#include "proto/receive_window.h"

enum {
  HARP_FLIGHT_RECORDS_MAX = 1024,   /* the most records of one path */
  HARP_FLIGHT_RECORDS_TOTAL = 2048, /* the most records of all primary paths of a session */
  HARP_FLIGHT_RECORDS_STANDBY = 64, /* the most records of a standby path */
  HARP_FLIGHT_RECORDS_TCP = 64,     /* the records of a tcp path, whose packets are large */
  HARP_BURST_MAX_PACKETS = 64,
};

struct harp_tx_stream;

struct harp_burst {
  struct harp_tx_stream *stream; /* the stream of its lines; NULL: a probe, or the stream was closed */
  uint64_t number;               /* the number of its first packet */
  /* The marks of its packets, a bit each, which loss.c writes; both: it was found lost and acknowledged
   * later. */
  uint64_t acked, lost;
  harp_ns sent_ns;
  uint32_t line;             /* the first line of its first packet */
  uint32_t packet_bytes;     /* the bytes of a full packet with header, for the window */
  uint32_t flight_bytes;     /* the bytes in flight on the path when it was sent, its own included */
  uint16_t lines_per_packet; /* 0: it is a probe */
  uint16_t last_lines;       /* the lines of its last packet */
  uint8_t count;             /* the number of its packets */
  bool is_padding;           /* it is a size probe */
  bool is_duplicated;        /* it was sent once more on another path; tail_duplication.c writes it */
  bool is_outside_window;    /* it takes nothing of the receive window: its path was not UP */
  bool is_ect;               /* it left as ECN-capable */
};

struct harp_flight {
  uint32_t head, tail;     /* free-running; the ring holds tail - head records */
  uint32_t records;        /* the number of records that fit, a power of two */
  struct harp_burst *ring; /* the records, in the sender's memory */
};

/* Returns how many records each of so many primary paths has: a power of two, fewer where paths are many.
 * `half`: there are first paths of pairs of ENIs and others; each group has one half of the records. Each
 * record stands for a superframe, or for a packet where the driver sends them one by one. */
static inline uint32_t harp_flight_records(unsigned count, bool half) {
  uint32_t records = HARP_FLIGHT_RECORDS_MAX;
  while (records * count > HARP_FLIGHT_RECORDS_TOTAL / (half ? 2u : 1u)) records /= 2;
  return records;
}
static inline void harp_flight_init(struct harp_flight *f, struct harp_burst *ring, uint32_t records) {
  HARP_ASSERT(records && !(records & (records - 1)));
  *f = (struct harp_flight){.records = records, .ring = ring};
}

static inline uint32_t harp_flight_count(const struct harp_flight *f) {
  return f->tail - f->head;
}
static inline bool harp_flight_is_full(const struct harp_flight *f) {
  return harp_flight_count(f) == f->records;
}
static inline struct harp_burst *harp_flight_at(const struct harp_flight *f, uint32_t i) {
  return &f->ring[i & (f->records - 1)];
}
static inline uint64_t harp_burst_mask(const struct harp_burst *b) {
  return b->count == 64 ? ~0ull : (1ull << b->count) - 1;
}
/* Returns what so many of its packets take of the peer's window. */
static inline uint32_t harp_burst_cost_bytes(const struct harp_burst *b, uint32_t packets) {
  return b->is_outside_window ? 0 : harp_receive_window_cost_bytes(packets, b->packet_bytes);
}
/* Returns the packets that are neither acknowledged nor lost, one bit each. */
static inline uint64_t harp_burst_pending(const struct harp_burst *b) {
  return harp_burst_mask(b) & ~(b->acked | b->lost);
}
static inline uint32_t harp_burst_line(const struct harp_burst *b, uint32_t i) {
  return b->line + i * b->lines_per_packet;
}
static inline uint32_t harp_burst_lines(const struct harp_burst *b, uint32_t i) {
  return i + 1 == b->count ? b->last_lines : b->lines_per_packet;
}

/* Appends a record; the ring must not be full. The burst's numbers follow those of the youngest record. */
static inline void harp_flight_push(struct harp_flight *f, const struct harp_burst *b) {
  HARP_ASSERT(!harp_flight_is_full(f) && b->count && b->count <= HARP_BURST_MAX_PACKETS);
  *harp_flight_at(f, f->tail++) = *b;
}
/* Detaches the records of a stream that is being closed. */
static inline void harp_flight_forget(struct harp_flight *f, const struct harp_tx_stream *stream) {
  for (uint32_t i = f->head; i != f->tail; i++) {
    struct harp_burst *b = harp_flight_at(f, i);
    if (b->stream == stream) b->stream = NULL;
  }
}
/* Removes settled records from the head. One with lost packets stays until it was sent before `expire_ns`, so
 * that a late acknowledgement can still show that the loss was only reordering; or until the ring is half
 * full. */
static inline void harp_flight_trim(struct harp_flight *f, harp_ns expire_ns) {
  while (f->head != f->tail) {
    const struct harp_burst *b = harp_flight_at(f, f->head);
    if (harp_burst_pending(b)) return;
    bool all_acked = b->acked == harp_burst_mask(b);
    if (!all_acked && b->sent_ns >= expire_ns && harp_flight_count(f) < f->records / 2) return;
    f->head++;
  }
}

#endif
