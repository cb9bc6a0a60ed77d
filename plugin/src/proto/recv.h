/* The receiving half of a connection, sans-IO: where each packet's bytes belong, and what to acknowledge.
 *
 * Owned by one engine, called by the thread that runs its pass. The caller posts receives (NCCL's buffers,
 * borrowed until done), feeds decoded packets and copies what the verdict says, at once and in the order
 * given, before it calls anything else here. Because a GPU may read the buffer while it fills, every line is
 * placed exactly once.
 *
 * Messages of up to HARP_EARLY_MAX_BYTES may arrive before their receive is posted; they wait in `staging`,
 * one slot for each of the next HARP_EARLY_MESSAGES messages. */
#ifndef HARP_RECV_H
#define HARP_RECV_H

#include "base/counters.h"
#include "base/linemap.h"
#include "base/ranges.h"
#include "base/trace.h"
#include "proto/send.h"

enum {
  HARP_STAGING_BYTES = HARP_EARLY_MESSAGES * HARP_EARLY_MAX_BYTES,
  HARP_RECV_SLOTS =
      128, /* a power of two, since message numbers wrap; holds all messages that may have begun */
  HARP_RUNS_MAX = HARP_EARLY_MAX_BYTES / HARP_LINE_BYTES / 2 + 1, /* every other line of an early message */
};
_Static_assert(HARP_RECV_SLOTS >= HARP_MESSAGES_MAX + HARP_EARLY_MESSAGES &&
                   !(HARP_RECV_SLOTS & (HARP_RECV_SLOTS - 1)),
               "a slot for every message, also across the wrap");
_Static_assert(HARP_RUNS_MAX >= HARP_PACKET_MAX_LINES / 2 + 1, "a packet has fewer runs");

struct harp_receiver_config {
  uint32_t first_line, first_message, first_number;
  unsigned path_count;
  uint8_t *staging; /* HARP_STAGING_BYTES, borrowed for the receiver's life */
};

struct harp_recv_message {
  uint8_t *data;           /* where it goes: the posted buffer, or its staging slot */
  void *cookie;            /* of the posted receive */
  uint32_t capacity;       /* of the posted buffer, or of a staging slot */
  uint32_t size, line;     /* known once begun */
  uint32_t lines, missing; /* all, and not arrived yet */
  bool begun;
};

struct harp_rx_path {
  uint64_t next_number; /* one above the highest received */
  struct harp_ranges received;
  uint64_t ack_number; /* of the next acknowledgement to send */
  uint32_t echo_time;  /* time stamp of the last packet that arrived, and when it did */
  harp_ns echo_arrival_ns;
  bool detour; /* the latest packet made one; told in acknowledgements */
  uint32_t unacked_bytes;
  harp_ns ack_due_ns; /* HARP_NEVER: nothing to say */
};

struct harp_receiver {
  struct harp_trace *trace;
  struct harp_counters *counters;
  uint32_t done;      /* first message that poll_done has not given back */
  uint32_t posted;    /* first message without a posted receive */
  uint32_t announced; /* the `posted` last sent */
  uint32_t delivered; /* first line that has not arrived */
  bool too_large;     /* the peer sent more than a receive holds: message, size and capacity are below */
  uint32_t too_large_message, too_large_size, too_large_capacity;
  uint8_t *staging;
  struct harp_recv_message messages[HARP_RECV_SLOTS];
  uint32_t ahead; /* lines that have arrived beyond `delivered`: the members of `arrived` */
  struct harp_linemap arrived;
  harp_ns ack_late_ns; /* longest that an acknowledgement waits for company */
  harp_ns ack_due_ns;  /* the first of the paths' */
  uint64_t waiting;    /* paths with an acknowledgement to send, a bit each */
  uint8_t latest;      /* the path that brought data last, or the first packet of all: news travel there */
  unsigned path_count;
  struct harp_rx_path paths[HARP_PATHS_MAX];
};

/* Copy payload [from, from + bytes) of the packet to dst + from. Runs are ascending. */
struct harp_placement {
  uint8_t *dst; /* where byte 0 of the packet's payload belongs */
  uint32_t count;
  struct {
    uint32_t from, bytes;
  } runs[HARP_RUNS_MAX];
};

void harp_receiver_init(struct harp_receiver *r, const struct harp_receiver_config *config,
                        struct harp_trace *trace, struct harp_counters *counters);

/* Posts a receive for the next message. If some of it came early, fills *place with what to copy from staging
 * (`*early`, else NULL) to the buffer. Returns -EAGAIN when HARP_MESSAGES_MAX receives are open. */
int harp_receiver_post(struct harp_receiver *r, void *data, uint32_t capacity, void *cookie,
                       struct harp_placement *place, const uint8_t **early, harp_ns now) HARP_MUST_CHECK;

/* Widens the number of a packet whose path is in range, for its CRC. */
uint64_t harp_receiver_number(const struct harp_receiver *r, const struct harp_packet *p);

/* Feeds a decoded DATA or PROBE packet whose path is in range and whose CRC was good, with its widened
 * number. HARP_DROP_NONE: place->count runs are to be copied now (none for a probe or an empty message).
 * Otherwise the reason for which nothing is placed. */
enum harp_drop harp_receiver_on_packet(struct harp_receiver *r, const struct harp_packet *p, uint64_t number,
                                       struct harp_placement *place, harp_ns now);

/* Takes a received message, oldest first: returns true, its cookie and size. */
bool harp_receiver_poll_done(struct harp_receiver *r, void **cookie, uint32_t *bytes);

/* Returns the path on which the next acknowledgement is due, -1 when none is. */
int harp_receiver_next_ack(const struct harp_receiver *r, harp_ns now);

/* Takes the next acknowledgement that is due, ready to encode but for the token; false when none is. */
bool harp_receiver_poll_ack(struct harp_receiver *r, struct harp_packet *ack, uint64_t *number, harp_ns now);

/* Makes every acknowledgement that waits due at once. */
void harp_receiver_hurry(struct harp_receiver *r, harp_ns now);

/* Returns when an acknowledgement falls due, HARP_NEVER if none is waiting. */
harp_ns harp_receiver_deadline_ns(const struct harp_receiver *r);

/* Asserts the invariants; for tests. */
void harp_receiver_check(const struct harp_receiver *r);

#endif
