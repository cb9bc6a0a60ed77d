/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/duo_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/seq.h"
#include "lib/duo_tcp.h"

enum { POISON = 0x96, UNAWAITED_MAX_BYTES = HARP_EARLY_MAX_BYTES };

static unsigned index_of(const struct duo *d, const struct duo_stream *s) {
  return (unsigned)(s - d->streams);
}

void duo_stream_start(struct duo *d, struct duo_stream *s) {
  (void)d;
  if (!s->tx) s->tx = duo_must(malloc(sizeof *s->tx));
  if (!s->rx) s->rx = duo_must(malloc(sizeof *s->rx));
  if (!s->staging) s->staging = duo_must(malloc(HARP_STAGING_BYTES));
  /* Nothing may rely on fresh memory being zero. */
  memset(s->tx, 0x5A, sizeof *s->tx);
  memset(s->rx, 0x5A, sizeof *s->rx);
}

void duo_stream_fini(struct duo_stream *s) {
  free(s->tx), free(s->rx), free(s->staging);
}

/* ---- bits of lines ---- */

/* Returns the bits of the word that `line` is in, of the lines from it up to `end`. */
static uint64_t bits_of_word(uint32_t line, uint32_t end) {
  uint32_t count = HARP_MIN(end - line, 64 - line % 64);
  return (count < 64 ? (1ull << count) - 1 : UINT64_MAX) << line % 64;
}

static bool marked(const uint64_t *bits, uint32_t from, uint32_t bytes) {
  uint32_t end = (from + bytes + HARP_LINE_BYTES - 1) / HARP_LINE_BYTES;
  for (uint32_t line = from / HARP_LINE_BYTES; line < end; line = (line / 64 + 1) * 64) {
    if (~bits[line / 64] & bits_of_word(line, end)) return false;
  }
  return true;
}

static bool marked_in_part(const uint64_t *bits, uint32_t from, uint32_t bytes) {
  uint32_t end = (from + bytes + HARP_LINE_BYTES - 1) / HARP_LINE_BYTES;
  for (uint32_t line = from / HARP_LINE_BYTES; line < end; line = (line / 64 + 1) * 64) {
    if (bits[line / 64] & bits_of_word(line, end)) return true;
  }
  return false;
}

/* Sets the bits of the lines that [from, from + bytes) of a message covers; returns false if one was set. */
static bool mark(uint64_t *bits, uint32_t from, uint32_t bytes) {
  uint32_t end = (from + bytes + HARP_LINE_BYTES - 1) / HARP_LINE_BYTES;
  if (marked_in_part(bits, from, bytes)) return false;
  for (uint32_t line = from / HARP_LINE_BYTES; line < end; line = (line / 64 + 1) * 64)
    bits[line / 64] |= bits_of_word(line, end);
  return true;
}

/* ---- the receiving end ---- */

/* A forged packet may bring anything, but only into buffers of its stream. */
static bool is_inside(struct duo *d, const struct duo_stream *s, const uint8_t *dst, uint32_t bytes) {
  if (dst >= s->staging && dst + bytes <= s->staging + HARP_STAGING_BYTES) return true;
  for (uint32_t k = s->received_count; k < s->recv_next; k++) {
    const struct duo_message *m = duo_message(d, s, k);
    if (dst >= m->buffer && dst + bytes <= m->buffer + m->capacity) return true;
  }
  return false;
}

/* Where the bytes of a placement come from. */
enum source {
  FROM_PACKET,
  FROM_STAGING,
  COPIED, /* from the packet, by the session */
};

static void copy(uint8_t *dst, const uint8_t *src, uint32_t bytes, enum source source) {
  if (source != COPIED) memcpy(dst, src, bytes);
}

/* Checks one run of a placement into the posted buffer (or staging), does the copy, and books its lines. */
static void place(struct duo *d, struct duo_stream *s, uint32_t k, uint8_t *dst, const uint8_t *src,
                  uint32_t offset, uint32_t bytes, enum source source) {
  unsigned i = index_of(d, s);
  if (s->forged) {
    if (!is_inside(d, s, dst, bytes)) duo_fail(d, "stream %u: a write outside its buffers", i);
    copy(dst, src, bytes, source);
    if (memcmp(dst, src, bytes)) duo_fail(d, "a packet was taken whose payload the session did not copy");
    return;
  }
  struct duo_message *m = duo_message(d, s, k);
  bool posted = k < s->recv_next;
  uint32_t lines = (bytes + HARP_LINE_BYTES - 1) / HARP_LINE_BYTES;
  if (k >= s->count) duo_fail(d, "stream %u: placed for message %u, which it does not have", i, k);
  if (!bytes || offset % HARP_LINE_BYTES || offset + bytes > m->bytes)
    duo_fail(d, "stream %u, message %u: run %u+%u of %u bytes", i, k, offset, bytes, m->bytes);
  if (bytes % HARP_LINE_BYTES && offset + bytes != m->bytes)
    duo_fail(d, "stream %u, message %u: run %u+%u ends within a line", i, k, offset, bytes);
  if (m->received) duo_fail(d, "stream %u, message %u: placed after it was done", i, k);
  if ((posted && m->capacity >= m->bytes) || source == FROM_STAGING) {
    if (dst != m->buffer + offset)
      duo_fail(d, "stream %u, message %u: run %u+%u at the wrong address", i, k, offset, bytes);
    if (source == COPIED && m->is_watched)
      duo_fail(d, "stream %u, message %u: unverified bytes in a watched buffer", i, k);
    if (source == FROM_STAGING && !marked(m->staged, offset, bytes))
      duo_fail(d, "stream %u, message %u: run %u+%u was not in staging", i, k, offset, bytes);
    if (!mark(m->placed, offset, bytes))
      duo_fail(d, "stream %u, message %u: run %u+%u placed twice", i, k, offset, bytes);
    m->placed_lines += lines;
  } else {
    uint32_t slot = (s->config.first_message + k) % HARP_EARLY_MESSAGES;
    if (dst != s->staging + slot * HARP_EARLY_MAX_BYTES + offset || offset + bytes > HARP_EARLY_MAX_BYTES)
      duo_fail(d, "stream %u, message %u: run %u+%u at the wrong place of staging", i, k, offset, bytes);
    if (!mark(m->staged, offset, bytes))
      duo_fail(d, "stream %u, message %u: run %u+%u staged twice", i, k, offset, bytes);
  }
  copy(dst, src, bytes, source);
  if (memcmp(dst, m->content + offset, bytes))
    duo_fail(d, "stream %u, message %u: wrong bytes at %u+%u", i, k, offset, bytes);
}

static void check_ascending(struct duo *d, const struct harp_placement *p) {
  uint32_t end = 0;
  if (p->count > HARP_RUNS_MAX) duo_fail(d, "placement of %u runs", p->count);
  for (uint32_t i = 0; i < p->count; i++) {
    if (i && p->runs[i].from <= end) duo_fail(d, "runs of a placement don't ascend");
    end = p->runs[i].from + p->runs[i].bytes;
  }
}

void duo_stream_place(struct duo *d, struct duo_stream *s, const struct harp_packet *p,
                      const struct harp_placement *where) {
  check_ascending(d, where);
  uint32_t k = p->data.message - s->config.first_message;
  for (uint32_t i = 0; i < where->count; i++) {
    uint32_t from = where->runs[i].from;
    if (from + where->runs[i].bytes > p->data.length) duo_fail(d, "a run beyond the payload");
    place(d, s, k, where->dst + from, p->data.payload + from, p->data.offset + from, where->runs[i].bytes,
          where->is_placed ? COPIED : FROM_PACKET);
  }
}

void duo_stream_check_read(struct duo *d, const struct duo_stream *s, uint32_t message, uint32_t offset,
                           const uint8_t *dst, uint32_t bytes) {
  uint32_t k = message - s->config.first_message;
  unsigned i = index_of(d, s);
  if (s->forged) {
    if (!is_inside(d, s, dst, bytes)) duo_fail(d, "stream %u: a read outside its buffers", i);
    return;
  }
  if (k < s->received_count || k >= s->recv_next)
    duo_fail(d, "stream %u: payload is read for message %u, whose receive is not open", i, k);
  const struct duo_message *m = duo_message(d, s, k);
  if (m->is_watched) duo_fail(d, "stream %u, message %u: a read into a watched buffer", i, k);
  if (offset + bytes > m->bytes || m->bytes > m->capacity || dst != m->buffer + offset)
    duo_fail(d, "stream %u, message %u: %u+%u is read to the wrong address", i, k, offset, bytes);
  if (marked_in_part(m->placed, offset, bytes))
    duo_fail(d, "stream %u, message %u: a line of %u+%u is read once more", i, k, offset, bytes);
}

/* Returns whether all of it is as it was before the receive was posted. */
static bool is_poison(const uint8_t *bytes, uint32_t count) {
  return bytes[0] == POISON && !memcmp(bytes, bytes + 1, count - 1);
}

void duo_stream_check_watched(struct duo *d, const struct duo_stream *s) {
  for (uint32_t k = s->received_count; !s->forged && k < s->recv_next; k++) {
    const struct duo_message *m = duo_message(d, s, k);
    if (!m->is_watched || m->bytes > m->capacity) continue;
    for (uint32_t at = 0; at < m->bytes; at += HARP_LINE_BYTES) {
      uint32_t bytes = HARP_MIN(m->bytes - at, (uint32_t)HARP_LINE_BYTES);
      if (!marked(m->placed, at, bytes) && !is_poison(m->buffer + at, bytes))
        duo_fail(d, "stream %u, message %u: bytes at %u of a watched buffer that were not checked",
                 index_of(d, s), k, at);
    }
  }
}

void duo_stream_note_read(struct duo *d, struct duo_stream *s, const struct harp_packet *p) {
  if (s->forged) return;
  uint32_t k = p->data.message - s->config.first_message, line = p->data.offset / HARP_LINE_BYTES;
  unsigned i = index_of(d, s);
  if (k < s->received_count || k >= s->recv_next) duo_fail(d, "stream %u: message %u is not open", i, k);
  struct duo_message *m = duo_message(d, s, k);
  if (memcmp(m->buffer + p->data.offset, m->content + p->data.offset, p->data.length))
    duo_fail(d, "stream %u, message %u: wrong bytes at %u+%u", i, k, p->data.offset, p->data.length);
  for (; line * HARP_LINE_BYTES < p->data.offset + p->data.length; line++) {
    uint64_t bit = 1ull << (line % 64);
    m->placed_lines += !(m->placed[line / 64] & bit);
    m->placed[line / 64] |= bit;
  }
}

bool duo_stream_expects_drop(struct duo *d, const struct duo_stream *s, const struct harp_packet *p,
                             enum harp_drop drop) {
  if (drop == HARP_DROP_WINDOW || (drop == HARP_DROP_FIELD && d->forged)) return true;
  if (!s) return drop == HARP_DROP_STREAM;
  uint32_t k = p->data.message - s->config.first_message;
  if (s->forged || k >= s->count) return true; /* or the last stream's of the same id */
  const struct duo_message *m = duo_message(d, s, k);
  return drop == HARP_DROP_CONTRADICTION && m->bytes > m->capacity;
}

static void poison(struct duo_message *m, uint32_t bytes) {
  m->poisoned = bytes;
  memset(m->buffer, POISON, bytes);
}

void duo_stream_give_back(struct duo *d, struct duo_stream *s) {
  for (uint32_t k = s->received_count; k < s->recv_next; k++) {
    struct duo_message *m = duo_message(d, s, k);
    poison(m, m->capacity);
  }
}

void duo_stream_check_poison(struct duo *d, const struct duo_stream *s, uint32_t k) {
  const struct duo_message *m = duo_message(d, s, k);
  if (!m->poisoned) return;
  if (!is_poison(m->buffer, m->poisoned))
    duo_fail(d, "stream %u, message %u: written after its buffer was given back", index_of(d, s), k);
}

harp_ns duo_stream_receive_ns(const struct duo *d, const struct duo_stream *s) {
  if (s->rx_state != DUO_STREAM_OPEN || s->recv_next == s->count) return HARP_NEVER;
  if (s->recv_next - s->received_count >= s->config.in_flight_max) return HARP_NEVER;
  return d->messages[s->first + s->recv_next].recv_at;
}

void duo_stream_receive(struct duo *d, struct duo_stream *s) {
  struct duo_message *m = duo_message(d, s, s->recv_next);
  struct duo_end *e = &d->ends[1 - s->config.way];
  unsigned i = index_of(d, s);
  struct harp_placement p;
  const uint8_t *early;
  m->is_watched = rng_chance(&d->rng, d->config.watched_ppm);
  if (m->is_watched) memset(m->buffer, POISON, HARP_MIN(m->bytes, m->capacity));
  if (harp_receiver_post(e->receiver, s->rx, m->buffer, m->capacity, m->is_watched, m, &p, &early, d->now))
    duo_fail(d, "stream %u: receive %u refused", i, s->recv_next);
  check_ascending(d, &p);
  if (p.count && (!early || p.dst != m->buffer)) duo_fail(d, "early data without its source");
  if (s->forged) {
    s->recv_next++;
    for (uint32_t r = 0; r < p.count; r++)
      place(d, s, s->recv_next - 1, p.dst + p.runs[r].from, early + p.runs[r].from, p.runs[r].from,
            p.runs[r].bytes, FROM_STAGING);
    return;
  }
  for (uint32_t r = 0; r < p.count; r++)
    place(d, s, s->recv_next, p.dst + p.runs[r].from, early + p.runs[r].from, p.runs[r].from, p.runs[r].bytes,
          FROM_STAGING);
  /* Everything staged must have been handed over, unless it does not fit. */
  for (uint32_t w = 0; m->capacity >= m->bytes && w < (harp_lines_of(m->bytes) + 63) / 64; w++) {
    if (m->staged[w] != m->placed[w])
      duo_fail(d, "stream %u, message %u: staged lines were left behind", i, s->recv_next);
  }
  s->recv_next++;
}

void duo_stream_complete_receives(struct duo *d, struct duo_stream *s) {
  unsigned i = index_of(d, s);
  void *cookie;
  uint32_t bytes;
  while (harp_rx_stream_poll_done(s->rx, &cookie, &bytes)) {
    struct duo_message *m = cookie;
    uint32_t k = s->received_count++;
    if (m != duo_message(d, s, k)) duo_fail(d, "stream %u: receives complete out of order", i);
    m->received = true;
    m->received_at = d->now;
    if (s->forged) {
      poison(m, m->capacity);
      continue;
    }
    if (bytes != m->bytes) duo_fail(d, "stream %u: receive %u: %u bytes reported", i, k, bytes);
    if (m->bytes && m->placed_lines != harp_lines_of(m->bytes))
      duo_fail(d, "stream %u: receive %u done with %u lines", i, k, m->placed_lines);
    if (memcmp(m->buffer, m->content, m->bytes)) duo_fail(d, "stream %u: receive %u: wrong bytes", i, k);
    poison(m, m->bytes);
  }
}

/* ---- the sending end ---- */

harp_ns duo_stream_send_ns(const struct duo *d, const struct duo_stream *s) {
  if (s->tx_state != DUO_STREAM_OPEN || s->send_next == s->count) return HARP_NEVER;
  if (s->send_next - s->sent_count >= s->config.in_flight_max) return HARP_NEVER;
  return d->messages[s->first + s->send_next].send_at;
}

void duo_stream_send(struct duo *d, struct duo_stream *s) {
  struct duo_message *m = duo_message(d, s, s->send_next++);
  unsigned i = index_of(d, s);
  /* as the engine's, which copies small messages */
  bool is_awaited = m->bytes > UNAWAITED_MAX_BYTES || i % 2 == 0;
  m->posted_at = d->now;
  if (harp_sender_post(d->ends[s->config.way].sender, s->tx, m->content, m->bytes, m, is_awaited, d->now))
    duo_fail(d, "stream %u: send refused", i);
}

void duo_stream_complete_sends(struct duo *d, struct duo_stream *s) {
  unsigned i = index_of(d, s);
  void *cookie;
  while (harp_tx_stream_poll_done(s->tx, &cookie)) {
    struct duo_message *m = cookie;
    uint32_t k = s->sent_count++;
    if (m != duo_message(d, s, k)) duo_fail(d, "stream %u: sends complete out of order", i);
    bool arrived = !m->bytes || marked(m->placed, 0, m->bytes) || marked(m->staged, 0, m->bytes);
    if (!arrived && !s->forged && s->rx_state != DUO_STREAM_CLOSED)
      duo_fail(d, "stream %u: send %u done before it arrived", i, k);
    duo_tcp_overwrite(d, &d->ends[s->config.way], s, s->sent_count);
    while (duo_stream_send_ns(d, s) <= d->now) duo_stream_send(d, s);
  }
}

void duo_stream_check_run(struct duo *d, const struct duo_stream *s, const struct harp_tx_run *run) {
  uint32_t k = run->message - s->config.first_message;
  const struct duo_message *m = &d->messages[s->first + k];
  unsigned i = index_of(d, s);
  if (s->tx_state != DUO_STREAM_OPEN) duo_fail(d, "stream %u: sent after it was closed", i);
  if (k >= s->send_next || run->size != m->bytes || run->data != m->content + run->offset)
    duo_fail(d, "stream %u: run of message %u at offset %u", i, run->message, run->offset);
  if (s->rx_state != DUO_STREAM_OPEN || s->forged) return;
  if (k >= s->recv_next && (run->size > HARP_EARLY_MAX_BYTES || k >= s->recv_next + HARP_EARLY_MESSAGES))
    duo_fail(d, "stream %u: message %u sent without credit", i, k);
}

void duo_stream_check(struct duo *d, struct duo_stream *s) {
  unsigned i = index_of(d, s);
  if (s->tx_state == DUO_STREAM_OPEN) {
    if (harp_seq_before(s->tx->delivered, s->last_tx_delivered))
      duo_fail(d, "stream %u: `delivered` went back", i);
    s->last_tx_delivered = s->tx->delivered;
  }
  if (s->rx_state == DUO_STREAM_OPEN) {
    if (harp_seq_before(s->rx->delivered, s->last_rx_delivered))
      duo_fail(d, "stream %u: `delivered` went back", i);
    s->last_rx_delivered = s->rx->delivered;
    if (s->tx_state == DUO_STREAM_OPEN && !s->forged && harp_seq_after(s->tx->delivered, s->rx->delivered))
      duo_fail(d, "stream %u: the sender believes more than the receiver has", i);
  }
}

/* ---- forged packets ---- */

void duo_stream_forge(struct duo *d, struct duo_stream *s, struct harp_packet *p) {
  s->forged = d->forged = true;
  switch (rng_below(&d->rng, 7)) {
  case 0:
    p->data.size += HARP_LINE_BYTES;
    break;
  case 1:
    p->data.line += (uint32_t)rng_between(&d->rng, 1, 20);
    break;
  case 2:
    p->data.line -= (uint32_t)rng_between(&d->rng, 1, 20);
    break;
  case 3:
    p->data.message += (uint32_t)rng_between(&d->rng, 1, 200);
    break;
  case 4:
    p->data.line = (uint32_t)rng_next(&d->rng);
    break;
  case 5:
    p->data.size += 1u << rng_between(&d->rng, 10, 30);
    break;
  default: /* the packet is of no stream; ids below stream_max may be those of others */
    p->data.stream = (uint16_t)rng_between(&d->rng, d->config.stream_max, HARP_STREAMS_MAX - 1);
  }
}
