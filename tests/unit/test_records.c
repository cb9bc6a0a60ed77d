/* SPDX-License-Identifier: Apache-2.0 */
/* What comes on a tcp path, cut at every byte: each byte is at its place, whatever happens to the message
 * between the two parts; and nothing is written where nothing belongs any more. */
#include "proto/records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/crc32c.h"

enum {
  LINE = 1000,
  MESSAGE = 7,
  NUMBER = 5,
  STREAM = 3,
  UDP = 0,
  TCP = 1,
  PATHS = 2,
  TAIL_BYTES = 7,
  LARGE = HARP_RECORD_WHOLE_BYTES + 5 * HARP_LINE_BYTES + TAIL_BYTES, /* is read in place */
  SMALL = 8 * HARP_LINE_BYTES,
  PIECE = 32 * HARP_LINE_BYTES, /* the payload of datagrams */
  SCRAP = 4096,
  READ_BYTES = 5000, /* the bytes of one read, when a record takes several */
  CUT_STEP = 331,    /* where each cut would take too long */
  UNTOUCHED = 0xee,
};
static const struct harp_session_keys keys = {.rx_token = 0x0123456789abcdef, .rx_seed = 0x1badcafe};
static const struct harp_session_macs macs = {.is_on = true, .rx = {.hash = {1, 2}, .tag = {3, 4}}};

static struct harp_session session;
static struct harp_receiver *r;
static struct harp_rx_stream stream;
static struct harp_records in;
static struct harp_counters counters;
static struct harp_placement place;
static uint8_t staging[HARP_STAGING_BYTES], ahead[HARP_RECORDS_BUFFER_BYTES], scrap[SCRAP];
static uint8_t buffer[2 * LARGE], payload[LARGE], other[LARGE], bytes[8 * LARGE];
static size_t byte_count, fed;
static bool broken, watched; /* a GPU reads the buffer: lines are written in order */
static bool sealed;          /* records have MACs */
static unsigned placed, packets, scrapped;

/* Returns byte `i` of a payload: neighbours differ, and what lies a line or a page apart. */
static uint8_t byte_of(uint32_t i) {
  enum { STEP = 7, TURN = 251 };
  return (uint8_t)(i * STEP + i / TURN);
}

static int init(void **state) {
  static const struct harp_receiver_config config = {
      .first_number = NUMBER, .path_count = PATHS, .stream_max = STREAM + 1};
  (void)state;
  r = malloc(harp_receiver_bytes(&config));
  assert_non_null(r);
  for (unsigned i = 0; i < LARGE; i++) payload[i] = byte_of(i), other[i] = (uint8_t)~payload[i];
  return 0;
}

static int fini(void **state) {
  (void)state;
  free(r);
  return 0;
}

/* Begins anew, with one receive posted. */
static void begin(void) {
  static const struct harp_receiver_config config = {
      .first_number = NUMBER, .path_count = PATHS, .stream_max = STREAM + 1};
  static const struct harp_rx_stream_config sc = {
      .id = STREAM, .first_line = LINE, .first_message = MESSAGE, .staging = staging};
  const uint8_t *early;
  harp_receiver_init(r, &config, NULL, &counters);
  harp_receiver_open(r, &stream, &sc);
  harp_session_init(&session, &keys, NULL, r);
  if (sealed) harp_session_use_macs(&session, &macs);
  harp_records_init(&in, &session, TCP, ahead);
  memset(buffer, UNTOUCHED, sizeof buffer);
  assert_int_equal(harp_receiver_post(r, &stream, buffer, LARGE, watched, buffer, &place, &early, HARP_US(1)),
                   0);
  byte_count = fed = 0;
  broken = false;
  placed = packets = scrapped = 0;
}

static struct harp_packet packet(unsigned path, uint32_t number, uint32_t offset, uint32_t length) {
  return (struct harp_packet){.type = HARP_PACKET_DATA,
                              .path = (uint8_t)path,
                              .token = keys.rx_token,
                              .number = number,
                              .data = {.message = MESSAGE,
                                       .line = LINE + offset / HARP_LINE_BYTES,
                                       .offset = offset,
                                       .size = LARGE,
                                       .length = length,
                                       .stream = STREAM}};
}

/* Encodes the head of a record. */
static void encode(uint8_t *head, const struct harp_packet *p, const uint8_t *data, uint32_t length) {
  struct harp_mac_state state = {0};
  harp_record_encode(head, p, length, harp_crc32c(0, data, length), p->number, keys.rx_seed);
  if (!sealed) return;
  harp_mac_add(&session.rx_mac, &state, data, length);
  uint64_t mac = harp_mac_end(&session.rx_mac, &state, (struct harp_mac_nonce){p->number, p->path, p->type});
  harp_record_seal(head, &session.rx_mac, mac, p->number, keys.rx_seed);
}

/* Appends a record to what is to come. */
static void put(const struct harp_packet *p, const uint8_t *data, uint32_t length) {
  encode(bytes + byte_count, p, data, length);
  byte_count += HARP_RECORD_HEAD_BYTES;
  memcpy(bytes + byte_count, data, length);
  byte_count += length;
}

static void put_whole(const uint8_t *data) {
  struct harp_packet p = packet(TCP, NUMBER, 0, LARGE);
  put(&p, data, LARGE);
}

static void take_packet(void) {
  packets++;
  enum harp_drop drop = harp_session_on_record(&session, &in.record, in.number, &place, HARP_US(2));
  for (uint32_t i = 0; !drop && i < place.count; i++)
    memcpy(place.dst + place.runs[i].from, in.record.packet.data.payload + place.runs[i].from,
           place.runs[i].bytes);
}

static void take_all(void) {
  for (;;) {
    switch (harp_records_next(&in)) {
    case HARP_RECORDS_MORE:
      return;
    case HARP_RECORDS_BROKEN:
      broken = true;
      return;
    case HARP_RECORDS_SCRAP:
      scrapped++;
      break;
    case HARP_RECORDS_PLACED:
      placed++;
      harp_session_on_record(&session, &in.record, in.number, NULL, HARP_US(2));
      break;
    default:
      take_packet();
    }
  }
}

/* Feeds what is at `from` up to `end`, as readv would, never more than `at_once`. */
static void feed_from(const uint8_t *from, size_t end, size_t at_once) {
  while (fed < end && !broken) {
    struct iovec room[HARP_RECORDS_PIECES_MAX + 1];
    unsigned n = harp_records_room(&in, scrap, sizeof scrap, room);
    size_t left = HARP_MIN(end - fed, at_once), read = 0;
    for (unsigned i = 0; i < n && left; i++) {
      size_t part = HARP_MIN(left, room[i].iov_len);
      memcpy(room[i].iov_base, from + fed + read, part);
      read += part, left -= part;
    }
    assert_true(read > 0);
    fed += read;
    harp_records_on_read(&in, read);
    take_all();
    harp_receiver_check(r);
  }
}

static void feed_to(size_t end, size_t at_once) {
  feed_from(bytes, end, at_once);
}

/* The same lines come by the other path, with other bytes, so that it shows whose were kept. */
static void arrive_by_udp(uint32_t offset, uint32_t length) {
  static uint32_t number = NUMBER;
  struct harp_packet p = packet(UDP, number++, offset, length);
  p.data.payload = other + offset;
  if (harp_receiver_on_packet(r, &p, p.number, &place, HARP_US(2))) return;
  for (uint32_t i = 0; i < place.count; i++)
    memcpy(place.dst + place.runs[i].from, other + offset + place.runs[i].from, place.runs[i].bytes);
}

static bool is_done(void) {
  void *cookie;
  uint32_t size;
  return harp_rx_stream_poll_done(&stream, &cookie, &size) && size == LARGE && cookie == buffer;
}

static void assert_untouched(size_t from) {
  static uint8_t untouched[sizeof buffer];
  if (!untouched[0]) memset(untouched, UNTOUCHED, sizeof untouched);
  assert_int_equal(memcmp(buffer + from, untouched, sizeof buffer - from), 0); /* cmocka's is slow */
}

static void test_cut_at_every_byte(void **state) {
  (void)state;
  for (size_t cut = 0; cut <= LARGE + HARP_RECORD_HEAD_BYTES; cut++) {
    begin();
    put_whole(payload);
    feed_to(cut, SIZE_MAX);
    assert_int_equal(placed, cut == byte_count);
    feed_to(byte_count, SIZE_MAX);
    assert_int_equal(placed, 1);
    assert_int_equal(memcmp(buffer, payload, LARGE), 0);
    assert_untouched(LARGE);
    assert_true(is_done());
  }
}

static void test_a_few_bytes_at_a_time(void **state) {
  (void)state;
  enum { AT_ONCE_MAX = 400 };
  for (size_t at_once = 1; at_once < AT_ONCE_MAX; at_once += at_once / 3 + 1) {
    begin();
    struct harp_packet probe = {.type = HARP_PACKET_PROBE, .path = TCP, .token = keys.rx_token};
    struct harp_packet first = packet(TCP, NUMBER, 0, SMALL),
                       rest = packet(TCP, NUMBER + 1, SMALL, LARGE - SMALL);
    put(&first, payload, SMALL);
    put(&rest, payload + SMALL, LARGE - SMALL);
    probe.number = NUMBER + 2;
    put(&probe, payload, 0);
    feed_to(byte_count, at_once);
    assert_false(broken);
    assert_int_equal(packets, 2 + !placed); /* what is left is just short enough to be read whole, or not */
    assert_memory_equal(buffer, payload, LARGE);
    assert_true(is_done());
  }
}

/* Two records behind each other, and the next head with the payload's end. */
static void test_what_follows_is_read_with_it(void **state) {
  (void)state;
  begin();
  const uint8_t *early;
  assert_int_equal(
      harp_receiver_post(r, &stream, buffer + LARGE, LARGE, watched, buffer, &place, &early, HARP_US(1)), 0);
  put_whole(payload);
  struct harp_packet second = packet(TCP, NUMBER + 1, 0, LARGE);
  second.data.message++;
  second.data.line += harp_lines_of(LARGE);
  put(&second, other, LARGE);
  feed_to(byte_count, SIZE_MAX);
  assert_int_equal(placed, 2);
  assert_memory_equal(buffer, payload, LARGE);
  assert_memory_equal(buffer + LARGE, other, LARGE);
}

static void test_lines_that_came_by_another_path_stay(void **state) {
  static const struct {
    uint32_t offset, length;
  } cases[] = {{0, SMALL}, {2 * SMALL, SMALL}, {LARGE - TAIL_BYTES - SMALL, SMALL + TAIL_BYTES}};
  (void)state;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    for (size_t cut = 0; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut += 1 + cut % 5) {
      uint32_t from = cases[i].offset, to = from + cases[i].length;
      begin();
      put_whole(payload);
      feed_to(cut, SIZE_MAX);
      arrive_by_udp(from, to - from);
      feed_to(byte_count, SIZE_MAX);
      assert_int_equal(placed, 1);
      assert_int_equal(memcmp(buffer, payload, from), 0);
      /* They are other bytes, so the record's would show. */
      size_t head = HARP_RECORD_HEAD_BYTES;
      if (watched || cut <= head + from) assert_memory_equal(buffer + from, other + from, to - from);
      assert_int_equal(memcmp(buffer + to, payload + to, LARGE - to), 0);
      assert_true(is_done());
    }
  }
}

static void test_nothing_is_written_to_a_message_that_is_done(void **state) {
  (void)state;
  for (size_t cut = 0; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut += 1 + cut % 3) {
    begin();
    put_whole(payload);
    feed_to(cut, SIZE_MAX);
    for (uint32_t at = 0; at < LARGE; at += PIECE) arrive_by_udp(at, HARP_MIN(LARGE - at, PIECE + 0u));
    assert_true(is_done());
    memset(buffer, UNTOUCHED, sizeof buffer); /* its owner uses it for something else */
    /* So does the sender of its own, from which its kernel sends the rest. */
    for (size_t at = HARP_MAX(cut, (size_t)HARP_RECORD_HEAD_BYTES); at < byte_count; at++) bytes[at] ^= 0x40;
    feed_to(byte_count, SIZE_MAX);
    assert_false(broken);
    assert_untouched(0);
  }
}

static void test_nothing_is_written_for_a_stream_that_is_closed(void **state) {
  (void)state;
  for (size_t cut = 0; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut += 1 + cut % 3) {
    begin();
    put_whole(payload);
    feed_to(cut, SIZE_MAX);
    harp_receiver_close(r, &stream);
    memset(buffer, UNTOUCHED, sizeof buffer);
    feed_to(byte_count, SIZE_MAX);
    assert_false(broken);
    assert_int_equal(scrapped, 1);
    assert_untouched(0);
  }
}

/* What could not be placed once is not taken later, though its receive is posted by then. */
static void test_what_was_refused_at_first_is_not_taken(void **state) {
  (void)state;
  for (size_t cut = HARP_RECORD_HEAD_BYTES; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut += CUT_STEP / 3) {
    const uint8_t *early;
    begin();
    struct harp_packet p = packet(TCP, NUMBER, 0, LARGE);
    p.data.message++; /* has no receive yet */
    put(&p, payload, LARGE);
    feed_to(cut, SIZE_MAX);
    assert_int_equal(
        harp_receiver_post(r, &stream, buffer + LARGE, LARGE, watched, buffer, &place, &early, HARP_US(1)),
        0);
    feed_to(byte_count, SIZE_MAX);
    assert_int_equal(placed, 0);
    assert_int_equal(scrapped, 1);
    assert_false(broken);
    assert_untouched(0);
  }
}

static void test_a_payload_that_is_wrong_ends_it(void **state) {
  (void)state;
  for (size_t at = HARP_RECORD_HEAD_BYTES; at < LARGE + HARP_RECORD_HEAD_BYTES; at += CUT_STEP) {
    begin();
    put_whole(payload);
    bytes[at] ^= 0x40;
    feed_to(byte_count, READ_BYTES);
    assert_true(broken);
    assert_int_equal(in.why, sealed ? HARP_DROP_MAC : HARP_DROP_CRC);
    if (watched) assert_untouched(0);
    assert_false(is_done()); /* it comes again by another path */
    arrive_by_udp(0, PIECE);
    assert_memory_equal(buffer, other, PIECE);
  }
}

/* A payload that its sender did not check is taken as it comes; what is wrong with the head still ends it.
 * Where there are MACs no payload goes without one. */
static void test_a_payload_without_a_crc(void **state) {
  (void)state;
  for (size_t cut = 0; cut <= LARGE + HARP_RECORD_HEAD_BYTES; cut += 1 + cut % 7) {
    begin();
    struct harp_packet p = packet(TCP, NUMBER, 0, LARGE);
    p.flags = HARP_FLAG_UNCHECKED;
    put(&p, payload, LARGE);
    if (sealed && cut < byte_count) continue;
    feed_to(cut, SIZE_MAX);
    if (watched && cut < byte_count) assert_untouched(0);
    feed_to(byte_count, SIZE_MAX);
    assert_int_equal(placed, !sealed);
    if (sealed) continue;
    assert_int_equal(memcmp(buffer, payload, LARGE), 0);
    assert_untouched(LARGE);
    assert_true(is_done());
  }
  begin();
  put_whole(payload);
  bytes[offsetof(struct harp_wire_record, prefix.flags)] |= HARP_FLAG_UNCHECKED; /* forged */
  feed_to(byte_count, SIZE_MAX);
  assert_true(broken);
  assert_false(is_done());
}

/* A connection beside the first: one record with the same lines and other bytes. */
static struct harp_records beside;
static uint8_t beside_ahead[HARP_RECORDS_BUFFER_BYTES], beside_bytes[LARGE + HARP_RECORD_HEAD_BYTES];
static size_t beside_fed;
static enum harp_drop beside_drop; /* what the session said of its payload that was placed */

static void begin_beside_with(const struct harp_packet *p) {
  encode(beside_bytes, p, other, LARGE);
  memcpy(beside_bytes + HARP_RECORD_HEAD_BYTES, other, LARGE);
  harp_records_init(&beside, &session, UDP, beside_ahead);
  beside_fed = 0;
}

static void begin_beside(void) {
  struct harp_packet p = packet(UDP, NUMBER, 0, LARGE);
  begin_beside_with(&p);
}

/* Feeds it up to `end`; returns what came of it last. */
static enum harp_records_event feed_beside(size_t end) {
  enum harp_records_event event = HARP_RECORDS_MORE;
  while (beside_fed < end) {
    struct iovec room[HARP_RECORDS_PIECES_MAX + 1];
    unsigned n = harp_records_room(&beside, scrap, sizeof scrap, room);
    size_t read = 0;
    for (unsigned i = 0; i < n; i++) {
      size_t part = HARP_MIN(end - beside_fed - read, room[i].iov_len);
      memcpy(room[i].iov_base, beside_bytes + beside_fed + read, part);
      read += part;
    }
    beside_fed += read;
    harp_records_on_read(&beside, read);
    event = harp_records_next(&beside);
  }
  if (event == HARP_RECORDS_PLACED)
    beside_drop = harp_session_on_record(&session, &beside.record, beside.number, NULL, HARP_US(2));
  return event;
}

/* What comes of a record that was changed on its way must not go over the same lines of a good one. */
static void test_who_begins_last_has_the_lines(void **state) {
  (void)state;
  for (size_t cut = HARP_RECORD_HEAD_BYTES; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut += CUT_STEP) {
    begin();
    put_whole(payload);
    bytes[byte_count - 1] ^= 0x40;
    begin_beside();
    feed_to(cut, READ_BYTES);
    assert_int_equal(feed_beside(sizeof beside_bytes - 1), HARP_RECORDS_MORE);
    feed_to(byte_count, READ_BYTES);
    assert_true(broken);
    assert_int_equal(feed_beside(sizeof beside_bytes), HARP_RECORDS_PLACED);
    assert_int_equal(beside_drop, HARP_DROP_NONE);
    assert_memory_equal(buffer, other, LARGE);
    assert_untouched(LARGE);
    assert_true(is_done());
  }
}

/* A record that contradicts its message is refused, and takes no lines from the good one that is read. */
static void test_one_that_is_refused_takes_no_lines(void **state) {
  (void)state;
  for (size_t cut = HARP_RECORD_HEAD_BYTES; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut += CUT_STEP) {
    begin();
    put_whole(payload);
    struct harp_packet p = packet(UDP, NUMBER, 0, LARGE);
    p.data.line++; /* its message begins with another line */
    begin_beside_with(&p);
    feed_to(cut, READ_BYTES);
    assert_int_equal(feed_beside(sizeof beside_bytes - 1), HARP_RECORDS_MORE);
    feed_to(byte_count, READ_BYTES);
    assert_int_equal(placed, 1);
    assert_int_equal(feed_beside(sizeof beside_bytes), HARP_RECORDS_SCRAP);
    assert_memory_equal(buffer, payload, LARGE);
    assert_true(is_done());
  }
}

/* A connection that ends in the middle of a record leaves nothing behind. */
static void test_one_that_ends_is_forgotten(void **state) {
  (void)state;
  begin();
  put_whole(payload);
  feed_to(LARGE / 2, READ_BYTES);
  assert_ptr_equal(session.reading, watched ? NULL : &in);
  harp_records_end(&in);
  harp_records_end(&in);
  assert_null(session.reading);
  begin_beside();
  assert_int_equal(feed_beside(sizeof beside_bytes), HARP_RECORDS_PLACED);
  assert_int_equal(beside_drop, HARP_DROP_NONE);
  assert_memory_equal(buffer, other, LARGE);
}

static void test_a_small_payload_that_is_wrong_is_never_placed(void **state) {
  (void)state;
  begin();
  struct harp_packet p = packet(TCP, NUMBER, 0, SMALL);
  put(&p, payload, SMALL);
  bytes[HARP_RECORD_HEAD_BYTES + 9] ^= 1;
  feed_to(byte_count, SIZE_MAX);
  assert_true(broken);
  assert_untouched(0);
}

static void test_a_head_that_is_wrong_ends_it(void **state) {
  (void)state;
  for (unsigned i = 0; i < HARP_RECORD_HEAD_BYTES; i++) {
    begin();
    put_whole(payload);
    bytes[i] ^= 0x10;
    feed_to(byte_count, SIZE_MAX);
    assert_true(broken);
    assert_int_not_equal(in.why, HARP_DROP_NONE);
    assert_untouched(0);
  }
}

static void test_records_of_others_end_it(void **state) {
  struct harp_packet cases[] = {packet(UDP, NUMBER, 0, SMALL), packet(TCP, NUMBER, 0, SMALL),
                                packet(TCP, NUMBER, 0, SMALL), packet(TCP + 1, NUMBER, 0, SMALL)};
  static const enum harp_drop why[] = {HARP_DROP_PATH, HARP_DROP_TOKEN, HARP_DROP_FIELD, HARP_DROP_PATH};
  (void)state;
  cases[1].token++;
  cases[2].type = HARP_PACKET_JOIN;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    begin();
    put(&cases[i], payload, SMALL);
    feed_to(byte_count, SIZE_MAX);
    assert_true(broken);
    assert_int_equal(in.why, why[i]);
  }
  begin();
  struct harp_packet join = {.type = HARP_PACKET_JOIN, .path = TCP, .token = keys.rx_token, .number = NUMBER};
  put(&join, payload, 0);
  feed_to(byte_count, SIZE_MAX);
  assert_true(broken);
  assert_int_equal(in.why, HARP_DROP_TYPE);
}

static int set_watched(void **state) {
  (void)state;
  watched = true;
  return 0;
}

static int set_unwatched(void **state) {
  (void)state;
  watched = false;
  return 0;
}

static void test_a_watched_buffer_gets_nothing_before_all_came(void **state) {
  (void)state;
  for (size_t cut = 0; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut++) {
    begin();
    put_whole(payload);
    feed_to(cut, READ_BYTES);
    assert_untouched(0);
  }
}

/* The first one that is there with the right CRC is placed; of the other nothing is written. */
static void test_a_watched_buffer_gets_each_line_once(void **state) {
  (void)state;
  for (size_t cut = HARP_RECORD_HEAD_BYTES; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut += CUT_STEP) {
    begin();
    put_whole(payload);
    begin_beside();
    feed_to(cut, READ_BYTES);
    assert_int_equal(feed_beside(sizeof beside_bytes - 1), HARP_RECORDS_MORE);
    feed_to(byte_count, READ_BYTES);
    assert_int_equal(placed, 1);
    assert_true(is_done());
    memset(buffer, UNTOUCHED, sizeof buffer); /* its owner uses it for something else */
    assert_int_equal(feed_beside(sizeof beside_bytes), HARP_RECORDS_PLACED);
    assert_int_equal(beside_drop, HARP_DROP_DUPLICATE);
    assert_untouched(0);
  }
}

/* What was read ahead for a watched buffer goes to scrap with the rest where its stream was closed; a receive
 * of the next stream with the same numbers is another one's. */
static void test_a_receive_that_is_watched_later_is_not_read_into(void **state) {
  static const struct harp_rx_stream_config sc = {
      .id = STREAM, .first_line = LINE, .first_message = MESSAGE, .staging = staging};
  (void)state;
  for (size_t cut = HARP_RECORD_HEAD_BYTES; cut < LARGE + HARP_RECORD_HEAD_BYTES; cut += CUT_STEP) {
    const uint8_t *early;
    watched = false;
    begin();
    watched = true;
    put_whole(payload);
    feed_to(cut, SIZE_MAX);
    harp_receiver_close(r, &stream);
    memset(buffer, UNTOUCHED, sizeof buffer);
    harp_receiver_open(r, &stream, &sc);
    assert_int_equal(
        harp_receiver_post(r, &stream, buffer, LARGE, watched, buffer, &place, &early, HARP_US(1)), 0);
    feed_to(byte_count, SIZE_MAX);
    assert_int_equal(scrapped, 1);
    assert_untouched(0);
  }
}

/* ---- the longest record ---- */

enum { LONGEST_BYTES = 2 * HARP_RECORD_HEAD_BYTES + 2 * HARP_RECORD_MAX_BYTES };

/* Puts two of the longest records behind each other, and feeds them. */
static void test_the_longest_record(void **state) {
  (void)state;
  static uint8_t wire[LONGEST_BYTES], got[2][HARP_RECORD_MAX_BYTES], sent[2][HARP_RECORD_MAX_BYTES];
  const uint8_t *early;
  for (unsigned i = 0; i < HARP_RECORD_MAX_BYTES; i++)
    sent[0][i] = byte_of(i), sent[1][i] = (uint8_t)~sent[0][i];
  begin();
  for (unsigned i = 0; i < 2; i++) {
    uint8_t *head = wire + i * (LONGEST_BYTES / 2);
    struct harp_packet p = packet(TCP, NUMBER + i, 0, HARP_RECORD_MAX_BYTES);
    p.data.message += 1 + i;
    p.data.size = HARP_RECORD_MAX_BYTES;
    p.data.line += harp_lines_of(LARGE) + i * HARP_RECORD_MAX_LINES;
    encode(head, &p, sent[i], HARP_RECORD_MAX_BYTES);
    memcpy(head + HARP_RECORD_HEAD_BYTES, sent[i], HARP_RECORD_MAX_BYTES);
    assert_int_equal(harp_receiver_post(r, &stream, got[i], HARP_RECORD_MAX_BYTES, watched, got[i], &place,
                                        &early, HARP_US(1)),
                     0);
  }
  feed_from(wire, sizeof wire, SIZE_MAX);
  assert_false(broken);
  assert_int_equal(placed, 2);
  assert_int_equal(memcmp(got, sent, sizeof got), 0);
}

/* ---- MACs ---- */

/* Who sees the traffic knows the CRC's seed: he changes a payload, or a head, and corrects the CRC. */
static void test_who_knows_the_seed_forges_nothing(void **state) {
  (void)state;
  for (unsigned what = 0; what < 3; what++) {
    begin();
    put_whole(payload);
    struct harp_wire_record h;
    struct harp_packet p = packet(TCP, NUMBER + (what == 1), 0, LARGE);
    memcpy(&h, bytes, sizeof h);
    if (what == 2) p.flags = HARP_FLAG_UNCHECKED;
    if (what != 1) memcpy(bytes + HARP_RECORD_HEAD_BYTES, other, LARGE);
    if (what) { /* with the MACs that it had */
      uint64_t payload_mac = (uint64_t)harp_from_be32(h.payload_crc) << 32 | harp_from_be32(h.payload_mac);
      struct harp_be32 crc;
      harp_record_encode(bytes, &p, LARGE, 0, p.number, keys.rx_seed);
      harp_record_seal(bytes, &session.tx_mac, payload_mac, p.number, keys.rx_seed);
      memcpy(bytes + offsetof(struct harp_wire_record, proof), h.proof, sizeof h.proof);
      crc = harp_to_be32(harp_crc32c(harp_packet_seed(keys.rx_seed, p.number), bytes + HARP_CRC_FROM_BYTE,
                                     HARP_RECORD_HEAD_BYTES - HARP_CRC_FROM_BYTE));
      memcpy(bytes, &crc, sizeof crc);
    }
    feed_to(byte_count, SIZE_MAX);
    assert_true(broken);
    assert_int_equal(in.why, HARP_DROP_MAC);
    assert_false(is_done());
    if (what) assert_untouched(0); /* the head is checked first */
  }
}

#define BOTH_WAYS(test)                                                                                      \
  {#test, test, set_unwatched, NULL, NULL}, {                                                                \
#test " watched", test, set_watched, NULL, NULL                                                          \
  }

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH_WAYS(test_cut_at_every_byte),
      BOTH_WAYS(test_a_few_bytes_at_a_time),
      BOTH_WAYS(test_what_follows_is_read_with_it),
      BOTH_WAYS(test_lines_that_came_by_another_path_stay),
      BOTH_WAYS(test_nothing_is_written_to_a_message_that_is_done),
      BOTH_WAYS(test_nothing_is_written_for_a_stream_that_is_closed),
      BOTH_WAYS(test_what_was_refused_at_first_is_not_taken),
      BOTH_WAYS(test_a_payload_that_is_wrong_ends_it),
      BOTH_WAYS(test_a_payload_without_a_crc),
      BOTH_WAYS(test_who_begins_last_has_the_lines),
      BOTH_WAYS(test_one_that_is_refused_takes_no_lines),
      BOTH_WAYS(test_one_that_ends_is_forgotten),
      BOTH_WAYS(test_a_small_payload_that_is_wrong_is_never_placed),
      BOTH_WAYS(test_a_head_that_is_wrong_ends_it),
      BOTH_WAYS(test_records_of_others_end_it),
      BOTH_WAYS(test_the_longest_record),
      cmocka_unit_test_setup(test_a_watched_buffer_gets_nothing_before_all_came, set_watched),
      cmocka_unit_test_setup(test_a_watched_buffer_gets_each_line_once, set_watched),
      cmocka_unit_test_setup(test_a_receive_that_is_watched_later_is_not_read_into, set_watched),
  };
  const struct CMUnitTest of_macs[] = {
      BOTH_WAYS(test_who_knows_the_seed_forges_nothing),
  };
  int failed = cmocka_run_group_tests(tests, init, fini);
  sealed = true;
  failed += cmocka_run_group_tests_name("tests with MACs", tests, init, fini);
  return failed + cmocka_run_group_tests(of_macs, init, fini);
}
