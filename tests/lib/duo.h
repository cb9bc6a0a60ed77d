/* Two ends of one connection over a simulated network: the harness plays NCCL, both engines and both drivers.
 *
 * It moves the virtual clock from event to event; after each one it runs the invariants of both halves and
 * its own: every byte is placed once, in its place, with its final content; messages complete in order and
 * only when whole; windows, credit and deadlines are respected. A violation ends in duo_fail, which prints
 * `label` (the command that replays it) and stops the process. */
#ifndef HARP_TESTS_DUO_H
#define HARP_TESTS_DUO_H

#include <stdio.h>

#include "lib/simnet.h"
#include "proto/conn.h"

enum {
  DUO_MESSAGES_MAX = 128,
  DUO_MESSAGE_MAX_BYTES = 2 << 20,
  DUO_ARENA_BYTES = 48 << 20, /* all receive buffers of a scenario */
  DUO_DOWNS_MAX = 16,         /* links reported down in a scenario: each gives up a whole flight */
  DUO_GUARD_BYTES = 64,       /* around each, checked at the end */
};

struct duo_message {
  uint32_t bytes, capacity;
  harp_ns send_at, recv_at; /* not before these */
  /* state */
  const uint8_t *content;
  uint8_t *buffer;
  uint64_t *placed, *staged; /* a bit a line */
  uint32_t placed_lines;
  bool sent, received;
  harp_ns posted_at, received_at; /* of the send, and when all of it was there */
};

struct duo_config {
  uint64_t seed;
  unsigned path_count;
  struct harp_path_config paths[HARP_PATHS_MAX];
  uint32_t first_line, first_message, first_number;
  uint32_t window_max_bytes;
  const struct harp_cc_ops *cc;
  uint32_t superframe_packets; /* most packets that the sending driver takes at once */
  uint32_t in_flight_max;      /* sends or receives that are open at once */
  bool pad;                    /* short packets in mid-superframe are padded, else they end it */
  uint32_t refuse_ppm;         /* the driver drops a superframe that was polled already */
  uint32_t pause_ppm;          /* after an event, that end sleeps for up to pause_ns */
  harp_ns pause_ns;
  uint32_t down_ppm; /* after an event the sender is told that the link of some path went down */
  bool trace;        /* keep the ends' traces; print_trace prints them as they grow */
  bool print_trace;
};

struct duo_end {
  struct harp_conn conn;
  struct harp_counters counters;
  struct harp_trace *trace;
  uint64_t traced; /* entries printed or collected */
  harp_ns asleep_until_ns;
};

struct duo {
  char label[160];
  struct duo_config config;
  struct rng rng;
  struct simnet net;
  harp_ns now;
  struct duo_end tx, rx;
  struct harp_sender *sender;
  struct harp_receiver *receiver;
  uint8_t *staging, *arena, *pattern;
  uint64_t *bits;
  uint32_t arena_used, bits_used;
  struct duo_message messages[DUO_MESSAGES_MAX];
  uint32_t count, send_next, sent_count, recv_next, received_count;
  uint32_t last_sender_delivered, last_receiver_delivered;
  uint32_t downs;
  bool faults; /* pauses and refusals happen */
  uint64_t steps, same_instant;
  uint64_t data_packets, probe_packets, ack_packets; /* sent */
  uint64_t path_packets[SIMNET_PATHS_MAX];           /* sent by either end */
  FILE *trace_out; /* where traces go when config.trace is set; NULL: nowhere */
};

/* Takes and returns the memory that scenarios reuse. The struct must be zero before the first start. */
void duo_start(struct duo *d, const struct duo_config *config);
void duo_fini(struct duo *d);

/* Adds a message; times are absolute. */
void duo_add(struct duo *d, uint32_t bytes, uint32_t capacity, harp_ns send_at, harp_ns recv_at);

static inline bool duo_complete(const struct duo *d) {
  return d->sent_count == d->count && d->received_count == d->count;
}

/* Returns when the next event is; HARP_NEVER: none. */
harp_ns duo_next_ns(const struct duo *d);

/* Runs one event if there is one before `until_ns`; else moves the clock there and returns false. */
bool duo_step(struct duo *d, harp_ns until_ns);

/* Runs until all messages are complete or the time has come; returns whether they are. */
bool duo_run(struct duo *d, harp_ns until_ns);

/* Final checks: buffers and guards. */
void duo_check_buffers(struct duo *d);

_Noreturn void duo_fail(const struct duo *d, const char *format, ...) HARP_PRINTF(2, 3);

#endif
