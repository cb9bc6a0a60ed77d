/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/control/answers.h"
#include "engine/engine.h"
#include "host/sparse.h"

/* ---- making ---- */

int harp_link_free_stream(const struct harp_peer *peer) {
  for (unsigned i = 0; i < HARP_STREAMS_MAX; i++) {
    unsigned id = (peer->stream_next + i) % HARP_STREAMS_MAX;
    if (!harp_sender_stream(peer->session.sender, (uint16_t)id)) return (int)id;
  }
  return -1;
}

/* Lets NCCL's thread know how many messages the peer takes by now. Nothing else depends on it. */
static void publish_credit(struct harp_link *link) {
  uint32_t credit = link->tx->posted - link->first_message + HARP_EARLY_MESSAGES;
  atomic_store_explicit(&link->credit, credit, memory_order_relaxed);
}

static bool open_sender(struct harp_link *link, const struct harp_link_config *c) {
  struct harp_tx_stream_config config = {
      .id = c->stream, .first_line = c->first_line, .first_message = c->first_message};
  link->tx = malloc(sizeof *link->tx);
  if (!link->tx || !harp_copies_init(&link->copies)) return false;
  memset(link->tx, 0xa5, sizeof *link->tx); /* page faults now, not while messages move */
  harp_sender_open(link->peer->session.sender, link->tx, &config);
  link->tx->owner = link;
  link->first_message = c->first_message;
  publish_credit(link);
  link->peer->stream_next = c->stream + 1u;
  return true;
}

/* Opens the stream of a link that receives at its peer. */
static void begin_receiver(struct harp_link *link, const struct harp_link_config *c) {
  struct harp_rx_stream_config config = {.id = c->stream,
                                         .first_line = c->first_line,
                                         .first_message = c->first_message,
                                         .staging = link->staging};
  harp_receiver_open(link->peer->session.receiver, link->rx, &config);
  link->rx->owner = link;
}

static bool open_receiver(struct harp_link *link, const struct harp_link_config *c) {
  link->staging = harp_engine_take_block(link->engine);
  if (!link->staging) link->staging = malloc(HARP_STAGING_BYTES);
  link->rx = malloc(sizeof *link->rx);
  if (!link->rx || !link->staging) return false;
  begin_receiver(link, c);
  return true;
}

static bool is_block(const struct harp_engine *e, const void *p) {
  return (uintptr_t)p - (uintptr_t)e->memory < e->block_count * (size_t)HARP_BLOCK_BYTES;
}

static void free_link(struct harp_link *link) {
  struct harp_engine *e = link->engine;
  if (link->staging && is_block(e, link->staging))
    harp_engine_give_block(e, link->staging);
  else
    free(link->staging);
  HARP_ASSERT(!link->is_open && !link->outstanding && !link->has_arrived);
  harp_copies_fini(&link->copies);
  free(link->tx);
  free(link->rx);
  free(link);
}

static bool is_stream_open(const struct harp_peer *peer, const struct harp_link_config *c) {
  return c->role == HARP_ROLE_SENDER ? harp_sender_stream(peer->session.sender, c->stream) != NULL
                                     : harp_receiver_stream(peer->session.receiver, c->stream) != NULL;
}

static void join_peer(struct harp_link *link) {
  struct harp_peer *peer = link->peer;
  link->next_of_peer = peer->links;
  peer->links = link;
  peer->link_count++;
  peer->idle_ns = HARP_NEVER;
}

static void leave_peer(struct harp_link *link) {
  struct harp_link **at = &link->peer->links;
  HARP_ASSERT(link->peer->link_count);
  while (*at != link) {
    HARP_ASSERT(*at); /* a link is in its peer's list */
    at = &(*at)->next_of_peer;
  }
  *at = link->next_of_peer;
  link->peer->link_count--;
}

int harp_link_create(struct harp_link **out, struct harp_peer *peer, const struct harp_link_config *c) {
  struct harp_engine *e = peer->engine;
  HARP_ASSERT(c->stream < HARP_STREAMS_MAX && (c->role == HARP_ROLE_SENDER || c->role == HARP_ROLE_RECEIVER));
  if (is_stream_open(peer, c)) return -EEXIST;
  struct harp_link *link = aligned_alloc(HARP_CACHE_LINE, harp_align_up(sizeof *link, HARP_CACHE_LINE));
  if (!link) return -ENOMEM;
  memset(link, 0, sizeof *link);
  link->engine = e;
  link->peer = peer;
  link->role = c->role;
  link->requests_free = ~0ull;
  for (unsigned i = 0; i < HARP_REQUESTS_MAX; i++) link->requests[i].link = link;
  int err = -HARP_ELINKS;
  if (!harp_engine_add_link(e, link)) goto free_link;
  err = -ENOMEM;
  if (!(c->role == HARP_ROLE_SENDER ? open_sender(link, c) : open_receiver(link, c))) goto remove_link;
  link->is_open = true;
  join_peer(link);
  harp_stats_add_link(link);
  harp_recorder_trace_link(link, true);
  *out = link;
  if (peer->session.state != HARP_SESSION_OPEN) harp_link_fail_with_peer(link);
  return 0;
remove_link:
  harp_engine_remove_link(e, link);
free_link:
  free_link(link);
  return err;
}

/* Nothing of the stream moves any more. */
static void close_stream(struct harp_link *link) {
  if (!link->is_open) return;
  link->is_open = false;
  if (link->tx) {
    harp_tcp_forget(link->peer, link->tx, link->engine->clock());
    harp_sender_close(link->peer->session.sender, link->tx);
  }
  if (link->rx) harp_receiver_close(link->peer->session.receiver, link->rx);
}

/* Sends CLOSE: this end is closed, and why. */
static void send_close(struct harp_link *link) {
  uint32_t status = atomic_load_explicit(&link->status, memory_order_relaxed);
  struct harp_close close = {.stream = link->tx ? link->tx->id : link->rx->id, .is_sender = link->tx != NULL};
  HARP_ASSERT(!link->tx != !link->rx);
  if (link->close_sent) return;
  link->close_sent = true;
  if (link->rx) close.delivered = link->rx->delivered;
  if (link->rx && link->rx->too_large) {
    close.reason = HARP_ERR_USAGE;
    close.detail[0] = link->rx->too_large_size;
    close.detail[1] = link->rx->too_large_capacity;
  } else if (status != HARP_ERR_USAGE) { /* USAGE is the peer's own error */
    close.reason = status;
  }
  harp_monitor_send_close(link->peer, &close);
}

/* Subtracts requests that are not outstanding any more, and the copies among them, for which NCCL does not
 * wait. */
static void subtract_outstanding(struct harp_link *link, uint32_t count, uint32_t copies) {
  HARP_ASSERT(copies <= count && count <= link->outstanding && copies <= link->copies_outstanding);
  HARP_ASSERT(count <= link->peer->outstanding && count - copies <= link->engine->outstanding);
  link->outstanding -= count;
  link->copies_outstanding -= copies;
  link->peer->outstanding -= count;
  link->engine->outstanding -= count - copies;
  if (harp_unlikely(link->is_closing) && !link->outstanding) link->engine->closing_ns = 0;
}

/* Nothing will become of the requests that are left. */
static void forget_outstanding(struct harp_link *link) {
  subtract_outstanding(link, link->outstanding, link->copies_outstanding);
}

void harp_link_end(struct harp_link *link) {
  struct harp_engine *e = link->engine;
  struct harp_peer *peer = link->peer;
  leave_peer(link);
  send_close(link);
  if (link->answer) {
    link->answer->link = NULL;
    link->answer->reason = atomic_load_explicit(&link->status, memory_order_relaxed);
  }
  harp_recorder_trace_link(link, false);
  close_stream(link);
  forget_outstanding(link);
  harp_stats_remove_link(link);
  harp_engine_remove_link(e, link);
  free_link(link);
  if (!peer->links) peer->idle_ns = e->clock();
}

/* A block is a part of larger pages, which stay resident. */
void harp_link_rest(struct harp_link *link) {
  if (link->rx && !is_block(link->engine, link->staging) && harp_rx_stream_staging_is_free(link->rx))
    harp_sparse_give_back(link->staging, HARP_STAGING_BYTES);
}

/* ---- moving ---- */

static int submit_send(struct harp_link *link, struct harp_request *r, harp_ns now) {
  return harp_sender_post(link->peer->session.sender, link->tx, r->data, r->capacity, r, !r->is_copy, now);
}

static int submit_receive(struct harp_link *link, struct harp_request *r, harp_ns now) {
  struct harp_placement place;
  const uint8_t *early;
  int err = harp_receiver_post(link->peer->session.receiver, link->rx, r->data, r->capacity, r->is_watched, r,
                               &place, &early, now);
  if (err) return err;
  harp_placement_copy(&place, early);
  return 0;
}

/* The peer has closed its end: fails the link, which still waits. */
static void fail_as_ended(struct harp_link *link) {
  HARP_ASSERT(link->is_ended);
  harp_link_fail(link, HARP_ERR_REMOTE, "%s closed its connection to %s with transfers unfinished",
                 link->peer->name, link->engine->name);
}

static void count_outstanding(struct harp_link *link, const struct harp_request *r, harp_ns now) {
  link->outstanding++;
  link->copies_outstanding += r->is_copy;
  if (!link->peer->outstanding++) link->peer->waits_ns = now;
  link->engine->outstanding += !r->is_copy;
}

bool harp_link_take_submissions(struct harp_link *link, harp_ns now) {
  struct harp_request *r;
  while ((r = harp_spsc_peek(&link->submit))) {
    HARP_ASSERT(r->link == link &&
                atomic_load_explicit(&r->state, memory_order_relaxed) == HARP_REQUEST_POSTED);
    if (link->is_open) {
      int err = link->role == HARP_ROLE_SENDER ? submit_send(link, r, now) : submit_receive(link, r, now);
      /* there are as many message slots as requests, and done ones are collected at once */
      HARP_ASSERT(!err);
      count_outstanding(link, r, now);
    }
    harp_spsc_pop(&link->submit);
  }
  if (harp_unlikely(link->outstanding && (link->is_ended || link->peer->monitor.gone))) {
    harp_link_complete(link); /* what had arrived before is no transfer that the peer left unfinished */
    if (link->outstanding && !link->is_ended) return true;
    if (link->outstanding) fail_as_ended(link);
  }
  harp_link_fail_if_misused(link);
  return false;
}

/* Counts what is done, for statistics. */
static void count_done(struct harp_link *link, unsigned messages, uint64_t bytes) {
  struct harp_peer_stats *s = &link->peer->stats;
  link->messages += messages;
  link->bytes += bytes;
  *(link->tx ? &s->sent_messages : &s->received_messages) += messages;
  *(link->tx ? &s->sent_bytes : &s->received_bytes) += bytes;
}

unsigned harp_link_complete(struct harp_link *link) {
  unsigned n = 0, copies = 0;
  uint64_t done_bytes = 0;
  void *cookie;
  uint32_t bytes = 0;
  if (!link->is_open) return 0; /* its requests are forgotten already */
  while (link->tx ? harp_tx_stream_poll_done(link->tx, &cookie)
                  : harp_rx_stream_poll_done(link->rx, &cookie, &bytes)) {
    struct harp_request *r = cookie;
    HARP_ASSERT(r->link == link &&
                atomic_load_explicit(&r->state, memory_order_relaxed) == HARP_REQUEST_POSTED);
    r->bytes = link->tx ? r->capacity : bytes;
    done_bytes += r->bytes;
    copies += r->is_copy;
    atomic_store_explicit(&r->state, HARP_REQUEST_DONE, memory_order_release); /* (E) */
    n++;
  }
  if (link->tx) publish_credit(link);
  if (n) count_done(link, n, done_bytes);
  subtract_outstanding(link, n, copies);
  return n;
}

/* ---- moving to another peer ---- */

bool harp_link_is_untouched(const struct harp_link *link) {
  return link->rx && link->is_open && !link->has_arrived && link->rx->last_size == UINT32_MAX;
}

/* Returns how many receives are posted and not done, and these, the oldest first. */
static unsigned posted_of(const struct harp_rx_stream *rx, struct harp_request *posted[HARP_MESSAGES_MAX]) {
  unsigned count = 0;
  for (uint32_t m = rx->done; m != rx->posted; m++)
    posted[count++] = rx->messages[m % HARP_RECV_SLOTS].cookie;
  return count;
}

int harp_link_move(struct harp_link *link, struct harp_peer *peer, const struct harp_link_config *c) {
  struct harp_request *posted[HARP_MESSAGES_MAX];
  struct harp_peer *from = link->peer;
  harp_ns now = link->engine->clock();
  HARP_ASSERT(harp_link_is_untouched(link) && peer->engine == link->engine && c->role == link->role);
  if (is_stream_open(peer, c)) return -EEXIST;
  unsigned count = posted_of(link->rx, posted);
  HARP_ASSERT(count == link->outstanding && !link->copies_outstanding);
  leave_peer(link);
  harp_recorder_trace_link(link, false);
  harp_receiver_close(from->session.receiver, link->rx);
  forget_outstanding(link);
  if (!from->links) from->idle_ns = now;
  link->peer = peer;
  link->is_ended = false;
  join_peer(link);
  begin_receiver(link, c);
  harp_recorder_trace_link(link, true);
  for (unsigned i = 0; i < count; i++) {
    int err = submit_receive(link, posted[i], now);
    HARP_ASSERT(!err); /* the stream is new, and nothing has come early */
    count_outstanding(link, posted[i], now);
  }
  harp_peer_touch(peer);
  return 0;
}

/* ---- failing ---- */

static void set_failed(struct harp_link *link, enum harp_status status) {
  HARP_ASSERT(status != HARP_OK && atomic_load_explicit(&link->status, memory_order_relaxed) == HARP_OK);
  forget_outstanding(link);
  atomic_store_explicit(&link->status, status, memory_order_release); /* (G) */
}

void harp_link_fail(struct harp_link *link, enum harp_status status, const char *fmt, ...) {
  if (!link->is_open) return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(link->error, sizeof link->error, fmt, ap);
  va_end(ap);
  harp_link_complete(link);
  set_failed(link, status);
  send_close(link);
  close_stream(link);
}

void harp_link_fail_with_peer(struct harp_link *link) {
  if (!link->is_open) return;
  snprintf(link->error, sizeof link->error, "%s", link->peer->error);
  link->failed_with_peer = true;
  link->close_sent = true; /* FINAL stands for all links */
  harp_link_complete(link);
  set_failed(link, link->peer->session.status);
  close_stream(link);
}

enum harp_status harp_link_error(struct harp_link *link) {
  enum harp_status status = atomic_load_explicit(&link->status, memory_order_acquire); /* (H) */
  if (harp_likely(status == HARP_OK) || link->warned) return status;
  link->warned = true;
  bool was_logged =
      link->failed_with_peer && atomic_exchange_explicit(&link->peer->warned, true, memory_order_relaxed);
  if (!was_logged) HARP_WARN("%s", link->error);
  return status;
}

void harp_link_fail_if_misused(struct harp_link *link) {
  const struct harp_rx_stream *r = link->rx;
  if (!r || !r->too_large || !link->is_open) return;
  harp_link_fail(link, HARP_ERR_USAGE,
                 "%s sends a message of %u bytes, but the receive posted for it on %s holds only %u bytes",
                 link->peer->name, r->too_large_size, link->engine->name, r->too_large_capacity);
}

/* Returns the text for a peer whose end failed. */
static const char *reason_text(uint32_t reason) {
  switch (reason) {
  case HARP_ERR_INTERNAL:
    return "it deregistered a buffer that was in use, as an aborted job does";
  case HARP_ERR_REMOTE:
    return "nothing from here reaches it";
  case HARP_ERR_SYSTEM:
    return "its operating system refused something";
  default:
    return "its side failed";
  }
}

void harp_link_on_close(struct harp_link *link, const struct harp_close *close, harp_ns now) {
  link->is_ended = true;
  if (link->is_open && link->tx) harp_tx_stream_on_delivered(link->tx, close->delivered, now);
  harp_link_complete(link);
  if (close->reason == HARP_ERR_USAGE)
    harp_link_fail(link, HARP_ERR_USAGE,
                   "a message of %u bytes was sent to %s, but the receive posted there holds only %u bytes",
                   close->detail[0], link->peer->name, close->detail[1]);
  else if (close->reason)
    harp_link_fail(link, HARP_ERR_REMOTE, "%s ended its connection with %s: %s; see its log",
                   link->peer->name, link->engine->name, reason_text(close->reason));
  else if (link->outstanding)
    fail_as_ended(link);
}
