/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/records.h"

#include <string.h>

#include "base/assert.h"
#include "base/copy.h"
#include "base/seq.h"
#include "wire/crc32c.h"

_Static_assert(HARP_RECORDS_AHEAD_BYTES >= 2 * (HARP_RECORD_HEAD_BYTES + HARP_RECORD_WHOLE_BYTES),
               "a whole record fits behind the rest of another");
_Static_assert(HARP_RECORDS_BUFFER_BYTES >= (int)HARP_RECORDS_AHEAD_BYTES, "most reads take no more");

/* Begins with a head, or with the payload behind it. */
static void begin_record(struct harp_records *r) {
  r->need = HARP_RECORD_HEAD_BYTES;
  r->done = r->crc = 0;
  r->mac = (struct harp_mac_state){0};
}

void harp_records_init(struct harp_records *r, struct harp_session *session, unsigned path, uint8_t *ahead) {
  *r = (struct harp_records){.session = session, .path = path, .ahead = ahead};
  begin_record(r);
}

static uint32_t left_of(const struct harp_records *r) {
  return r->record.length - r->done;
}

/* Decides where the payload of the record belongs now from byte `at` on. */
static struct harp_rx_target target_of(const struct harp_records *r, uint32_t at) {
  const struct harp_packet *p = &r->record.packet;
  struct harp_rx_stream *st = harp_receiver_stream(r->session->receiver, p->data.stream);
  if (!st || r->session->state != HARP_SESSION_OPEN)
    return (struct harp_rx_target){.bytes = r->record.length - at, .is_refused = true};
  return harp_rx_stream_target(st, p, at);
}

static enum harp_records_event break_connection(struct harp_records *r, enum harp_drop why) {
  r->why = why;
  return HARP_RECORDS_BROKEN;
}

static enum harp_records_event placed_or_scrap(struct harp_records *r, bool is_refused) {
  if (!is_refused) return HARP_RECORDS_PLACED;
  r->why = HARP_DROP_CLOSED;
  return HARP_RECORDS_SCRAP;
}

/* ---- payload in place ---- */

static bool lines_overlap(const struct harp_packet *a, const struct harp_packet *b) {
  return a->data.stream == b->data.stream &&
         harp_seq_before(a->data.line, b->data.line + harp_lines_of(b->data.length)) &&
         harp_seq_before(b->data.line, a->data.line + harp_lines_of(a->data.length));
}

/* Takes the lines of the record from those that are reading them, too. One that is refused writes nothing,
 * and takes none. */
static void begin_reading(struct harp_records *r) {
  for (struct harp_records *other = r->refused ? NULL : r->session->reading; other;
       other = other->next_reading)
    other->refused |= lines_overlap(&other->record.packet, &r->record.packet);
  r->next_reading = r->session->reading;
  r->session->reading = r;
  r->in_place = true;
}

static void end_reading(struct harp_records *r) {
  struct harp_records **at = &r->session->reading;
  while (*at != r) at = &(*at)->next_reading;
  *at = r->next_reading;
  r->in_place = false;
}

void harp_records_end(struct harp_records *r) {
  if (r->in_place) end_reading(r);
}

/* Names the place of the payload from byte `at` on; NULL: scrap. */
static uint32_t target_of_byte(struct harp_records *r, uint32_t at, uint8_t **dst) {
  struct harp_rx_target t = target_of(r, at);
  /* Bytes that were not written once are missing for good, even if the stream took them now. A watched
   * buffer is of a receive posted since. */
  r->refused |= t.is_refused || t.is_watched;
  *dst = r->refused ? NULL : t.dst;
  return t.bytes;
}

/* Returns whether the payload has a MAC in place of its CRC. */
static bool has_mac(const struct harp_records *r) {
  return harp_unlikely(r->session->has_macs) && r->record.packet.type == HARP_PACKET_DATA;
}

/* Takes the CRC or MAC of payload. */
static void take_check(struct harp_records *r, const uint8_t *src, uint32_t bytes) {
  if (has_mac(r))
    harp_mac_add(&r->session->rx_mac, &r->mac, src, bytes);
  else if (harp_record_is_checked(&r->record))
    r->crc = harp_crc32c(r->crc, src, bytes);
}

/* Copies payload that was read ahead to its place, and takes its CRC. `dst` NULL: it goes nowhere. */
static void copy_payload(struct harp_records *r, uint8_t *dst, const uint8_t *src, uint32_t bytes) {
  if (dst && harp_record_is_checked(&r->record) && !has_mac(r)) {
    r->crc = harp_crc32c_copy(r->crc, dst, src, bytes);
    return;
  }
  take_check(r, src, bytes);
  if (dst) memcpy(dst, src, bytes);
}

/* Copies what is there already of the payload to its place. */
static void take_ahead(struct harp_records *r) {
  uint32_t bytes;
  while ((bytes = HARP_MIN(r->to - r->from, left_of(r)))) {
    const uint8_t *src = r->ahead + r->from;
    uint8_t *dst;
    bytes = HARP_MIN(bytes, target_of_byte(r, r->done, &dst));
    copy_payload(r, dst, src, bytes);
    r->done += bytes;
    r->from += bytes;
  }
}

unsigned harp_records_room(struct harp_records *r, void *scrap, uint32_t scrap_bytes,
                           struct iovec room[HARP_RECORDS_PIECES_MAX + 1]) {
  unsigned n = 0;
  uint32_t at = r->done;
  r->piece_count = 0;
  while (r->in_place && at < r->record.length && n < HARP_RECORDS_PIECES_MAX) {
    uint8_t *dst;
    uint32_t bytes = target_of_byte(r, at, &dst);
    if (!dst) bytes = HARP_MIN(bytes, scrap_bytes);
    room[n] = r->pieces[n] = (struct iovec){dst ? dst : scrap, bytes};
    at += bytes;
    n++;
    if (!dst) break; /* the scrap is used up */
  }
  r->piece_count = n;
  if (r->in_place && at < r->record.length) return n;
  if (r->from) {
    memmove(r->ahead, r->ahead + r->from, r->to - r->from);
    r->to -= r->from;
    r->from = 0;
  }
  /* A read that ends a record longer than most takes only the next head: no more of it is moved. */
  uint32_t end = HARP_MAX(r->need + HARP_RECORD_HEAD_BYTES, (uint32_t)HARP_RECORDS_AHEAD_BYTES);
  HARP_ASSERT(r->to < end && end <= HARP_RECORDS_BUFFER_BYTES);
  room[n] = (struct iovec){r->ahead + r->to, end - r->to};
  return n + 1;
}

void harp_records_on_read(struct harp_records *r, size_t bytes) {
  for (unsigned i = 0; i < r->piece_count && bytes; i++) {
    uint32_t n = (uint32_t)HARP_MIN(r->pieces[i].iov_len, bytes);
    take_check(r, r->pieces[i].iov_base, n);
    r->done += n;
    bytes -= n;
  }
  r->piece_count = 0;
  r->to += (uint32_t)bytes;
  HARP_ASSERT(r->to <= HARP_RECORDS_BUFFER_BYTES);
}

/* Returns whether the payload has the CRC or MAC that its head names. */
static bool is_as_sent(struct harp_records *r) {
  if (!has_mac(r)) return harp_record_payload_ok(&r->record, r->crc);
  struct harp_mac_nonce nonce = {r->number, (uint8_t)r->path, HARP_PACKET_DATA};
  return (harp_mac_end(&r->session->rx_mac, &r->mac, nonce) ^ r->record.payload_mac) == 0;
}

/* Returns whether the payload may be taken, or nothing of it: when all of its lines have come by another
 * path, or their stream is closed, their buffer is the sender's again, and its kernel may send what was
 * written there since. */
static bool is_right(struct harp_records *r) {
  if (is_as_sent(r)) return true;
  if (r->record.packet.type != HARP_PACKET_DATA) return false;
  for (uint32_t at = 0; at < r->record.length;) {
    struct harp_rx_target t = target_of(r, at);
    if (t.dst) return false;
    at += t.bytes;
  }
  return true;
}

/* The payload has come: is it right? */
static enum harp_records_event end_in_place(struct harp_records *r) {
  if (left_of(r)) return HARP_RECORDS_MORE;
  end_reading(r);
  if (!is_right(r)) return break_connection(r, has_mac(r) ? HARP_DROP_MAC : HARP_DROP_CRC);
  begin_record(r);
  return placed_or_scrap(r, r->refused);
}

/* Has the payload of a record, whose head is read, go to its place; first what was read ahead of it. */
static enum harp_records_event begin_in_place(struct harp_records *r, bool is_refused) {
  r->from += HARP_RECORD_HEAD_BYTES;
  r->refused = is_refused;
  begin_record(r);
  begin_reading(r);
  take_ahead(r);
  return end_in_place(r);
}

/* ---- records that are read whole ---- */

/* Copies checked payload of any length to where it belongs now. */
static enum harp_records_event place_whole(struct harp_records *r, const uint8_t *payload) {
  bool is_refused = false;
  for (uint32_t at = 0; at < r->record.length && !is_refused;) {
    struct harp_rx_target t = target_of(r, at);
    if (t.dst) harp_copy_lines(t.dst, payload + at, t.bytes);
    is_refused = t.is_refused;
    at += t.bytes;
  }
  return placed_or_scrap(r, is_refused);
}

/* Takes a record once all of it is there. A long one goes to a watched buffer. */
static enum harp_records_event take_whole(struct harp_records *r) {
  const uint8_t *payload = r->ahead + r->from + HARP_RECORD_HEAD_BYTES;
  uint32_t there = HARP_MIN(r->to - r->from - HARP_RECORD_HEAD_BYTES, r->record.length);
  take_check(r, payload + r->done, there - r->done);
  r->done = there;
  r->need = HARP_RECORD_HEAD_BYTES + r->record.length;
  if (left_of(r)) return HARP_RECORDS_MORE;
  if (!is_right(r)) return break_connection(r, has_mac(r) ? HARP_DROP_MAC : HARP_DROP_CRC);
  r->from += r->need;
  begin_record(r);
  if (r->record.length > HARP_RECORD_WHOLE_BYTES) return place_whole(r, payload);
  r->record.packet.data.payload = payload;
  return HARP_RECORDS_PACKET;
}

enum harp_records_event harp_records_next(struct harp_records *r) {
  if (r->in_place) {
    take_ahead(r);
    return end_in_place(r);
  }
  const uint8_t *head = r->ahead + r->from;
  if (r->to - r->from < HARP_RECORD_HEAD_BYTES) return HARP_RECORDS_MORE;
  enum harp_drop drop = harp_record_decode(head, &r->record);
  if (!drop) drop = harp_session_on_head(r->session, r->path, head, &r->record, &r->number);
  if (drop) return break_connection(r, drop);
  if (r->record.length > HARP_RECORD_WHOLE_BYTES) {
    struct harp_rx_target t = target_of(r, 0);
    if (!t.is_watched) return begin_in_place(r, t.is_refused);
  }
  return take_whole(r);
}
