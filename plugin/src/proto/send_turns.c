/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_turns.h"

#include "proto/send.h"

/* Returns the first stream of a class that has something to send. One that has nothing leaves the list until
 * it has. */
static struct harp_tx_stream *first_ready_stream(struct harp_sender *s, unsigned class) {
  struct harp_tx_list *list = &s->load.ready[class];
  struct harp_tx_stream *st;
  while ((st = list->first) && !st->resend.count && !harp_tx_stream_new_lines(st))
    harp_tx_list_pop(list)->is_ready = false;
  return st;
}

struct harp_tx_stream *harp_send_turns_next(struct harp_sender *s) {
  if (harp_likely(!s->load.ready[HARP_TX_SMALL].first)) return first_ready_stream(s, HARP_TX_LARGE);
  struct harp_tx_stream *small = first_ready_stream(s, HARP_TX_SMALL),
                        *large = first_ready_stream(s, HARP_TX_LARGE);
  return small && (!large || s->turns.small_lines < HARP_TURN_LINES) ? small : large;
}

static void move_first_to_end(struct harp_tx_list *list) {
  harp_tx_list_push(list, harp_tx_list_pop(list));
}

/* Passes the turn to the next stream of the list that may send. One that sent more than its share in a turn
 * is passed over until it has made up for it; one that has some of it left keeps that. */
static void pass_turn(struct harp_tx_list *list) {
  if (list->first->deficit_lines > 0) move_first_to_end(list);
  while (list->first->deficit_lines <= 0) {
    list->first->deficit_lines += HARP_TURN_LINES;
    move_first_to_end(list);
  }
}

/* The stream has come to another message: moves it where that belongs; returns whether that is elsewhere. One
 * that has no more to send leaves when its turn comes. */
static bool move_to_its_class(struct harp_sender *s, struct harp_tx_stream *st) {
  if (!st->resend.count && !harp_tx_stream_new_lines(st)) return false;
  unsigned class = harp_tx_stream_class(st);
  if (class == st->class) return false;
  harp_tx_list_pop(&s->load.ready[st->class]);
  st->class = (uint8_t) class;
  st->deficit_lines = HARP_TURN_LINES;
  harp_tx_list_push(&s->load.ready[class], st);
  return true;
}

void harp_send_turns_on_sent(struct harp_sender *s, struct harp_tx_stream *st, uint32_t message,
                             uint32_t lines, bool is_slow) {
  struct harp_tx_list *list = &s->load.ready[st->class];
  HARP_ASSERT(list->first == st);
  if (st->class == HARP_TX_LARGE)
    s->turns.small_lines -= HARP_MIN(lines, s->turns.small_lines);
  else if (s->load.ready[HARP_TX_LARGE].first)
    s->turns.small_lines += lines;
  if ((message != st->next && move_to_its_class(s, st)) || list->last == st) return;
  st->deficit_lines -= (int32_t)lines;
  if (is_slow || st->deficit_lines <= 0) pass_turn(list);
}
