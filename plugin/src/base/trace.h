/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of protocol events: what happened, when, with up to four numbers. Golden tests compare its text; a
 * stuck job's last events tell why. Writing one event is a few stores; a NULL trace costs a branch. */
#ifndef HARP_TRACE_H
#define HARP_TRACE_H

#include "base/base.h"

/* name, printf format of the four arguments (each used as uint64_t, unused ones ignored) */
#define HARP_EVENTS(X)                                                                                       \
  X(SEND_POST, "send message %llu of %llu bytes")                                                            \
  X(RECV_POST, "receive %llu posted for %llu bytes")                                                         \
  X(TX_DATA, "path %llu sends packets %llu+%llu at line %llu")                                               \
  X(TX_AGAIN, "path %llu resends as packets %llu+%llu at line %llu")                                         \
  X(TX_PROBE, "path %llu probes with packet %llu of %llu padding bytes")                                     \
  X(TX_ACK, "path %llu acknowledges up to %llu, credit of %llu stream(s)")                                   \
  X(RX_DATA, "path %llu packet %llu brings line %llu count %llu")                                            \
  X(RX_DUPLICATE, "path %llu packet %llu repeats line %llu")                                                 \
  X(RX_DROP, "path %llu packet %llu dropped, reason %llu")                                                   \
  X(RX_ACK, "path %llu acked up to %llu, %llu message(s) under way")                                         \
  X(LOST, "path %llu lost packet %llu at line %llu count %llu")                                              \
  X(SPURIOUS, "path %llu packet %llu was not lost")                                                          \
  X(PTO, "path %llu probe timeout number %llu after %llu ns")                                                \
  X(SENT, "message %llu sent")                                                                               \
  X(RECEIVED, "message %llu received, %llu bytes")                                                           \
  X(PATH_STATE, "path %llu goes from state %llu to %llu")                                                    \
  X(PATH_SIZE, "path %llu packets from %llu to %llu lines")                                                  \
  X(WINDOW, "path %llu window %llu bytes, rtt %llu ns")                                                      \
  X(SESSION_STATE, "session goes from state %llu to %llu")

enum harp_event {
#define X(name, format) HARP_EVENT_##name,
  HARP_EVENTS(X)
#undef X
      HARP_EVENT_COUNT
};

enum { HARP_TRACE_SLOTS = 1024 };

struct harp_trace_entry {
  harp_ns at_ns;
  enum harp_event event;
  uint64_t arg[4];
};

struct harp_trace {
  uint64_t count; /* ever written; the last HARP_TRACE_SLOTS are kept */
  struct harp_trace_entry slots[HARP_TRACE_SLOTS];
};

static inline void harp_trace(struct harp_trace *t, harp_ns now, enum harp_event event, uint64_t a,
                              uint64_t b, uint64_t c, uint64_t d) {
  if (harp_likely(!t)) return;
  t->slots[t->count++ % HARP_TRACE_SLOTS] = (struct harp_trace_entry){now, event, {a, b, c, d}};
}

/* Writes one entry as text without newline ("[   12.345 us] path 0 ..."); returns its length as snprintf
 * does. */
int harp_trace_format(const struct harp_trace_entry *e, char *text, size_t text_bytes);

#endif
