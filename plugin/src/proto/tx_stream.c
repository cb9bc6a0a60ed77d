/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tx_stream.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/seq.h"
#include "wire/packet.h"

void harp_tx_stream_init(struct harp_tx_stream *st, const struct harp_tx_stream_config *config,
                         struct harp_tx_load *load, const struct harp_trace *trace,
                         struct harp_counters *counters) {
  st->load = load;
  st->trace = trace;
  st->counters = counters;
  st->id = config->id;
  st->owner = NULL;
  st->is_ready = st->is_waiting = st->is_changed = st->was_small = false;
  st->next_ready = st->next_waiting = st->next_changed = NULL;
  st->deficit_lines = 0;
  st->done = st->oldest = st->next = st->let_go = st->tail = st->posted = config->first_message;
  st->delivered = st->sent_line = st->tail_line = config->first_line;
  st->ahead = st->credited = 0;
  memset(&st->acked, 0, sizeof st->acked);
  harp_resend_init(&st->resend, config->first_line);
}

/* ---- what may go ---- */

static bool has_credit(const struct harp_tx_stream *st, uint32_t m) {
  if (harp_seq_before(m, st->posted)) return true;
  return harp_tx_stream_message(st, m)->bytes <= HARP_EARLY_MAX_BYTES &&
         harp_seq_before(m, st->posted + HARP_EARLY_MESSAGES);
}

/* Lets the messages go that credit covers by now. */
static void let_go(struct harp_tx_stream *st) {
  while (st->let_go != st->tail && has_credit(st, st->let_go)) {
    const struct harp_send_message *m = harp_tx_stream_message(st, st->let_go++);
    st->load->waiting_lines += m->lines;
    st->load->awaited += m->is_awaited;
    st->load->large += harp_send_message_is_large(m);
  }
}

uint32_t harp_tx_stream_waiting_lines(const struct harp_tx_stream *st) {
  uint32_t end = st->let_go == st->tail ? st->tail_line : harp_tx_stream_message(st, st->let_go)->line;
  return end - st->sent_line;
}

uint32_t harp_tx_stream_new_lines(const struct harp_tx_stream *st) {
  if (st->next == st->let_go) return 0;
  const struct harp_send_message *m = harp_tx_stream_message(st, st->next);
  uint32_t left = m->line + m->lines - st->sent_line;
  uint32_t window = HARP_WINDOW_LINES - (st->sent_line - st->delivered);
  return HARP_MIN(left, window);
}

void harp_tx_list_push(struct harp_tx_list *list, struct harp_tx_stream *st) {
  st->next_ready = NULL;
  if (list->last)
    list->last->next_ready = st;
  else
    list->first = st;
  list->last = st;
}

struct harp_tx_stream *harp_tx_list_pop(struct harp_tx_list *list) {
  struct harp_tx_stream *st = list->first;
  list->first = st->next_ready;
  if (!list->first) list->last = NULL;
  return st;
}

/* Messages queue when one is posted while half a superframe of others waits, or more than QUEUE_MESSAGES are
 * under way: whoever waits for an answer to each has at most five, since acknowledgements wait for data to
 * travel with. They are taken to go on doing so until QUEUE_POSTS in a row found less: each carrier is slower
 * when messages alternate between both.
 *
 * Where BULK_WINDOWS times the windows of the datagrams wait, the network is what limits and not a processor.
 * Datagrams are no gain then: their windows are small, and need this process each time one has been
 * acknowledged, while a kernel goes on by itself. */
enum {
  QUEUE_LINES = HARP_TURN_LINES / 2,
  QUEUE_MESSAGES = 6,
  QUEUE_POSTS = 32,
  BULK_WINDOWS = 2,
  BULK_POSTS = 16384
};

static void update_bulk(struct harp_tx_load *load) {
  if (load->waiting_lines / BULK_WINDOWS >= load->window_lines)
    load->bulk_posts = BULK_POSTS;
  else if (load->bulk_posts)
    load->bulk_posts--;
}

static void update_queue(struct harp_tx_load *load, uint32_t bytes) {
  if (bytes > HARP_SMALL_MAX_BYTES && bytes <= HARP_SMALL_QUEUED_MAX_BYTES) update_bulk(load);
  if (load->waiting_lines >= QUEUE_LINES || load->messages > QUEUE_MESSAGES)
    load->queue_posts = QUEUE_POSTS;
  else if (load->queue_posts)
    load->queue_posts--;
}

unsigned harp_tx_stream_class(const struct harp_tx_stream *st) {
  uint32_t m = st->resend.count ? st->oldest : st->next;
  bool is_queue = st->load->queue_posts && !st->load->bulk_posts;
  uint32_t small_bytes = is_queue ? HARP_SMALL_QUEUED_MAX_BYTES : HARP_SMALL_MAX_BYTES;
  return harp_tx_stream_message(st, m)->bytes <= small_bytes ? HARP_TX_SMALL : HARP_TX_LARGE;
}

/* Puts the stream among those that may have something to send. The sender takes it out when it has not. */
static void stream_became_ready(struct harp_tx_stream *st) {
  if (st->is_ready || (!st->resend.count && !harp_tx_stream_new_lines(st))) return;
  st->is_ready = true;
  st->class = (uint8_t)harp_tx_stream_class(st);
  st->deficit_lines = HARP_TURN_LINES;
  harp_tx_list_push(&st->load->ready[st->class], st);
}

/* ---- what the caller is to look at ---- */

static void stream_changed(struct harp_tx_stream *st) {
  if (st->is_changed) return;
  st->is_changed = true;
  st->next_changed = st->load->changed_first;
  st->load->changed_first = st;
}

struct harp_tx_stream *harp_tx_load_take_changed(struct harp_tx_load *load) {
  struct harp_tx_stream *st = load->changed_first;
  if (!st) return NULL;
  load->changed_first = st->next_changed;
  st->is_changed = false;
  return st;
}

/* ---- messages and credit ---- */

int harp_tx_stream_post(struct harp_tx_stream *st, const void *data, uint32_t bytes, void *cookie,
                        bool is_awaited, harp_ns now) {
  HARP_ASSERT(bytes <= HARP_MESSAGE_MAX_BYTES);
  if (st->tail - st->done == HARP_MESSAGES_MAX) return -EAGAIN;
  uint32_t lines = harp_lines_of(bytes);
  st->messages[st->tail % HARP_MESSAGES_MAX] =
      (struct harp_send_message){data, cookie, bytes, st->tail_line, lines, is_awaited};
  if (harp_trace_is_long(st->trace, bytes))
    harp_trace(st->trace, now,
               (struct harp_trace_entry){
                   .event = HARP_EVENT_SEND_POST, .stream = st->id, .number = st->tail, .a = bytes});
  st->tail_line += lines;
  st->tail++;
  st->load->messages++;
  update_queue(st->load, bytes);
  let_go(st);
  stream_became_ready(st);
  return 0;
}

/* Credit may be overtaken by newer credit by this much: later it would be for numbers that have wrapped. */
#define CREDITED_MAX (1u << 30)

bool harp_tx_stream_on_credit(struct harp_tx_stream *st, uint32_t posted) {
  bool is_news = harp_seq_after(posted, st->posted);
  if (is_news ? harp_seq_after(posted, st->next + HARP_MESSAGES_MAX) : st->posted - posted > st->credited) {
    st->counters->absurd_credits++;
    return false;
  }
  if (!is_news) return false;
  st->credited = HARP_MIN(st->credited + (posted - st->posted), CREDITED_MAX);
  st->posted = posted;
  stream_changed(st);
  let_go(st);
  stream_became_ready(st);
  return true;
}

/* ---- what arrived ---- */

static void remove_resend(struct harp_tx_stream *st, uint32_t line, uint32_t lines) {
  uint32_t before = st->resend.count;
  harp_resend_remove(&st->resend, line, lines);
  st->load->resend_lines -= before - st->resend.count;
}

/* Completes the messages that `delivered` has passed; more of the window is free now. */
static void complete_messages(struct harp_tx_stream *st, harp_ns now) {
  while (st->oldest != st->tail) {
    const struct harp_send_message *m = harp_tx_stream_message(st, st->oldest);
    if (harp_seq_before(st->delivered, m->line + m->lines)) break;
    if (harp_unlikely(st->trace && st->trace->is_full)) /* acknowledgements show as much */
      harp_trace(st->trace, now,
                 (struct harp_trace_entry){.event = HARP_EVENT_SENT, .stream = st->id, .number = st->oldest});
    st->oldest++;
    st->load->messages--;
    st->load->awaited -= m->is_awaited;
    st->load->large -= harp_send_message_is_large(m);
    st->counters->messages_sent++;
    stream_changed(st);
  }
  stream_became_ready(st);
}

/* Moves `delivered` over lines that were acknowledged before, and makes their bits free for the next turn of
 * the map. */
static void deliver_next_lines(struct harp_tx_stream *st) {
  if (!st->ahead) return;
  uint32_t run = harp_linemap_run(&st->acked, st->delivered, HARP_WINDOW_LINES, true);
  harp_linemap_clear(&st->acked, st->delivered, run);
  st->delivered += run;
  st->ahead -= run;
}

static uint32_t mark_acked(struct harp_tx_stream *st, uint32_t line, uint32_t lines) {
  uint32_t fresh = 0;
  while (lines) {
    uint32_t known = harp_linemap_run(&st->acked, line, lines, true);
    line += known, lines -= known;
    uint32_t run = harp_linemap_run(&st->acked, line, lines, false);
    harp_linemap_set(&st->acked, line, run);
    line += run, lines -= run, fresh += run;
  }
  return fresh;
}

void harp_tx_stream_on_acked(struct harp_tx_stream *st, uint32_t line, uint32_t lines, harp_ns now) {
  if (harp_seq_before(line, st->delivered)) { /* a part was acknowledged by another packet */
    uint32_t gone = st->delivered - line;
    if (gone >= lines) return;
    line += gone, lines -= gone;
  }
  HARP_ASSERT(!harp_seq_after(line + lines, st->sent_line));
  if (harp_unlikely(st->resend.count)) remove_resend(st, line, lines);
  if (line != st->delivered) {
    st->ahead += mark_acked(st, line, lines);
    return;
  }
  if (harp_unlikely(st->ahead)) { /* some of them may be known already */
    st->ahead += mark_acked(st, line, lines);
    deliver_next_lines(st);
  } else {
    st->delivered += lines;
  }
  complete_messages(st, now);
}

void harp_tx_stream_on_delivered(struct harp_tx_stream *st, uint32_t delivered, harp_ns now) {
  bool is_absurd = harp_seq_after(delivered, st->sent_line);
  st->counters->absurd_deliveries += is_absurd;
  if (is_absurd || !harp_seq_after(delivered, st->delivered)) return;
  harp_tx_stream_on_acked(st, st->delivered, delivered - st->delivered, now);
}

/* ---- what was lost ---- */

void harp_tx_stream_on_lost(struct harp_tx_stream *st, uint32_t line, uint32_t lines) {
  if (harp_seq_before(line, st->delivered)) {
    uint32_t gone = st->delivered - line;
    if (gone >= lines) return;
    line += gone, lines -= gone;
  }
  while (lines) {
    uint32_t known = st->ahead ? harp_linemap_run(&st->acked, line, lines, true) : 0;
    line += known, lines -= known;
    uint32_t run = st->ahead ? harp_linemap_run(&st->acked, line, lines, false) : lines;
    uint32_t before = st->resend.count;
    if (run) harp_resend_add(&st->resend, line, run, st->delivered);
    st->load->resend_lines += st->resend.count - before;
    line += run, lines -= run;
  }
  stream_became_ready(st);
}

uint32_t harp_tx_stream_lost_lines(struct harp_tx_stream *st, uint32_t limit, uint32_t *line) {
  return harp_resend_first(&st->resend, limit, line);
}

uint32_t harp_tx_stream_message_of(const struct harp_tx_stream *st, uint32_t line) {
  for (uint32_t m = st->oldest; m != st->tail; m++) {
    const struct harp_send_message *msg = harp_tx_stream_message(st, m);
    if (line - msg->line < msg->lines) return m;
  }
  HARP_ASSERT(!"line of no message");
  return 0;
}

void harp_tx_stream_take_new(struct harp_tx_stream *st, uint32_t lines) {
  const struct harp_send_message *m = harp_tx_stream_message(st, st->next);
  st->sent_line += lines;
  st->load->waiting_lines -= lines;
  HARP_ASSERT(!harp_seq_after(st->sent_line, m->line + m->lines));
  if (st->sent_line != m->line + m->lines) return;
  st->was_small = m->bytes <= HARP_EARLY_MAX_BYTES;
  st->next++;
}

void harp_tx_stream_take_lost(struct harp_tx_stream *st, uint32_t line, uint32_t lines) {
  remove_resend(st, line, lines);
}

/* ---- the end ---- */

bool harp_tx_stream_poll_done(struct harp_tx_stream *st, void **cookie) {
  if (st->done == st->oldest) return false;
  *cookie = harp_tx_stream_message(st, st->done++)->cookie;
  return true;
}

void harp_tx_stream_close(struct harp_tx_stream *st) {
  struct harp_tx_load *load = st->load;
  load->messages -= st->tail - st->oldest;
  for (uint32_t m = st->oldest; m != st->let_go; m++) {
    load->awaited -= harp_tx_stream_message(st, m)->is_awaited;
    load->large -= harp_send_message_is_large(harp_tx_stream_message(st, m));
  }
  load->waiting_lines -= harp_tx_stream_waiting_lines(st);
  load->resend_lines -= st->resend.count;
  struct harp_tx_stream **changed = &load->changed_first;
  while (st->is_changed && *changed != st) changed = &(*changed)->next_changed;
  if (st->is_changed) *changed = st->next_changed;
  st->is_changed = false;
  if (!st->is_ready) return;
  struct harp_tx_list *list = &load->ready[st->class];
  struct harp_tx_stream **at = &list->first, *before = NULL;
  while (*at != st) before = *at, at = &(*at)->next_ready;
  *at = st->next_ready;
  if (list->last == st) list->last = before;
  st->is_ready = false;
}

void harp_tx_stream_check(const struct harp_tx_stream *st) {
  HARP_ASSERT(st->tail - st->done <= HARP_MESSAGES_MAX);
  HARP_ASSERT(st->oldest - st->done <= st->tail - st->done && st->next - st->oldest <= st->tail - st->oldest);
  HARP_ASSERT(st->let_go - st->next <= st->tail - st->next);
  HARP_ASSERT(st->let_go == st->tail || !has_credit(st, st->let_go));
  HARP_ASSERT(st->sent_line - st->delivered <= HARP_WINDOW_LINES);
  HARP_ASSERT(!harp_seq_after(st->sent_line, st->tail_line));
  HARP_ASSERT(st->resend.count + st->ahead <= st->sent_line - st->delivered);
  HARP_ASSERT(st->sent_line == st->delivered || !harp_linemap_test(&st->acked, st->delivered));
  HARP_ASSERT(st->is_ready || (!st->resend.count && !harp_tx_stream_new_lines(st)));
}
