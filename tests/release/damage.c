/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged packets into a session that receives: messages come in datagrams or in records, and before each
 * right packet come copies of it in which one to three bits, or some of up to 32 in a row, are wrong. The
 * session decodes, checks and places as it does in the product. Nothing damaged may be taken, and each
 * message must have the right bytes in the end, with none outside of its buffer; one in three is watched by
 * its reader, and has only right bytes at any time.
 *
 *   damage udp|tcp SEED SECONDS [taken]     prints how many damaged packets there were, and what stopped them
 *
 * "taken" is for the test of this program: the session takes what is damaged, as without a checksum. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "models/rng.h"
#include "proto/records.h"
#include "wire/crc32c.h"

enum {
  UDP,
  TCP,
  PATHS,
  STREAM = 5,
  COPIES = 40, /* the copies of each packet that are damaged */
  PACKETS_MAX = 6,
  MESSAGE_MAX_BYTES = 3 * HARP_RECORD_WHOLE_BYTES,
  GUARD = 64,
  UNTOUCHED = 0xee,
  SCRAP_BYTES = 4096,
  ROOM_BYTES = MESSAGE_MAX_BYTES + HARP_RECORD_HEAD_BYTES,
  ROUNDS = 64, /* messages between two looks at the clock */
};

static const struct harp_session_keys keys = {.rx_token = 0x0123456789abcdef, .rx_seed = 0x1badcafe};

static struct rng rng;
static struct harp_session session;
static struct harp_receiver *receiver;
static struct harp_rx_stream stream;
static struct harp_counters counters;
static uint8_t staging[HARP_STAGING_BYTES], ahead[HARP_RECORDS_BUFFER_BYTES], scrap[SCRAP_BYTES];
static uint8_t content[MESSAGE_MAX_BYTES], memory[MESSAGE_MAX_BYTES + GUARD], untouched[sizeof memory];
static uint8_t right[ROOM_BYTES], wire[ROOM_BYTES];
static uint32_t message, line, number;
static bool is_taken;
static uint64_t damaged, damaged_bytes, messages, watched, stopped_by[HARP_DROP_COUNT];

#define CHECK(x) ((x) ? (void)0 : fail(#x))

_Noreturn static void fail(const char *what) {
  fprintf(stderr, "WRONG: not %s; message %" PRIu32 ", damaged packets %" PRIu64 "\n", what, message,
          damaged);
  exit(1);
}

static void begin(void) {
  static const struct harp_receiver_config config = {.path_count = PATHS, .stream_max = STREAM + 1};
  static const struct harp_rx_stream_config sc = {.id = STREAM, .staging = staging};
  receiver = malloc(harp_receiver_bytes(&config));
  CHECK(receiver);
  harp_receiver_init(receiver, &config, NULL, &counters);
  harp_receiver_open(receiver, &stream, &sc);
  harp_session_init(&session, &keys, NULL, receiver);
  memset(untouched, UNTOUCHED, sizeof untouched);
}

/* ---- damage ---- */

static void flip(uint64_t bit) {
  wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* One to three different bits, or a burst that begins and ends with a wrong one: what the CRC finds for
 * certain. A burst does not cross from the CRC, which comes first on the wire, to what it covers. */
static void damage(uint32_t bytes) {
  enum { KINDS = 4, BURST_BITS = 32 };
  uint64_t kind = rng_below(&rng, KINDS), bits = (uint64_t)bytes * 8;
  if (kind < KINDS - 1) {
    uint64_t first = rng_below(&rng, bits / 3);
    for (uint64_t i = 0; i <= kind; i++) flip(first + i * (bits / 3)), first = first / 2;
    return;
  }
  uint64_t length = rng_between(&rng, 2, BURST_BITS), least = 8 * (uint64_t)HARP_CRC_FROM_BYTE;
  uint64_t from = least + rng_below(&rng, bits - least - length);
  flip(from);
  flip(from + length - 1);
  for (uint64_t i = 1; i + 1 < length; i++)
    if (rng_next(&rng) & 1) flip(from + i);
}

/* ---- datagrams ---- */

static enum harp_drop take_datagram(const uint8_t *at, uint32_t bytes) {
  struct harp_packet p;
  struct harp_placement place;
  enum harp_drop drop = harp_packet_decode(at, bytes, &p);
  if (drop) return drop;
  if (p.token != keys.rx_token) return HARP_DROP_TOKEN; /* as the engine finds the session */
  if (is_taken && p.type == HARP_PACKET_DATA)
    drop = harp_receiver_on_packet(receiver, &p, harp_receiver_number(receiver, &p), &place, HARP_US(2));
  else
    drop = harp_session_on_packet(&session, at, bytes, &p, &place, HARP_US(2));
  if (!drop && !place.is_placed && p.type == HARP_PACKET_DATA) harp_placement_copy(&place, p.data.payload);
  return drop;
}

/* ---- records ---- */

/* Reads a connection that has this record alone. */
static enum harp_drop take_record(const uint8_t *at, uint32_t bytes) {
  static struct harp_records in;
  harp_records_init(&in, &session, TCP, ahead);
  enum harp_records_event event = HARP_RECORDS_MORE;
  for (uint32_t fed = 0; fed < bytes && event == HARP_RECORDS_MORE;) {
    struct iovec room[HARP_RECORDS_PIECES_MAX + 1];
    unsigned n = harp_records_room(&in, scrap, sizeof scrap, room);
    uint32_t before = fed;
    for (unsigned i = 0; i < n && fed < bytes; i++) {
      uint32_t part = (uint32_t)HARP_MIN((size_t)(bytes - fed), room[i].iov_len);
      memcpy(room[i].iov_base, at + fed, part);
      fed += part;
    }
    harp_records_on_read(&in, fed - before);
    event = harp_records_next(&in);
    if (is_taken && event == HARP_RECORDS_BROKEN && in.why == HARP_DROP_CRC && !in.in_place)
      event = HARP_RECORDS_PLACED;
  }
  harp_records_end(&in);
  if (event == HARP_RECORDS_BROKEN) return in.why;
  CHECK(event == HARP_RECORDS_PACKET || event == HARP_RECORDS_PLACED);
  struct harp_placement place;
  bool is_placed = event == HARP_RECORDS_PLACED;
  enum harp_drop drop =
      harp_session_on_record(&session, &in.record, in.number, is_placed ? NULL : &place, HARP_US(2));
  if (!drop && !is_placed) harp_placement_copy(&place, in.record.packet.data.payload);
  return drop;
}

/* ---- messages ---- */

struct part {
  uint32_t offset, bytes;
};

/* Cuts a message into packets of whole lines, and shuffles them. */
static unsigned cut(struct part parts[PACKETS_MAX], uint32_t size, uint32_t part_max) {
  unsigned count = 0;
  for (uint32_t at = 0; at < size; count++) {
    uint32_t left = harp_lines_of(size - at), most = part_max / HARP_LINE_BYTES;
    uint32_t least = (left + PACKETS_MAX - count - 1) / (PACKETS_MAX - count); /* later ones take as much */
    uint32_t lines = (uint32_t)rng_between(&rng, HARP_MIN(least, most), most);
    parts[count] = (struct part){at, HARP_MIN(lines * HARP_LINE_BYTES, size - at)};
    at += parts[count].bytes;
  }
  for (unsigned i = count; i > 1; i--) {
    unsigned k = (unsigned)rng_below(&rng, i);
    struct part moved = parts[k];
    parts[k] = parts[i - 1];
    parts[i - 1] = moved;
  }
  return count;
}

static uint32_t encode(unsigned path, const struct part *part, uint32_t size) {
  struct harp_packet p = {.type = HARP_PACKET_DATA,
                          .path = (uint8_t)path,
                          .token = keys.rx_token,
                          .number = number++,
                          .data = {.message = message,
                                   .line = line + part->offset / HARP_LINE_BYTES,
                                   .offset = part->offset,
                                   .size = size,
                                   .length = part->bytes,
                                   .stream = STREAM}};
  const uint8_t *payload = content + part->offset;
  if (path == UDP) {
    harp_packet_encode_data(right, &p, p.number, keys.rx_seed, payload);
    return HARP_DATA_HEADER_BYTES + part->bytes;
  }
  uint32_t crc = harp_crc32c(0, payload, part->bytes);
  harp_record_encode(right, &p, part->bytes, crc, p.number, keys.rx_seed);
  memcpy(right + HARP_RECORD_HEAD_BYTES, payload, part->bytes);
  return HARP_RECORD_HEAD_BYTES + part->bytes;
}

static void bring(unsigned path, const struct part *part, uint32_t size) {
  enum harp_drop (*take)(const uint8_t *, uint32_t) = path == UDP ? take_datagram : take_record;
  uint32_t bytes = encode(path, part, size);
  for (unsigned i = 0; i < COPIES; i++) {
    memcpy(wire, right, bytes);
    damage(bytes);
    enum harp_drop drop = take(wire, bytes);
    CHECK(drop || is_taken);
    stopped_by[drop]++;
    damaged++;
    damaged_bytes += bytes;
  }
  CHECK(take(right, bytes) == HARP_DROP_NONE || is_taken);
}

/* Returns whether each line is untouched or right. */
static bool is_clean(const uint8_t *buffer, uint32_t size) {
  for (uint32_t at = 0; at < size; at += HARP_LINE_BYTES) {
    uint32_t bytes = HARP_MIN(size - at, (uint32_t)HARP_LINE_BYTES);
    if (memcmp(buffer + at, untouched, bytes) && memcmp(buffer + at, content + at, bytes)) return false;
  }
  return true;
}

static void bring_message(unsigned path) {
  enum { MOSTLY = 8, WATCHED = 3 };
  bool is_small = rng_below(&rng, MOSTLY), is_watched = !rng_below(&rng, WATCHED);
  uint32_t packet_max = path == UDP ? HARP_PACKET_MAX_PAYLOAD_BYTES : MESSAGE_MAX_BYTES;
  uint32_t size_max = is_small ? 4096 : path == UDP ? PACKETS_MAX * packet_max / 2 : packet_max;
  uint32_t size = (uint32_t)rng_between(&rng, 1, size_max);
  uint64_t salt = rng_next(&rng) | 1;
  for (uint32_t i = 0; i < size; i += sizeof salt) {
    uint64_t word = salt * (i + 1);
    memcpy(content + i, &word, HARP_MIN(sizeof word, (size_t)(size - i)));
  }
  memset(memory, UNTOUCHED, size + GUARD);
  struct harp_placement place;
  const uint8_t *early;
  CHECK(!harp_receiver_post(receiver, &stream, memory, size, is_watched, memory, &place, &early, HARP_US(1)));
  CHECK(!early);
  struct part parts[PACKETS_MAX];
  unsigned count = cut(parts, size, packet_max);
  for (unsigned i = 0; i < count; i++) {
    bring(path, &parts[i], size);
    CHECK(!is_watched || is_clean(memory, size));
  }
  void *cookie;
  uint32_t bytes;
  CHECK(harp_rx_stream_poll_done(&stream, &cookie, &bytes) && bytes == size);
  CHECK(!memcmp(memory, content, size));
  CHECK(!memcmp(memory + size, untouched, GUARD));
  harp_receiver_check(receiver);
  messages++;
  watched += is_watched;
  message++;
  line += harp_lines_of(size);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  if (argc < 4 || argc > 5 || (strcmp(argv[1], "udp") && strcmp(argv[1], "tcp")))
    return fprintf(stderr, "usage: %s udp|tcp SEED SECONDS [taken]\n", argv[0]), 2;
  unsigned path = strcmp(argv[1], "udp") ? TCP : UDP;
  rng.state = strtoull(argv[2], NULL, 0);
  is_taken = argc == 5;
  double end = now_s() + strtod(argv[3], NULL);
  begin();
  do
    for (unsigned i = 0; i < ROUNDS; i++) bring_message(path);
  while (now_s() < end);
  printf("%" PRIu64 " damaged packets of %" PRIu64 " bytes; %" PRIu64 " messages right, %" PRIu64
         " of them watched; stopped by",
         damaged, damaged_bytes, messages, watched);
  for (unsigned i = 0; i < HARP_DROP_COUNT; i++)
    if (stopped_by[i]) printf(" %s %" PRIu64, harp_drop_name((enum harp_drop)i), stopped_by[i]);
  printf("\n");
  return 0;
}
