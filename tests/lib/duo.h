/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of one connection over a simulated network: the harness plays NCCL, both engines and both drivers.
 *
 * Each end has a sending and a receiving half; streams go from end 0 to end 1 and the other way. The harness
 * moves the virtual clock from event to event; after each one it runs the invariants of both halves and its
 * own: every byte is placed once, in its place, with its final content; messages complete in order and only
 * when whole; windows, credit and deadlines are respected. A violation ends in duo_fail, which prints `label`
 * (the command that replays it) and stops the process.
 *
 * Some paths may be tcp paths, whose connections the harness opens, moves and breaks (lib/duo_tcp.h).
 *
 * Streams are open from the start; or the ends agree on them over a control connection, which is reliable and
 * keeps the order (lib/duo_control.c). */
#ifndef HARP_TESTS_DUO_H
#define HARP_TESTS_DUO_H

#include <stdio.h>

#include "lib/simnet.h"
#include "lib/tcpnet.h"
#include "proto/session.h"

enum {
  DUO_ENDS = 2,
  DUO_STREAMS_MAX = 256, /* the streams of a scenario, one after the other or at once */
  DUO_IDS_MAX = 256,
  DUO_MESSAGES_MAX = 1024,
  DUO_MESSAGE_MAX_BYTES = 2 << 20,
  DUO_ARENA_BYTES = 48 << 20, /* all receive buffers of a scenario */
  DUO_DOWNS_MAX = 16,         /* links reported down in a scenario: each gives up a whole flight */
  DUO_GUARD_BYTES = 64,       /* around each, checked at the end */
  DUO_CONTROLS_MAX = 1024,    /* messages on the control connection that are under way */
  DUO_TCP_MAX = 8,            /* tcp paths, which come after the others */
};

struct duo_message {
  uint32_t bytes, capacity; /* capacity < bytes: it must be refused */
  harp_ns send_at, recv_at; /* not before these */
  /* state */
  const uint8_t *content;
  uint8_t *buffer;
  uint64_t *placed, *staged; /* a bit a line */
  uint32_t placed_lines;
  bool received, is_watched;
  uint32_t poisoned;              /* bytes of `buffer` that may change no more, since it was given back */
  harp_ns posted_at, received_at; /* the time of the send, and the time when all of it was there */
};

struct duo_stream_config {
  enum simnet_way way; /* the way of its data */
  uint16_t id;
  uint32_t first_line, first_message;
  uint32_t in_flight_max; /* sends or receives that are open at once */
  /* Opened by the control connection from open_at on, when the id is free; closed when done. */
  bool is_on_demand;
  harp_ns open_at;
  harp_ns abort_at; /* from then on one end closes it, whatever is under way; 0: never */
  bool is_aborted_by_receiver;
  uint32_t forge_ppm; /* the share of its packets that are forged. It must be aborted */
};

enum duo_stream_state { DUO_STREAM_NEW, DUO_STREAM_REQUESTED, DUO_STREAM_OPEN, DUO_STREAM_CLOSED };

struct duo_stream {
  struct duo_stream_config config;
  enum duo_stream_state tx_state, rx_state;
  bool tx_knows, rx_knows; /* this end knows that the other one has closed it */
  bool failed;             /* it was closed before all was done */
  bool forged;             /* what is placed may be anything */
  struct harp_tx_stream *tx;
  struct harp_rx_stream *rx;
  uint8_t *staging;
  uint32_t first, count; /* its part of the scenario's messages */
  uint32_t send_next, sent_count, recv_next, received_count;
  uint32_t last_tx_delivered, last_rx_delivered;
};

struct duo_config {
  uint64_t seed;
  bool is_one_way; /* end 0 only sends, end 1 only receives */
  unsigned path_count;
  struct harp_path_config paths[HARP_PATHS_MAX];
  unsigned stream_max; /* ids are below this; 0: 1 */
  uint32_t first_number;
  uint64_t skip_seed;    /* the seed of the packet numbers that senders skip; 0: none */
  uint32_t window_bytes; /* announced at the start, and as a buffer the largest that ever is */
  uint32_t window_ppm;   /* after an event the end announces another window */
  uint32_t absurd_ppm;   /* the share of acknowledgements whose window makes no sense */
  bool has_buffer;       /* what comes to a sleeping end must fit window_bytes */
  const struct harp_cc_ops *cc;
  uint32_t superframe_packets; /* most packets that the driver takes at once */
  bool pad;                    /* short packets in mid-superframe are padded, else they end it */
  uint32_t prompt_ppm;   /* the share of an end's passes that answer requests for acknowledgement at once */
  bool ride;             /* an acknowledgement that waits goes with the data of its path */
  bool batch;            /* all that is due is posted before anything is sent, else one by one */
  uint32_t refuse_ppm;   /* the driver drops a superframe that was polled already */
  uint32_t no_frame_ppm; /* a path was picked, and the driver has no frame: the pass ends for now */
  harp_ns no_frame_ns;   /* the longest time without a frame */
  uint32_t pause_ppm;    /* after an event, that end sleeps for up to pause_ns */
  harp_ns pause_ns;
  uint32_t down_ppm;     /* after an event that end's host reports that the link of some path went down */
  uint32_t stray_ppm;    /* the share of acknowledgements with the credit of a stream that is not open */
  harp_ns control_ns[2]; /* the longest delay of the control connection, to end 0 and to end 1 */
  uint32_t watched_ppm;  /* the share of receives whose buffer is read while it fills */
  uint32_t trouble_ppm;  /* after an event some tcp path's kernel shows loss or a queue */
  uint32_t hurry;        /* experiments are so many times shorter; 0: as in the product */
  struct tcpnet_config tcp;
  bool macs;           /* packets and records have MACs */
  uint32_t attack_ppm; /* after so many packets and heads comes a copy that somebody on the way has changed */
  bool trace;          /* keep the ends' traces; they go to trace_out as they grow */
};

struct duo_control {
  harp_ns at;
  uint8_t kind;
  struct duo_stream *stream;
  uint32_t delivered;
};

struct duo_end {
  unsigned index;
  const char *name;
  struct harp_session session;
  struct harp_counters counters;
  struct harp_trace trace;
  uint64_t traced[HARP_TRACE_PARTS]; /* entries printed or collected */
  struct harp_sender *sender;        /* NULL: the end does not send */
  struct harp_receiver *receiver;
  void *sender_memory, *receiver_memory;
  harp_ns deadline_ns; /* the deadline that the last pump returned */
  harp_ns users_ns;    /* when its users do something: as long as nothing happens at this end, if known */
  bool users_known;
  harp_ns tcp_ns; /* when its connections bring or take something, as duo_next_ns found it */
  harp_ns asleep_until_ns;
  harp_ns no_frame_until_ns;                     /* before this it may take input, and send nothing */
  struct duo_control controls[DUO_CONTROLS_MAX]; /* under way to it */
  uint32_t control_head, control_tail;
  struct duo_stream *sends[DUO_IDS_MAX], *receives[DUO_IDS_MAX]; /* the open streams, by id */
  struct duo_stream *owners[DUO_IDS_MAX];  /* the owners of its ids, until both ends have closed */
  uint64_t superframes, rides, acks_alone; /* sent */
  uint64_t prompts;                        /* passes that answered at once */
  uint32_t window_bytes;               /* the window that the other end announced last, as this one knows */
  uint64_t ack_next[SIMNET_PATHS_MAX]; /* the numbers of acknowledgements that may announce it */
  uint32_t buffered_bytes[HARP_WINDOWS_MAX]; /* the bytes that came while it sleeps, by its interface */
  uint64_t overflows;
  bool exceeds; /* it has sent data beyond the window: as a probe */
};

struct duo_tcp;
struct duo {
  char label[160];
  struct duo_config config;
  struct rng rng, attack_rng;
  struct simnet net;
  struct duo_tcp *tcp; /* NULL: there never were tcp paths */
  harp_ns now;
  struct duo_end ends[DUO_ENDS];
  uint8_t *arena, *pattern;
  uint64_t *bits;
  uint32_t arena_used, bits_used;
  struct duo_stream streams[DUO_STREAMS_MAX];
  unsigned stream_count;
  uint16_t live[DUO_STREAMS_MAX]; /* those that are not finished, or were not when duo_complete last looked */
  unsigned live_count;
  struct duo_message messages[DUO_MESSAGES_MAX];
  uint32_t count;
  uint32_t downs;
  bool forged; /* a packet was */
  bool faults; /* pauses, refusals and a lack of frames happen */
  uint64_t steps, same_instant;
  unsigned check_steps; /* the ends' whole state is checked once in so many steps; 0: as often as it can be */
  uint64_t data_packets, probe_packets, ack_packets; /* sent */
  uint64_t path_packets[SIMNET_PATHS_MAX];           /* sent by either end */
  FILE *trace_out; /* where traces go when config.trace is set; NULL: nowhere */
};

/* Takes and returns the memory that scenarios reuse, which a program whose `struct duo` is static need not
 * return. The struct must be zero before the first start. */
void duo_start(struct duo *d, const struct duo_config *config);
void duo_fini(struct duo *d);

/* Adds a stream. Its messages are those added before the next one is. */
struct duo_stream *duo_open(struct duo *d, const struct duo_stream_config *config);

/* Adds a message to the stream that was added last; times are absolute. */
void duo_add(struct duo *d, uint32_t bytes, uint32_t capacity, harp_ns send_at, harp_ns recv_at);

/* Returns whether all messages of all streams arrived, but those of streams that failed. */
bool duo_complete(struct duo *d);

/* Returns whether a stream is done, or failed and closed. */
bool duo_is_finished(const struct duo_stream *s);

/* Returns when the next event is; HARP_NEVER: none. */
harp_ns duo_next_ns(struct duo *d);

/* Runs one event if there is one before `until_ns`; else moves the clock there and returns false. */
bool duo_step(struct duo *d, harp_ns until_ns);

/* Runs until all messages are complete or the time has come; returns whether they are. */
bool duo_run(struct duo *d, harp_ns until_ns);

/* Ends every fault but those that simnet_heal leaves. */
void duo_heal(struct duo *d);

/* Final checks: buffers and guards. */
void duo_check_buffers(struct duo *d);

_Noreturn void duo_fail(const struct duo *d, const char *format, ...) HARP_PRINTF(2, 3);

static inline struct duo_message *duo_message(struct duo *d, const struct duo_stream *s, uint32_t k) {
  return &d->messages[s->first + k];
}

static inline void *duo_must(void *p) {
  if (!p) __builtin_abort();
  return p;
}

#endif
