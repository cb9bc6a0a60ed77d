/* SPDX-License-Identifier: Apache-2.0 */
/* The sending end of a stream, sans-IO: the messages of one NCCL connection on their way to the peer, which
 * of their lines have arrived, which must be sent again, and how far the peer's posted receives allow it to
 * go.
 *
 * Owns struct harp_tx_stream and struct harp_tx_load, which sums up what all streams of a sender have to
 * send; the fields of send_turns.c, send_credit.c and send_carrier.c are named there. Owned by one engine. A
 * stream has nothing to do with paths: the sender (send.h) takes lines from it, and reports which were
 * acknowledged and which were lost. Rules:
 *
 *   1. Every message takes the next lines of 128 bytes of the stream's line sequence, at least one. So one
 *      32-bit number says both how far the receiver got and how much window is left.
 *   2. A message may be sent when its receive is posted, or early: when it is small and one of the next
 *      HARP_EARLY_MESSAGES. HARP_WINDOW_LINES bounds the lines between the first one that was not
 *      acknowledged and the last one sent.
 *   3. A message is done when all of its lines were acknowledged, and all messages before it are done.
 *   4. Which messages count as small depends on what else waits, since each carrier is slower when messages
 *      alternate between both (update_queue and update_bulk in tx_stream.c). */
#ifndef HARP_TX_STREAM_H
#define HARP_TX_STREAM_H

#include "base/counters.h"
#include "base/trace.h"
#include "proto/limits.h"
#include "proto/resend.h"

/* Lines that a stream sends before it is another's turn: about a superframe. */
enum { HARP_TURN_LINES = 480 };

struct harp_tx_stream;

/* Streams that may have something to send now, in turn: those whose next message is small, and the others. */
enum { HARP_TX_SMALL, HARP_TX_LARGE, HARP_TX_CLASSES };

struct harp_tx_list {
  struct harp_tx_stream *first, *last;
};

/* All that the streams of one sender have to send. */
struct harp_tx_load {
  uint32_t messages;      /* the messages that are posted and not done */
  uint32_t awaited;       /* the messages with credit whose poster waits until they are delivered */
  uint32_t large;         /* the messages with credit, not done, of more than HARP_SMALL_QUEUED_MAX_BYTES */
  uint32_t waiting_lines; /* the lines with credit that were never sent */
  uint32_t resend_lines;  /* the lines that were lost and not sent again yet */
  uint32_t queue_posts;   /* messages queue until so many more have found no queue; 0: they do not */
  uint32_t bulk_posts; /* the network limits until so many more have found that it does not; 0: it does not */
  uint32_t window_lines;                      /* send_carrier.c: the most lines of datagrams in flight */
  struct harp_tx_list ready[HARP_TX_CLASSES]; /* send_turns.c moves streams within and between these */
  struct harp_tx_stream *changed_first;       /* the list of streams that the caller is to look at */
};

struct harp_send_message {
  const uint8_t *data; /* borrowed from the poster until done */
  void *cookie;
  uint32_t bytes, line, lines;
  bool is_awaited;
};

/* Returns whether a message takes the carrier of large ones, however many are under way. */
static inline bool harp_send_message_is_large(const struct harp_send_message *m) {
  return m->bytes > HARP_SMALL_QUEUED_MAX_BYTES;
}

struct harp_tx_stream {
  struct harp_tx_load *load; /* the load of the sender that it is open on */
  const struct harp_trace *trace;
  struct harp_counters *counters;
  uint16_t id; /* the id in packets */
  void *owner; /* the opener sets it, for itself */

  /* its place in the load's lists, in which send_turns.c moves it */
  bool is_ready; /* it is in the list of `class` */
  uint8_t class;
  struct harp_tx_stream *next_ready;
  int32_t deficit_lines; /* the lines that it may still send in its turn */
  bool is_changed;       /* messages were delivered, or credit came, since take_changed took it */
  struct harp_tx_stream *next_changed;

  /* send_credit.c writes these, while credit is lacking */
  bool is_waiting; /* it is in the sender's list of streams that wait for credit */
  struct harp_tx_stream *next_waiting;
  uint32_t wanted;         /* the message that waits for credit */
  uint32_t credit_probes;  /* the requests for its credit so far */
  harp_ns credit_probe_ns; /* the time when the next request is due */

  /* messages: [done, oldest) delivered and not yet polled, [oldest, next) under way, [next, tail) not begun;
   * `next` may be partly sent up to sent_line. Those before `let_go` have credit. */
  uint32_t done, oldest, next, let_go, tail;

  /* lines and credit */
  uint32_t delivered; /* the first line that was not acknowledged */
  uint32_t sent_line; /* the first line that was never sent */
  uint32_t tail_line; /* the first line of no message */
  uint32_t posted;    /* the messages before this one have their receive posted */
  uint32_t credited;  /* `posted` has risen by so much; CREDITED_MAX at most */
  uint32_t ahead;     /* the number of lines in `acked` */
  bool was_small;     /* the message that was sent last could come early */

  struct harp_send_message messages[HARP_MESSAGES_MAX];
  struct harp_linemap acked; /* the lines beyond `delivered` that were acknowledged */
  struct harp_resend resend; /* the lines that were lost and not sent again yet */
};

struct harp_tx_stream_config {
  uint16_t id;
  uint32_t first_line, first_message;
};

void harp_tx_stream_init(struct harp_tx_stream *st, const struct harp_tx_stream_config *config,
                         struct harp_tx_load *load, const struct harp_trace *trace,
                         struct harp_counters *counters);

/* Posts a message. The data is borrowed until poll_done returns `cookie`; is_awaited: somebody waits for
 * that. Returns -EAGAIN when HARP_MESSAGES_MAX messages are under way. */
int harp_tx_stream_post(struct harp_tx_stream *st, const void *data, uint32_t bytes, void *cookie,
                        bool is_awaited, harp_ns now) HARP_MUST_CHECK;

/* Takes the receiver's credit: messages before `posted` have their receive. Returns whether that is news.
 * Credit that no receiver of this stream can have given, for more receives than it can have or from before
 * the first message, is ignored and counted: it is nonsense, or of an earlier stream of the same id. */
bool harp_tx_stream_on_credit(struct harp_tx_stream *st, uint32_t posted);

/* Learns that a run of lines arrived. Each of them was sent. */
void harp_tx_stream_on_acked(struct harp_tx_stream *st, uint32_t line, uint32_t lines, harp_ns now);

/* Learns that all lines before `delivered` arrived; ignores and counts what was never sent. */
void harp_tx_stream_on_delivered(struct harp_tx_stream *st, uint32_t delivered, harp_ns now);

/* Learns that a run of lines was lost; those that arrived by other packets are not sent again. */
void harp_tx_stream_on_lost(struct harp_tx_stream *st, uint32_t line, uint32_t lines);

/* Returns whether there is a next message and it may not be sent for lack of credit. */
static inline bool harp_tx_stream_lacks_credit(const struct harp_tx_stream *st) {
  return st->next == st->let_go && st->let_go != st->tail;
}

/* Returns how many lines were never sent and have credit. */
uint32_t harp_tx_stream_waiting_lines(const struct harp_tx_stream *st);

/* Returns the class of the message that the stream sends next, which is that of its list. It has something to
 * send. */
unsigned harp_tx_stream_class(const struct harp_tx_stream *st);

/* Returns how many new lines of one message, from sent_line on, credit and window allow now. */
uint32_t harp_tx_stream_new_lines(const struct harp_tx_stream *st);

/* Finds the first run of lines to be sent again, of at most `limit`; returns its length, 0 when there is
 * none. */
uint32_t harp_tx_stream_lost_lines(struct harp_tx_stream *st, uint32_t limit, uint32_t *line);

/* Returns the message under way that holds a line, which is never before the oldest. */
uint32_t harp_tx_stream_message_of(const struct harp_tx_stream *st, uint32_t line);

/* Count lines as sent: new ones (from sent_line on, of one message), or ones that were lost. */
void harp_tx_stream_take_new(struct harp_tx_stream *st, uint32_t lines);
void harp_tx_stream_take_lost(struct harp_tx_stream *st, uint32_t line, uint32_t lines);

/* Takes a delivered message, oldest first: returns true and its cookie. */
bool harp_tx_stream_poll_done(struct harp_tx_stream *st, void **cookie);

/* Returns whether a message was posted and not given back: its data may be read. */
static inline bool harp_tx_stream_holds(const struct harp_tx_stream *st, uint32_t message) {
  return message - st->done < st->tail - st->done;
}

/* Returns whether messages were posted and not delivered. */
static inline bool harp_tx_stream_is_owed(const struct harp_tx_stream *st) {
  return st->oldest != st->tail;
}

/* Takes a stream of the load that has delivered messages to poll, or more credit; NULL: none has. */
struct harp_tx_stream *harp_tx_load_take_changed(struct harp_tx_load *load);

/* Removes the stream from the load: none of its lines is sent any more. */
void harp_tx_stream_close(struct harp_tx_stream *st);

/* Asserts the invariants; for tests. */
void harp_tx_stream_check(const struct harp_tx_stream *st);

/* Appends a stream to a list; takes the first. */
void harp_tx_list_push(struct harp_tx_list *list, struct harp_tx_stream *st);
struct harp_tx_stream *harp_tx_list_pop(struct harp_tx_list *list);

static inline const struct harp_send_message *harp_tx_stream_message(const struct harp_tx_stream *st,
                                                                     uint32_t m) {
  return &st->messages[m % HARP_MESSAGES_MAX];
}

#endif
