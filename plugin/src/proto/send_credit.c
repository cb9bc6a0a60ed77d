/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_credit.h"

#include "base/assert.h"
#include "proto/send.h"

#define CREDIT_PROBE_FIRST_NS HARP_MS(2)
#define CREDIT_PROBE_SOON_NS  HARP_US(1)
#define CREDIT_PROBE_MAX_NS   HARP_MS(256)
#define CREDIT_POLL_NS        HARP_MS(1) /* between two looks at the streams that wait for it */

/* Returns the eligible paths that take nothing now, a bit each. */
static uint64_t blocked_paths(const struct harp_sender *s) {
  uint64_t blocked = 0;
  HARP_EACH_BIT (i, s->set.eligible) blocked |= (uint64_t)s->paths[i].blocked << i;
  return blocked;
}

/* Returns the path over which to request credit; NULL: none can send. */
static struct harp_path *credit_probe_path(struct harp_sender *s) {
  HARP_EACH_BIT (i, harp_stripe_answering(s->paths, s->set.eligible & ~blocked_paths(s))) {
    struct harp_path *p = &s->paths[i];
    if (!harp_flight_is_full(&p->flight)) return p;
  }
  return NULL;
}

/* Removes streams from the list that have credit again; returns whether one is due to request it. */
static bool remove_credited_streams(struct harp_send_credit *c, harp_ns now) {
  bool due = false;
  for (struct harp_tx_stream **at = &c->waiting_first, *st; (st = *at);) {
    if (harp_tx_stream_lacks_credit(st)) {
      due |= st->credit_probe_ns <= now;
      at = &st->next_waiting;
    } else {
      st->is_waiting = false;
      *at = st->next_waiting;
    }
  }
  return due;
}

void harp_send_credit_on_time(struct harp_sender *s, harp_ns now) {
  struct harp_send_credit *c = &s->credit;
  struct harp_path *p = remove_credited_streams(c, now) ? credit_probe_path(s) : NULL;
  c->probe_ns = HARP_NEVER;
  if (p) {
    c->is_wanted = true;
    c->path = p->index;
    harp_path_set_request_probe(s, p);
  }
  for (struct harp_tx_stream *st = c->waiting_first; st; st = st->next_waiting) {
    HARP_ASSERT(st->is_waiting && harp_tx_stream_lacks_credit(st));
    harp_ns wait_ns = HARP_MIN(CREDIT_PROBE_FIRST_NS << HARP_MIN(st->credit_probes, 7u), CREDIT_PROBE_MAX_NS);
    if (p && st->credit_probe_ns <= now + wait_ns / 2) {
      st->credit_probes++;
      st->credit_probe_ns = now + HARP_MIN(2 * wait_ns, CREDIT_PROBE_MAX_NS);
    }
    c->probe_ns = HARP_MIN(c->probe_ns, HARP_MAX(st->credit_probe_ns, now + CREDIT_POLL_NS));
  }
}

void harp_send_credit_begin_waiting(struct harp_send_credit *c, struct harp_tx_stream *st, harp_ns now) {
  if (st->is_waiting && st->wanted == st->next) return;
  st->wanted = st->next;
  st->credit_probes = 0;
  bool is_held_back = st->was_small && harp_tx_stream_message(st, st->next)->bytes > HARP_EARLY_MAX_BYTES;
  st->credit_probe_ns = now + (is_held_back ? CREDIT_PROBE_SOON_NS : CREDIT_PROBE_FIRST_NS);
  c->probe_ns = HARP_MIN(c->probe_ns, st->credit_probe_ns);
  if (st->is_waiting) return;
  st->is_waiting = true;
  st->next_waiting = c->waiting_first;
  c->waiting_first = st;
}

void harp_send_credit_on_closed(struct harp_send_credit *c, struct harp_tx_stream *st) {
  if (!st->is_waiting) return;
  struct harp_tx_stream **at = &c->waiting_first;
  while (*at != st) at = &(*at)->next_waiting;
  *at = st->next_waiting;
}
