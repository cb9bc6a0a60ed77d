/* SPDX-License-Identifier: Apache-2.0 */
/* Property: whatever way records of a message are cut into reads, come twice over two connections and once
 * more by datagrams, and whichever bit of a connection is wrong: a receive that is reported as done has
 * exactly the message's bytes; nothing is written outside of its buffer, nor to it after that; a connection
 * whose bytes are right is never called broken, also when the sender's buffer got other content once the
 * message was delivered, and its kernel sends that; what a broken connection has spoilt the next one mends.
 *
 * Bound: a message in two records, whose second one is read in place, or one that is short enough to come
 * before its receive (the bounds of both are reduced). One cut at every byte of the first connection; then a
 * second connection up to each of some cuts, or datagrams with some lines; the receive posted before or after
 * the first cut; its buffer watched or not. Or one bit of each byte of the first connection wrong, with one
 * cut in its second record, the receive posted before, and the rest by a second connection or by datagrams;
 * with --long each single bit, two cuts, and posted before or after. */
#include "proto/records.h"

#include <string.h>

#include "proofs/prove.h"
#include "wire/crc32c.h"

enum {
  LINE = HARP_LINE_BYTES,
  HEAD = HARP_RECORD_HEAD_BYTES,
  SIZE_MAX_BYTES = 7 * LINE + 7,
  WIRE_MAX_BYTES = 2 * HEAD + SIZE_MAX_BYTES, /* the most bytes of a connection */
  GUARD = LINE,
  FIRST_LINE = -3, /* the line numbers of the message pass 2^32 */
  FIRST_MESSAGE = -1,
  FIRST_NUMBER = -2, /* so do packet numbers */
  STREAM = 3,
  UDP = 0,
  FIRST_TCP = 1,
  CONNECTIONS = 3, /* the third is the last, which all faults have ended before */
  UNTOUCHED = 0xee,
  REUSED = 0x40, /* bits in which what the sender's buffer has later differs */
  SCRAP_BYTES = 100,
};
_Static_assert(HARP_EARLY_MAX_BYTES == 2 * LINE, "reduced by test_proofs.py");

/* A message, and what its first record has of it; the second one has the rest. */
static const struct shape {
  uint32_t size, first_bytes;
} shapes[] = {{SIZE_MAX_BYTES, 2 * LINE}, /* the second record is read in place */
              {2 * LINE, LINE}};          /* it may come before its receive is posted */
static uint32_t size, first_bytes, wire_bytes;
static size_t rest_at; /* on the wire: the payload of the second record */

static const struct harp_session_keys keys = {.rx_token = 0x0123456789abcdef, .rx_seed = 0x1badcafe};

struct connection {
  struct harp_records in;
  uint8_t ahead[HARP_RECORDS_BUFFER_BYTES];
  uint8_t wire[WIRE_MAX_BYTES];
  size_t fed;
  bool is_broken;
};

static struct connection connections[CONNECTIONS];
static struct harp_session session;
static _Alignas(HARP_CACHE_LINE) uint8_t receiver_memory[1 << 20];
static struct harp_receiver *receiver = (struct harp_receiver *)receiver_memory;
static struct harp_rx_stream stream;
static struct harp_counters counters;
static uint8_t staging[HARP_STAGING_BYTES], scrap[SCRAP_BYTES];
static uint8_t payload[SIZE_MAX_BYTES], memory[GUARD + SIZE_MAX_BYTES + GUARD];
static uint8_t *const buffer = memory + GUARD;
static uint32_t datagram_count;
static bool is_done, is_watched;

static struct harp_packet packet(unsigned path, uint32_t number, uint32_t offset, uint32_t length) {
  return (struct harp_packet){.type = HARP_PACKET_DATA,
                              .path = (uint8_t)path,
                              .token = keys.rx_token,
                              .number = (uint32_t)FIRST_NUMBER + number,
                              .data = {.message = (uint32_t)FIRST_MESSAGE,
                                       .line = (uint32_t)FIRST_LINE + offset / LINE,
                                       .offset = offset,
                                       .size = size,
                                       .length = length,
                                       .stream = STREAM}};
}

static uint8_t *put(uint8_t *at, unsigned path, uint32_t number, uint32_t offset, uint32_t length) {
  struct harp_packet p = packet(path, number, offset, length);
  harp_record_encode(at, &p, length, harp_crc32c(0, payload + offset, length), p.number, keys.rx_seed);
  memcpy(at + HEAD, payload + offset, length);
  return at + HEAD + length;
}

static void begin(void) {
  enum { STEP = 7, TURN = 251 };
  static const struct harp_receiver_config config = {.first_number = (uint32_t)FIRST_NUMBER,
                                                     .path_count = FIRST_TCP + CONNECTIONS,
                                                     .stream_max = STREAM + 1};
  static const struct harp_rx_stream_config sc = {.id = STREAM,
                                                  .first_line = (uint32_t)FIRST_LINE,
                                                  .first_message = (uint32_t)FIRST_MESSAGE,
                                                  .staging = staging};
  PROVE(harp_receiver_bytes(&config) <= sizeof receiver_memory);
  for (unsigned i = 0; i < size; i++) payload[i] = (uint8_t)(i * STEP + i / TURN);
  harp_receiver_init(receiver, &config, NULL, &counters);
  harp_receiver_open(receiver, &stream, &sc);
  harp_session_init(&session, &keys, NULL, receiver);
  for (unsigned i = 0; i < CONNECTIONS; i++) {
    struct connection *c = &connections[i];
    c->fed = 0;
    c->is_broken = false;
    harp_records_init(&c->in, &session, FIRST_TCP + i, c->ahead);
    uint8_t *rest = put(c->wire, FIRST_TCP + i, 0, 0, first_bytes);
    (void)put(rest, FIRST_TCP + i, 1, first_bytes, size - first_bytes);
  }
  memset(memory, UNTOUCHED, sizeof memory);
  datagram_count = 0;
  is_done = false;
}

/* ---- what comes ---- */

static void check_memory(void) {
  for (unsigned i = 0; i < GUARD; i++)
    if (memory[i] != UNTOUCHED || memory[GUARD + size + i] != UNTOUCHED) PROVE(!"written outside");
  if (!is_done) return;
  for (unsigned i = 0; i < size; i++)
    if (buffer[i] != UNTOUCHED) PROVE(!"written after it was done");
}

/* The message is done: both buffers are their owners', who write to them. Heads were copied when they were
 * written. */
static void take_done(void) {
  void *cookie;
  uint32_t bytes;
  if (!harp_rx_stream_poll_done(&stream, &cookie, &bytes)) return;
  PROVE(!is_done && cookie == buffer && bytes == size);
  PROVE(!memcmp(buffer, payload, size));
  is_done = true;
  memset(buffer, UNTOUCHED, size);
  for (unsigned i = 0; i < CONNECTIONS; i++) {
    struct connection *c = &connections[i];
    for (size_t at = c->fed; at < wire_bytes; at++)
      if (at >= rest_at || (at >= HEAD && at < HEAD + first_bytes)) c->wire[at] ^= REUSED;
  }
}

static void take_placement(const struct harp_placement *place, const uint8_t *from) {
  for (uint32_t i = 0; i < place->count; i++)
    memcpy(place->dst + place->runs[i].from, from + place->runs[i].from, place->runs[i].bytes);
}

static void post(void) {
  struct harp_placement place;
  const uint8_t *early;
  PROVE(!harp_receiver_post(receiver, &stream, buffer, size, is_watched, buffer, &place, &early, HARP_US(1)));
  if (early) take_placement(&place, early);
}

static void take_records(struct connection *c) {
  for (;;) {
    struct harp_placement place;
    enum harp_records_event event = harp_records_next(&c->in);
    if (event == HARP_RECORDS_MORE) return;
    if (event == HARP_RECORDS_BROKEN) {
      harp_records_end(&c->in);
      c->is_broken = true;
      return;
    }
    if (event == HARP_RECORDS_SCRAP) continue;
    bool is_placed = event == HARP_RECORDS_PLACED;
    enum harp_drop drop =
        harp_session_on_record(&session, &c->in.record, c->in.number, is_placed ? NULL : &place, HARP_US(2));
    if (!drop && !is_placed) take_placement(&place, c->in.record.packet.data.payload);
  }
}

/* Reads what has come of a connection up to a byte. */
static void feed(struct connection *c, size_t end) {
  while (c->fed < end && !c->is_broken) {
    struct iovec room[HARP_RECORDS_PIECES_MAX + 1];
    unsigned n = harp_records_room(&c->in, scrap, sizeof scrap, room);
    size_t read = 0;
    for (unsigned i = 0; i < n && c->fed < end; i++) {
      size_t part = HARP_MIN(end - c->fed, room[i].iov_len);
      memcpy(room[i].iov_base, c->wire + c->fed, part);
      c->fed += part;
      read += part;
    }
    PROVE(read);
    harp_records_on_read(&c->in, read);
    take_records(c);
    take_done();
    harp_receiver_check(receiver);
    check_memory();
  }
}

static void datagram(uint32_t offset, uint32_t length) {
  struct harp_placement place;
  struct harp_packet p = packet(UDP, datagram_count++, offset, length);
  p.data.payload = payload + offset;
  if (!harp_receiver_on_packet(receiver, &p, harp_receiver_number(receiver, &p), &place, HARP_US(2)))
    take_placement(&place, p.data.payload);
  take_done();
  check_memory();
}

/* One datagram for each line. */
static void datagrams(uint32_t line, uint32_t lines) {
  for (uint32_t at = line * LINE; lines-- && at < size; at += LINE)
    datagram(at, HARP_MIN((uint32_t)LINE, size - at));
}

/* Between two reads of the first connection. */
static void disturb(void) {
  const size_t cuts[] = {1,           rest_at - HEAD, rest_at - 1,    rest_at,
                         rest_at + 1, rest_at + LINE, wire_bytes - 1, wire_bytes};
  static const struct { uint32_t line, lines; } parts[] = {{0, 1}, {0, 2}, {2, 1}, {4, 2}, {5, 3}};
  uint32_t what = prove_choose(2 + HARP_ARRAY_COUNT(cuts) + HARP_ARRAY_COUNT(parts));
  if (!what) return;
  if (--what < HARP_ARRAY_COUNT(cuts))
    feed(&connections[1], cuts[what]);
  else if ((what -= HARP_ARRAY_COUNT(cuts)) < HARP_ARRAY_COUNT(parts))
    datagrams(parts[what].line, parts[what].lines);
  else
    datagrams(0, harp_lines_of(size));
}

/* Chooses a bit of the first connection that is wrong. */
static void spoil(void) {
  size_t byte = prove_choose(wire_bytes);
  connections[0].wire[byte] ^= (uint8_t)(1u << (prove_is_long ? prove_choose(8) : byte % 8));
}

/* Chooses what of the first connection comes before the others. */
static size_t choose_cut(bool is_spoilt) {
  if (!is_spoilt) return prove_choose(wire_bytes + 1);
  return prove_is_long && prove_choose(2) ? rest_at : HARP_MIN(rest_at + 2 * LINE + 1, wire_bytes + 0ul);
}

static void proof(void) {
  const struct shape *shape = &shapes[prove_choose(HARP_ARRAY_COUNT(shapes))];
  size = shape->size;
  first_bytes = shape->first_bytes;
  wire_bytes = 2 * HEAD + size;
  rest_at = 2 * HEAD + first_bytes;
  begin();
  is_watched = prove_choose(2);
  bool is_spoilt = prove_choose(2), is_late = (!is_spoilt || prove_is_long) && prove_choose(2);
  if (is_spoilt) spoil();
  size_t cut = choose_cut(is_spoilt);
  if (!is_late) post();
  feed(&connections[0], cut);
  if (is_late) post();
  disturb();
  feed(&connections[0], wire_bytes);
  if (is_spoilt && prove_choose(2)) datagrams(0, harp_lines_of(size));
  feed(&connections[1], wire_bytes);
  PROVE(is_spoilt || !connections[0].is_broken);
  PROVE(!connections[1].is_broken);
  /* What is missing by then is sent again. */
  feed(&connections[2], wire_bytes);
  PROVE(is_done && !connections[2].is_broken);
  for (unsigned i = 0; i < CONNECTIONS; i++) harp_records_end(&connections[i].in);
  PROVE(!session.reading);
}

int main(int argc, char **argv) {
  return prove_main(argc, argv, proof);
}
