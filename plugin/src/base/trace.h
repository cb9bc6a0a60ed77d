/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder: a ring of protocol events with time and numbers, one ring for each engine.
 *
 * It has three parts, so that frequent events do not overwrite rare ones: FLOW, what is sent and
 * acknowledged; RECOVERY, losses, probes and drops; STATE, changes of paths, sessions and streams. Whoever
 * holds the engine's lock writes, with a few stores an event and without a lock; another process may read at
 * the same time (docs/reference/trace.md). Golden tests compare its text. A NULL trace costs a branch. */
#ifndef HARP_TRACE_H
#define HARP_TRACE_H

#include <stdatomic.h>

#include "base/base.h"

#define HARP_TRACE_PATH_STATES    "new|up|down|dormant"
#define HARP_TRACE_SESSION_STATES "open|failed|closed"
#define HARP_TRACE_CONNECT_STATES                                                                            \
  "waiting|dialing|handshake|yielded|confirming|requested|opened|refused|lost|done"
#define HARP_TRACE_DIRECTIONS "send|receive"
#define HARP_TRACE_STATUSES   "ok|system error|remote error|invalid usage|invalid argument|internal error"
#define HARP_TRACE_DROPS                                                                                     \
  "none|short|version|type|field|token|path|stream|crc|duplicate|window|credit|contradiction|stale_ack|"     \
  "false_ack|direction|closed|replay|mac"

/* name, part, text: {field} stands for the number, {field:x|y} for the word of that number. */
#define HARP_EVENTS(X)                                                                                       \
  X(TX_DATA, FLOW, "path {path} sends packets {number}+{count} of stream {stream} at line {a}, {b} lines")   \
  X(TX_DUPLICATE, FLOW,                                                                                      \
    "path {path} duplicates as packets {number}+{count} of stream {stream} line {a}, {b} lines")             \
  X(TX_ACK, FLOW, "path {path} acknowledges up to {number}, {b} ns old, as {a}; credit of {count} streams")  \
  X(RX_ACK, FLOW, "path {path} acked up to {number} by {a}, window {b} bytes")                               \
  X(RX_DATA, FLOW, "path {path} packet {number} brings line {a} count {b}")                                  \
  X(SEND_POST, FLOW, "stream {stream} sends message {number} of {a} bytes")                                  \
  X(SENT, FLOW, "stream {stream} message {number} sent")                                                     \
  X(RECV_POST, FLOW, "stream {stream} receive {number} posted for {a} bytes")                                \
  X(TX_AGAIN, RECOVERY,                                                                                      \
    "path {path} resends as packets {number}+{count} of stream {stream} at line {a}, {b} lines")             \
  X(TX_PROBE, RECOVERY, "path {path} probes with packet {number} of {b} padding bytes")                      \
  X(RX_GAP, RECOVERY, "path {path} packet {number} came, {a} before it are missing")                         \
  X(RX_DUPLICATE, RECOVERY, "path {path} packet {number} repeats line {a}")                                  \
  X(RX_DROP, RECOVERY, "path {path} packet {number} dropped: {a:" HARP_TRACE_DROPS "}")                      \
  X(LOST, RECOVERY, "path {path} lost {count} packets from {number} on, line {a} first")                     \
  X(SPURIOUS, RECOVERY, "path {path} {count} packets from {number} on were not lost")                        \
  X(PTO, RECOVERY, "path {path} probe timeout number {a} after {b} us")                                      \
  X(WINDOW, RECOVERY, "path {path} window cut to {a} bytes, RTT {b} us")                                     \
  X(REFUSED, RECOVERY, "{a} superframes refused by the kernel and {b} deferred")                             \
  X(PATH_STATE, STATE,                                                                                       \
    "path {path} goes from {a:" HARP_TRACE_PATH_STATES "} to {b:" HARP_TRACE_PATH_STATES "}")                \
  X(PATH_SIZE, STATE, "path {path} packets from {a} to {b} lines")                                           \
  X(PATH_ECN, STATE, "path {path} {a:uses ECN again|does without ECN}")                                      \
  X(SESSION_OPEN, STATE, "session {number} opens over {a} paths")                                            \
  X(SESSION_STATE, STATE,                                                                                    \
    "session goes from {a:" HARP_TRACE_SESSION_STATES "} to {b:" HARP_TRACE_SESSION_STATES "}")              \
  X(CONNECT_STATE, STATE,                                                                                    \
    "a connect to engine {number} goes from {a:" HARP_TRACE_CONNECT_STATES                                   \
    "} to {b:" HARP_TRACE_CONNECT_STATES "}")                                                                \
  X(STREAM_OPEN, STATE, "stream {stream} opens to {a:" HARP_TRACE_DIRECTIONS "}")                            \
  X(STREAM_CLOSED, STATE,                                                                                    \
    "stream {stream} to {a:" HARP_TRACE_DIRECTIONS "} closes: {b:" HARP_TRACE_STATUSES "}")                  \
  X(TCP_TROUBLE, STATE, "path {path} its TCP connection shows {a:loss|a long queue}")                        \
  X(EXPERIMENT, STATE,                                                                                       \
    "an experiment with {number:more flows|the other carrier|the other way of payload} "                     \
    "{count:changes that|brings nothing|moves more|costs less CPU}: "                                        \
    "{a} percent of the time, {b} of the CPU")                                                               \
  X(TCP_CLOSED, STATE, "path {path} its TCP connection ended")                                               \
  X(STALL, STATE,                                                                                            \
    "NCCL has waited for {b} ms: {a:nothing|no receive at the peer|peer sends nothing|peer stopped|"         \
    "peer unreachable|no packet gets through|engine lacks a core}")                                          \
  X(NO_PASS, STATE, "the engine has had no pass for {b} ms")

enum harp_event {
#define X(name, part, text) HARP_EVENT_##name,
  HARP_EVENTS(X)
#undef X
      HARP_EVENT_COUNT
};

enum harp_trace_part { HARP_TRACE_FLOW, HARP_TRACE_RECOVERY, HARP_TRACE_STATE, HARP_TRACE_PARTS };

/* 768 KiB in all. At 100 Gbit/s an engine writes some 300 000 FLOW events a second, so that these reach back
 * 50 ms: hundreds of RTTs. */
enum {
  HARP_TRACE_FLOW_SLOTS = 16384,
  HARP_TRACE_RECOVERY_SLOTS = 4096,
  HARP_TRACE_STATE_SLOTS = 4096,
  HARP_TRACE_NO_PEER = 0xffff,
};

struct harp_trace_entry {
  harp_ns at_ns;
  uint64_t number;
  uint32_t a, b;
  uint16_t peer; /* the session's entry in the statistics; HARP_TRACE_NO_PEER */
  uint16_t stream;
  uint8_t event, path, count;
  uint8_t order; /* the number of events outside FLOW so far, this one included: the low byte */
};
_Static_assert(sizeof(struct harp_trace_entry) == 32, "half a cache line");

struct harp_trace_head {
  _Atomic uint64_t count;   /* the number of entries ever written; the last ones are kept */
  uint32_t at_bytes, slots; /* the place of the entries in the ring, and their number, a power of two */
  uint8_t reserved[48];
};

struct harp_trace_ring {
  struct harp_trace_entry flow[HARP_TRACE_FLOW_SLOTS]; /* first: its entries are found soonest */
  struct harp_trace_entry recovery[HARP_TRACE_RECOVERY_SLOTS];
  struct harp_trace_entry state[HARP_TRACE_STATE_SLOTS];
  struct harp_trace_head heads[HARP_TRACE_PARTS];
  uint8_t rare_count; /* the number of entries outside FLOW that were ever written */
};

/* The destination of one session's events, or of an engine's events that belong to no session. */
struct harp_trace {
  struct harp_trace_ring *ring;
  uint16_t peer;
  bool is_full;               /* each packet that comes has an event: for tests */
  uint32_t message_min_bytes; /* shorter messages have no events */
};

/* The product records a message only if it is long enough that its events do not count. */
enum { HARP_TRACE_MESSAGE_BYTES = 65536 };

/* Empties a ring. */
void harp_trace_init(struct harp_trace_ring *ring);

static inline enum harp_trace_part harp_trace_part_of(enum harp_event event) {
  static const uint8_t parts[] = {
#define X(name, part, text) HARP_TRACE_##part,
      HARP_EVENTS(X)
#undef X
  };
  return (enum harp_trace_part)parts[event];
}

static inline struct harp_trace_entry *harp_trace_slot(struct harp_trace_ring *ring,
                                                       enum harp_trace_part part, uint64_t i) {
  switch (part) {
  case HARP_TRACE_FLOW:
    return &ring->flow[i % HARP_TRACE_FLOW_SLOTS];
  case HARP_TRACE_RECOVERY:
    return &ring->recovery[i % HARP_TRACE_RECOVERY_SLOTS];
  default:
    return &ring->state[i % HARP_TRACE_STATE_SLOTS];
  }
}

/* Writes an event; fills in time, peer and order. */
static inline void harp_trace(const struct harp_trace *t, harp_ns now, struct harp_trace_entry e) {
  if (harp_unlikely(!t)) return;
  struct harp_trace_ring *ring = t->ring;
  enum harp_trace_part part = harp_trace_part_of((enum harp_event)e.event);
  uint64_t i = atomic_load_explicit(&ring->heads[part].count, memory_order_relaxed);
  e.at_ns = now;
  e.peer = t->peer;
  e.order = part == HARP_TRACE_FLOW ? ring->rare_count : ++ring->rare_count;
  *harp_trace_slot(ring, part, i) = e;
  /* (N) A reader that sees the count sees the entry. */
  atomic_store_explicit(&ring->heads[part].count, i + 1, memory_order_release);
}

/* Returns whether a message is long enough to have events. */
static inline bool harp_trace_is_long(const struct harp_trace *t, uint32_t bytes) {
  return t && bytes >= t->message_min_bytes;
}

/* One line for each event, in order: "NAME PART TEXT". */
extern const char harp_trace_schema[];
extern const uint32_t harp_trace_schema_bytes;

#endif
