/* SPDX-License-Identifier: Apache-2.0 */
/* The sending half of a session, sans-IO: on which paths and when the packets of its streams are sent, and
 * whether they arrived.
 *
 * Owned by one engine, called by the thread that runs its pass. The caller posts messages on streams (offsets
 * into the caller's own buffers), chooses what to send next, encodes it and hands it to a driver,
 * and feeds acknowledgements and time. Streams share the paths, and no stream waits for another's losses.
 *
 * struct harp_sender is made of parts. Each has one file that owns it, and whose head says its rules; the
 * others call that file's functions. Without a part of their own:
 *
 *   send_init.c  the memory of the sender, and the pairs of ENIs that its paths run between
 *   send.c       its streams and acknowledgements
 *   send_take.c  what a choice sends: packet numbers, bursts, requests for acknowledgements
 *   send_tcp.c   what the kernel of a tcp path reports
 *   send_check.c invariants
 *
 * All under the engine's lock. */
#ifndef HARP_SEND_H
#define HARP_SEND_H

#include "base/counters.h"
#include "proto/path.h"
#include "proto/path_account.h"
#include "proto/path_flight.h"
#include "proto/path_health.h"
#include "proto/path_pairs.h"
#include "proto/path_probing.h"
#include "proto/path_set.h"
#include "proto/path_timers.h"
#include "proto/send_carrier.h"
#include "proto/send_choose.h"
#include "proto/send_cork.h"
#include "proto/send_credit.h"
#include "proto/send_experiment.h"
#include "proto/send_stall.h"
#include "proto/send_turns.h"
#include "proto/send_window.h"
#include "proto/stripe.h"
#include "proto/tail_duplication.h"
#include "proto/tx_stream.h"

struct harp_sender_config {
  uint32_t first_number;
  unsigned stream_max; /* streams have ids below this; at most HARP_STREAMS_MAX */
  unsigned path_count;
  struct harp_path_config paths[HARP_PATHS_MAX]; /* the first path_count hold */
  bool prefers_first_eni; /* paths over our first ENI come before others that are little better */
  uint32_t window_bytes;  /* the first receive window of each of the peer's interfaces */
  const struct harp_cc_ops *cc;
};

/* The kind of what goes out next. A value that nobody keeps: it holds until something else is fed to the
 * sender. */
enum harp_tx_kind {
  HARP_TX_NOTHING,
  HARP_TX_PROBE,      /* regardless of the window: lines that wait for their acknowledgement, or nothing */
  HARP_TX_SIZE_PROBE, /* padding, to learn whether the path takes packets of this size */
  HARP_TX_RESEND,     /* lines found lost */
  HARP_TX_NEW,
  HARP_TX_TAIL_DUPLICATE, /* lines in flight on another path, once more */
};

struct harp_tx_choice {
  enum harp_tx_kind kind;
  uint8_t path;
  struct harp_tx_stream *stream;   /* the stream that the lines belong to; NULL: there are no lines */
  uint32_t message;                /* the message that the lines belong to */
  uint32_t line, lines;            /* the first line, and their number; 0: a probe without payload */
  uint32_t packets;                /* the most packets */
  uint32_t bytes;                  /* the payload, or the padding, of the largest packet */
  struct harp_burst *duplicate_of; /* TAIL_DUPLICATE: the burst that is repeated */
  harp_ns deadline_ns;             /* NOTHING: the time to choose again; HARP_NEVER: only input brings work */
};

/* Consecutive packets to encode: packet i has number + i, starts at line + i * lines_per_packet, and carries
 * lines_per_packet lines of data (the last one up to last_bytes). */
struct harp_tx_run {
  enum harp_packet_type type; /* DATA, or PROBE: one packet padded with last_bytes zeros */
  uint8_t path;
  uint16_t stream;
  uint8_t flags; /* the flags of the last packet */
  uint32_t count;
  uint64_t number;
  uint32_t message, line, lines_per_packet, last_bytes;
  uint32_t offset, size; /* bytes: where the first packet begins in the message, and the message's size */
  const uint8_t *data;   /* the first packet's payload */
  bool ect;              /* the superframe is to leave as ECN-capable */
};

struct harp_sender {
  const struct harp_trace *trace;
  struct harp_counters *counters;

  /* send.c opens and closes streams; tx_stream.c writes their load */
  struct harp_tx_load load; /* what all streams have to send */
  unsigned stream_max;
  struct harp_tx_stream **streams; /* the streams by id, in memory behind the flights; NULL: none is open */
  uint64_t *was_open;              /* the ids that a stream has had, a bit each, in memory behind those */

  /* each written by the file whose header defines it */
  struct harp_send_credit credit;
  struct harp_send_turns turns;
  struct harp_send_cork cork;
  struct harp_send_carriers carriers;
  struct harp_experiments experiments; /* send_experiment.h feeds it */
  struct harp_send_search search;
  struct harp_tail_duplication duplication;
  struct harp_send_stall stall;
  struct harp_send_windows windows;
  struct harp_path_set set;
  struct harp_path_timers timers;
  struct harp_path_pairs pairs;
  struct harp_tcp_speeds tcp_speeds;

  unsigned path_count;
  struct harp_path paths[]; /* the path_count paths, and behind them the records of their flights */
};

/* Returns the bytes that a sender of this configuration takes; the caller owns the memory. */
size_t harp_sender_bytes(const struct harp_sender_config *config);

void harp_sender_init(struct harp_sender *s, const struct harp_sender_config *config,
                      const struct harp_trace *trace, struct harp_counters *counters, harp_ns now);

/* Opens a stream whose id is free; closes it: none of its lines goes out any more. The stream's memory is the
 * caller's, and borrowed while it is open. The receiver opens its end first. An id may be used again when
 * both ends have closed the last stream of it, with a first line and a first message that are drawn at
 * random, so that late packets of the last one are not taken for its own. */
void harp_sender_open(struct harp_sender *s, struct harp_tx_stream *st,
                      const struct harp_tx_stream_config *config);
void harp_sender_close(struct harp_sender *s, struct harp_tx_stream *st);

/* Posts a message on an open stream: harp_tx_stream_post. */
int harp_sender_post(struct harp_sender *s, struct harp_tx_stream *st, const void *data, uint32_t bytes,
                     void *cookie, bool is_awaited, harp_ns now) HARP_MUST_CHECK;

/* Returns the open stream of this id; NULL: there is none. */
static inline struct harp_tx_stream *harp_sender_stream(const struct harp_sender *s, uint16_t id) {
  return id < s->stream_max ? s->streams[id] : NULL;
}

/* Widens the number of an acknowledgement whose path is in range, for its CRC. */
uint64_t harp_sender_ack_number(const struct harp_sender *s, const struct harp_packet *p);

/* Feeds a decoded acknowledgement whose path is in range and whose CRC was good, with its widened number.
 * Returns why it is worthless, or HARP_DROP_NONE. */
enum harp_drop harp_sender_on_ack(struct harp_sender *s, const struct harp_packet *p, uint64_t number,
                                  harp_ns now);

/* Runs every timer that is due. */
void harp_sender_on_timeout(struct harp_sender *s, harp_ns now);

/* Chooses what the next superframe carries and on which path, or sets until when nothing is to be sent. */
struct harp_tx_choice harp_sender_choose(struct harp_sender *s, harp_ns now);

/* Chooses what may follow in the same superframe, on the same path; NOTHING (without a deadline) ends it. */
struct harp_tx_choice harp_sender_choose_more(struct harp_sender *s, unsigned path, harp_ns now);

/* Takes the packets of a choice, 1 to max_packets of them; they count as sent. */
void harp_sender_take(struct harp_sender *s, const struct harp_tx_choice *choice, uint32_t max_packets,
                      struct harp_tx_run *run, harp_ns now);

/* Notes, before a record is given to a tcp path, what has left its kernel on this connection, and what is
 * unsent there. */
void harp_sender_on_queue(struct harp_sender *s, unsigned path, uint64_t left_bytes, uint32_t unsent_bytes,
                          harp_ns now);

/* Returns the bytes that a path moves in so many ns, as far as that is known. */
static inline uint64_t harp_sender_bytes_in(const struct harp_sender *s, unsigned path, harp_ns ns) {
  return harp_path_speed_bytes_in(&s->paths[path].speed, ns);
}

/* Returns since when no path has answered though messages are under way; 0: the sender is not stalled. */
static inline harp_ns harp_sender_stalled_since_ns(const struct harp_sender *s) {
  return s->stall.since_ns;
}

/* Counts a stall from now on: the peer's process was paused before. */
static inline void harp_sender_excuse_stall(struct harp_sender *s, harp_ns now) {
  harp_send_stall_excuse(&s->stall, now);
}

/* Takes a stream that has delivered messages to poll, or more credit; NULL: none has. */
static inline struct harp_tx_stream *harp_sender_take_changed(struct harp_sender *s) {
  return harp_tx_load_take_changed(&s->load);
}

/* Probes a path of each of our ENIs over which nothing has come for so long: an idle one is then known to
 * work, and the receiver gets a packet. */
void harp_sender_keepalive(struct harp_sender *s, harp_ns quiet_ns, harp_ns now);

/* Sends a probe over an open tcp path that is idle. The other side has reported that it uses the path and has
 * no connection; the probe shows whether this side's connection still exists. */
void harp_sender_test_connection(struct harp_sender *s, unsigned path, harp_ns now);

/* Makes paths DORMANT that have been of no use for long, so that they need no connection, and checks standby
 * paths in turn. Called several times a second; returns whether the sender is to be visited. */
static inline bool harp_sender_rest(struct harp_sender *s, harp_ns now) {
  return harp_path_pairs_rest(s, now);
}

/* Sets by how much the clock that all hosts share is ahead of ours, for the drains of the congestion control;
 * is_own: the hosts share none. Zero and false at first. */
void harp_sender_set_clock(struct harp_sender *s, harp_ns offset_ns, bool is_own);

/* Takes a path DOWN because its connection or link is known to be down: its flight moves to the others. */
void harp_sender_path_down(struct harp_sender *s, unsigned path, harp_ns now);

/* Probes a path of datagrams at once, because packets could not arrive there, and can from now on. */
void harp_sender_probe_anew(struct harp_sender *s, unsigned path, harp_ns now);

/* A tcp path can take nothing now, or can again. A path that was never connected is blocked. One that stays
 * blocked by acknowledgements, which do not count as in flight, times out like one that does not answer. */
void harp_sender_block(struct harp_sender *s, unsigned path, harp_ns now);
void harp_sender_unblock(struct harp_sender *s, unsigned path, harp_ns now);

/* Learns that a tcp path's kernel shows loss or a queue. Returns whether datagrams are tried because of it.
 */
bool harp_sender_on_trouble(struct harp_sender *s, harp_ns now);

/* Returns whether it is of interest how long the caller's core takes to send, which harp_sender_on_cpu_time
 * feeds. */
static inline bool harp_sender_is_measured(const struct harp_sender *s) {
  return harp_experiments_measure_cpu(&s->experiments);
}
static inline void harp_sender_on_cpu_time(struct harp_sender *s, harp_ns ns) {
  harp_experiments_on_cpu_time(&s->experiments, ns);
}

/* The peer's kernel has acknowledged something on a tcp path: it works, though no record has arrived
 * whole. */
void harp_sender_on_progress(struct harp_sender *s, unsigned path, harp_ns now);

/* Returns whether a tcp path, or its connection, is to be given up: it was found DOWN. */
static inline bool harp_sender_is_down(const struct harp_sender *s, unsigned path) {
  return s->paths[path].state == HARP_PATH_DOWN;
}
static inline bool harp_sender_is_up(const struct harp_sender *s, unsigned path) {
  return s->paths[path].state == HARP_PATH_UP;
}
static inline bool harp_sender_is_dormant(const struct harp_sender *s, unsigned path) {
  return s->paths[path].state == HARP_PATH_DORMANT;
}

/* Returns the memory of a path's flight while it is empty: what is in it does not matter. NULL: in use. */
static inline void *harp_sender_idle_flight(const struct harp_sender *s, unsigned path, size_t *bytes) {
  const struct harp_flight *f = &s->paths[path].flight;
  *bytes = f->records * sizeof f->ring[0];
  return harp_flight_count(f) ? NULL : f->ring;
}

/* Returns how many bytes are in flight on a path. */
static inline uint32_t harp_sender_inflight_bytes(const struct harp_sender *s, unsigned path) {
  return s->paths[path].inflight_bytes;
}

/* Asserts the invariants; for tests. */
void harp_sender_check(const struct harp_sender *s);

#endif
