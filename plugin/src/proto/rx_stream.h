/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving end of a stream, sans-IO: the receives of one NCCL connection, and where each of its packets'
 * bytes belongs.
 *
 * Owns and alone writes struct harp_rx_stream, but for the fields listed there as recv.c's. Owned by one
 * engine. A stream knows nothing of paths and acknowledgements: those are the receiver's (recv.h). Rules:
 *
 *   1. The caller posts receives (NCCL's buffers, borrowed until done), feeds packets and copies what the
 *      result says, at once and in the order given, before it calls anything else here.
 *   2. Every line is placed exactly once, since a GPU may read the buffer while it fills.
 *   3. Messages of up to HARP_EARLY_MAX_BYTES may arrive before their receive is posted; they wait in
 *      `staging`, one slot for each of the next HARP_EARLY_MESSAGES messages.
 *   4. Messages are done in order. */
#ifndef HARP_RX_STREAM_H
#define HARP_RX_STREAM_H

#include "base/copy.h"
#include "base/counters.h"
#include "base/linemap.h"
#include "base/trace.h"
#include "proto/limits.h"
#include "wire/packet.h"

enum {
  /* A power of two, since message numbers wrap; holds all messages that may have begun. */
  HARP_RECV_SLOTS = 128,
  /* Every other line of an early message. */
  HARP_RUNS_MAX = HARP_EARLY_MAX_BYTES / HARP_LINE_BYTES / 2 + 1,
};
_Static_assert(HARP_RECV_SLOTS >= HARP_MESSAGES_MAX + HARP_EARLY_MESSAGES &&
                   !(HARP_RECV_SLOTS & (HARP_RECV_SLOTS - 1)),
               "a slot for every message, also across the wrap");
_Static_assert(HARP_RUNS_MAX >= HARP_PACKET_MAX_LINES / 2 + 1, "a packet has fewer runs");

struct harp_rx_stream_config {
  uint16_t id;
  uint32_t first_line, first_message;
  uint8_t *staging; /* HARP_STAGING_BYTES, borrowed while the stream is open */
};

struct harp_recv_message {
  uint8_t *data;     /* the place of the message: the posted buffer, or its staging slot */
  void *cookie;      /* the cookie of the posted receive */
  uint32_t capacity; /* the bytes that fit at `data` */
  bool is_watched;   /* the posted buffer is read while it fills */
  bool begun;        /* a packet of the message has come: the fields below hold */
  uint32_t size, line;
  uint32_t lines;   /* the number of its lines */
  uint32_t missing; /* the number of its lines that have not arrived */
};

struct harp_rx_stream {
  const struct harp_trace *trace;
  struct harp_counters *counters;
  uint16_t id; /* the id in packets */
  void *owner; /* the opener sets it, for itself */

  /* recv.c writes these */
  uint8_t announces_left;                 /* the credit is to be announced so many times more */
  struct harp_rx_stream *next, *previous; /* the neighbours in the list that goes with announces_left */
  bool is_credit_wanted; /* the sender has requested credit, and no receive was posted since */
  uint32_t announced;    /* the value of `posted` that was last sent */

  /* messages and lines */
  uint32_t done;      /* the first message that poll_done has not given back */
  uint32_t posted;    /* the first message without a posted receive */
  uint32_t delivered; /* the first line that has not arrived */
  uint32_t ahead;     /* the number of lines in `arrived` */
  uint32_t last_size; /* the size of the message that began last; UINT32_MAX: none has */
  bool too_large;     /* the peer sent more than a receive holds: the fields below say which */
  uint32_t too_large_message, too_large_size, too_large_capacity;
  uint8_t *staging;
  struct harp_recv_message messages[HARP_RECV_SLOTS];
  struct harp_linemap arrived; /* the lines beyond `delivered` that have arrived */
};

/* Copy payload [from, from + bytes) of the packet to dst + from. Runs are ascending. */
struct harp_placement {
  uint8_t *dst;   /* the place of byte 0 of the packet's payload */
  bool is_placed; /* the session did it: nothing is left to the caller */
  uint32_t count;
  struct {
    uint32_t from, bytes;
  } runs[HARP_RUNS_MAX];
};

/* Copies the runs of a payload to their place. */
static inline void harp_placement_copy(const struct harp_placement *place, const uint8_t *payload) {
  for (uint32_t i = 0; i < place->count; i++)
    harp_copy_lines(place->dst + place->runs[i].from, payload + place->runs[i].from, place->runs[i].bytes);
}

void harp_rx_stream_init(struct harp_rx_stream *st, const struct harp_rx_stream_config *config,
                         const struct harp_trace *trace, struct harp_counters *counters);

/* Posts a receive for the next message; is_watched: its buffer is read while it fills. If some of it came
 * early, fills *place with what to copy from staging (`*early`, else NULL) to the buffer. Returns -EAGAIN
 * when HARP_MESSAGES_MAX receives are open. */
int harp_rx_stream_post(struct harp_rx_stream *st, void *data, uint32_t capacity, bool is_watched,
                        void *cookie, struct harp_placement *place, const uint8_t **early,
                        harp_ns now) HARP_MUST_CHECK;

/* Feeds a DATA packet. HARP_DROP_NONE: place->count runs are to be copied now (none for an empty message).
 * Otherwise the reason for which nothing is placed. */
enum harp_drop harp_rx_stream_on_data(struct harp_rx_stream *st, const struct harp_packet *p,
                                      struct harp_placement *place);

/* A packet that is larger than a datagram is fed in two steps: first, as often as needed, where its payload
 * belongs now; then that all of it is there. */

/* The place where a packet's payload belongs, from one of its bytes on. */
struct harp_rx_target {
  uint8_t *dst;    /* NULL: nowhere, since the packet is refused or these lines have arrived by another one */
  uint32_t bytes;  /* the number of bytes that this holds for */
  bool is_refused; /* the packet is not to be taken at all any more */
  bool is_watched; /* the buffer is read while it fills: only what was checked is written, line by line */
};

/* Decides where the payload from byte `from` on belongs now; begins its message as on_data does. */
struct harp_rx_target harp_rx_stream_target(struct harp_rx_stream *st, const struct harp_packet *p,
                                            uint32_t from);

/* Returns where the payload of a packet may be written before its CRC is known: the message has begun, nobody
 * reads its buffer, and none of these lines has arrived, so that wrong bytes are overwritten by the packet
 * that comes again. NULL: nowhere. Then on_data takes it, if its CRC is good. */
uint8_t *harp_rx_stream_target_unverified(const struct harp_rx_stream *st, const struct harp_packet *p);

/* Takes the packet once all of its payload was read to its place. Returns why it is dropped, or
 * HARP_DROP_NONE. */
enum harp_drop harp_rx_stream_on_placed(struct harp_rx_stream *st, const struct harp_packet *p);

/* Returns whether the message that began last was one that may come before its receive. */
static inline bool harp_rx_stream_was_small(const struct harp_rx_stream *st) {
  return st->last_size <= HARP_EARLY_MAX_BYTES;
}

/* Returns whether nothing waits in `staging`: what is in it does not matter. */
bool harp_rx_stream_staging_is_free(const struct harp_rx_stream *st);

/* Takes a received message, oldest first: returns true, its cookie and size. */
bool harp_rx_stream_poll_done(struct harp_rx_stream *st, void **cookie, uint32_t *bytes);

/* Asserts the invariants; for tests. */
void harp_rx_stream_check(const struct harp_rx_stream *st);

#endif
