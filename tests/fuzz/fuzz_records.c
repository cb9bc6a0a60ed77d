/* SPDX-License-Identifier: Apache-2.0 */
/* What comes on a tcp path: the decoder of heads on arbitrary bytes, and the reader on streams of records of
 * a peer that knows the seed and sends any fields, in reads of any size, while lines come by another
 * path, receives are posted and the stream is closed.
 *
 * Besides what the sanitizers see, these must hold after every step: the receiver's own invariants; nothing
 * is written to a buffer that is not posted, or behind its end; a watched buffer has only lines that were
 * taken, with the bytes of the first that brought them. */
#include "proto/records.h"
#include "wire/crc32c.h"

#include "fuzz/fuzz_input.h"

enum {
  TCP = 1,
  PATHS = 2,
  STREAM = 0,
  RECEIVES = 8,
  CAPACITY = HARP_RECORDS_AHEAD_BYTES + HARP_RECORD_WHOLE_BYTES + 5, /* records of several reads */
  EXCESS_BYTES = CAPACITY / 16, /* the bytes of a message beyond its receive */
  GUARD = 64,
  GUARD_BYTE = 0xa7,
  UNWRITTEN = 0x5c,
  UDP_BYTES = 8 * HARP_LINE_BYTES,
  SCRAP_BYTES = 4096,
  STEPS = 200,
};

static const struct harp_session_keys keys = {.tx_token = 1, .rx_token = 2, .tx_seed = 3, .rx_seed = 4};
static const struct harp_session_macs macs = {.is_on = true, .tx = {{5}, {6}}, .rx = {{7}, {8}}};
static bool has_macs;

/* What each message contains. */
static uint8_t content[CAPACITY + EXCESS_BYTES];

struct reader {
  struct harp_counters counters;
  struct harp_session session;
  struct harp_receiver *receiver;
  struct harp_rx_stream stream;
  struct harp_records in;
  bool is_open, is_broken;
  unsigned posted, done;
  uint8_t *buffers[RECEIVES]; /* CAPACITY and GUARD bytes each; those of done receives are freed */
  uint8_t *shadows[RECEIVES]; /* what watched buffers must contain; else NULL */
  uint8_t *staging, *ahead, *scrap;
};

static void run_decoder(struct fuzz_input *in) {
  struct harp_record r;
  uint8_t *head = malloc(HARP_RECORD_HEAD_BYTES + 1); /* odd, and exactly as large */
  FUZZ_CHECK(head);
  memset(head, 0, HARP_RECORD_HEAD_BYTES + 1);
  (void)fuzz_bytes(in, head + 1, HARP_RECORD_HEAD_BYTES);
  head[1 + offsetof(struct harp_wire_prefix, version)] =
      HARP_WIRE_VERSION; /* tests/unit/test_record.c: others */
  if (harp_record_decode(head + 1, &r) == HARP_DROP_NONE) {
    FUZZ_CHECK(r.length <= HARP_RECORD_MAX_BYTES);
    if (r.packet.type == HARP_PACKET_DATA)
      FUZZ_CHECK((uint64_t)r.packet.data.offset + r.packet.data.length <= r.packet.data.size);
    (void)harp_record_head_ok(head + 1, 1, 2);
    (void)harp_record_join_ok(head + 1, 1, head + 1);
  }
  free(head);
}

static void check_buffers(const struct reader *r) {
  for (unsigned i = r->done; i < r->posted; i++) {
    for (unsigned k = 0; k < GUARD; k++) FUZZ_CHECK(r->buffers[i][CAPACITY + k] == GUARD_BYTE);
    FUZZ_CHECK(!r->shadows[i] || !memcmp(r->buffers[i], r->shadows[i], CAPACITY));
  }
}

static void free_receive(struct reader *r, unsigned i) {
  free(r->buffers[i]);
  free(r->shadows[i]);
}

/* Copies the runs of a payload to their place, as the engine does. Message numbers begin at 0. */
static void copy_runs(struct reader *r, uint32_t message, const struct harp_placement *place,
                      const uint8_t *payload) {
  uint8_t *shadow = message < r->posted ? r->shadows[message] : NULL;
  for (uint32_t i = 0; i < place->count; i++) {
    uint32_t from = place->runs[i].from, bytes = place->runs[i].bytes;
    memcpy(place->dst + from, payload + from, bytes);
    if (shadow) memcpy(shadow + (place->dst - r->buffers[message]) + from, payload + from, bytes);
  }
}

/* Learns that a record is in its place: of its lines those that nobody had brought may be there now. (Not
 * all: this peer may give two messages the same lines.) */
static void note_placed(struct reader *r, const struct harp_packet *p) {
  uint8_t *shadow = r->shadows[p->data.message];
  const uint8_t *buffer = r->buffers[p->data.message];
  for (uint32_t at = p->data.offset, end = at + p->data.length; shadow && at < end; at += HARP_LINE_BYTES) {
    uint32_t bytes = HARP_MIN(end - at, (uint32_t)HARP_LINE_BYTES);
    bool is_new = shadow[at] == UNWRITTEN && !memcmp(shadow + at, shadow + at + 1, bytes - 1);
    if (is_new && !memcmp(buffer + at, content + at, bytes)) memcpy(shadow + at, content + at, bytes);
  }
}

static void begin(struct reader *r) {
  static const struct harp_receiver_config config = {
      .first_number = 0, .path_count = PATHS, .stream_max = STREAM + 1};
  memset(r, 0, sizeof *r);
  r->receiver = malloc(harp_receiver_bytes(&config));
  r->staging = malloc(HARP_STAGING_BYTES);
  r->ahead = malloc(HARP_RECORDS_BUFFER_BYTES);
  r->scrap = malloc(SCRAP_BYTES);
  FUZZ_CHECK(r->receiver && r->staging && r->ahead && r->scrap);
  harp_receiver_init(r->receiver, &config, NULL, &r->counters);
  struct harp_rx_stream_config sc = {.id = STREAM, .staging = r->staging};
  harp_receiver_open(r->receiver, &r->stream, &sc);
  r->is_open = true;
  harp_session_init(&r->session, &keys, NULL, r->receiver);
  if (has_macs) harp_session_use_macs(&r->session, &macs);
  harp_records_init(&r->in, &r->session, TCP, r->ahead);
}

static void end(struct reader *r) {
  harp_records_end(&r->in);
  FUZZ_CHECK(!r->session.reading);
  for (unsigned i = r->done; i < r->posted; i++) free_receive(r, i);
  free(r->receiver);
  free(r->staging);
  free(r->ahead);
  free(r->scrap);
}

static void post(struct reader *r, bool is_watched) {
  struct harp_placement place;
  const uint8_t *early;
  if (!r->is_open || r->posted == RECEIVES) return;
  uint8_t *buffer = r->buffers[r->posted] = malloc(CAPACITY + GUARD);
  FUZZ_CHECK(buffer);
  memset(buffer + CAPACITY, GUARD_BYTE, GUARD);
  if (is_watched) {
    uint8_t *shadow = r->shadows[r->posted] = malloc(CAPACITY);
    FUZZ_CHECK(shadow);
    memset(shadow, UNWRITTEN, CAPACITY);
    memset(buffer, UNWRITTEN, CAPACITY);
  }
  r->posted++;
  FUZZ_CHECK(!harp_receiver_post(r->receiver, &r->stream, buffer, CAPACITY, is_watched, buffer, &place,
                                 &early, HARP_US(1)));
  if (early) copy_runs(r, r->posted - 1, &place, early);
}

/* A receive that is done is its owner's, who may free it. */
static void take_done(struct reader *r) {
  void *cookie;
  uint32_t bytes;
  while (r->is_open && harp_rx_stream_poll_done(&r->stream, &cookie, &bytes)) {
    FUZZ_CHECK(bytes <= CAPACITY && cookie == r->buffers[r->done]);
    free_receive(r, r->done++);
  }
}

static void feed_packet(struct reader *r, struct harp_packet *p) {
  struct harp_placement place;
  enum harp_drop drop =
      harp_receiver_on_packet(r->receiver, p, harp_receiver_number(r->receiver, p), &place, HARP_US(2));
  if (!drop) copy_runs(r, p->data.message, &place, p->data.payload);
}

static void take_all(struct reader *r) {
  for (;;) {
    enum harp_records_event event = harp_records_next(&r->in);
    struct harp_placement place;
    if (event == HARP_RECORDS_MORE) return;
    if (event == HARP_RECORDS_BROKEN) {
      FUZZ_CHECK(r->in.why != HARP_DROP_NONE);
      r->is_broken = true;
      return;
    }
    if (event == HARP_RECORDS_SCRAP || r->in.record.packet.type == HARP_PACKET_ACK) continue;
    const struct harp_packet *p = &r->in.record.packet;
    bool placed = event == HARP_RECORDS_PLACED;
    enum harp_drop drop =
        harp_session_on_record(&r->session, &r->in.record, r->in.number, placed ? NULL : &place, HARP_US(2));
    if (!drop && placed) note_placed(r, p);
    if (!drop && !placed && p->type == HARP_PACKET_DATA)
      copy_runs(r, p->data.message, &place, p->data.payload);
    check_buffers(r);
    take_done(r);
  }
}

/* Reads so many bytes at once, as far as there is room. Returns how many of them. */
static size_t read_some(struct reader *r, const uint8_t *bytes, size_t count) {
  struct iovec room[HARP_RECORDS_PIECES_MAX + 1];
  unsigned n = harp_records_room(&r->in, r->scrap, SCRAP_BYTES, room);
  size_t taken = 0;
  for (unsigned i = 0; i < n && taken < count; i++) {
    size_t part = HARP_MIN(count - taken, room[i].iov_len);
    memcpy(room[i].iov_base, bytes + taken, part);
    taken += part;
  }
  FUZZ_CHECK(taken);
  harp_records_on_read(&r->in, taken);
  take_all(r);
  harp_receiver_check(r->receiver);
  check_buffers(r);
  return taken;
}

/* The UDP path delivers lines of the record that is being read. */
static void deliver_by_udp(struct reader *r, uint32_t at) {
  struct harp_packet p = r->in.record.packet;
  bool is_under_way = r->in.in_place || r->in.need > HARP_RECORD_HEAD_BYTES;
  if (!is_under_way || !r->is_open || p.type != HARP_PACKET_DATA) return;
  at = at % p.data.length / HARP_LINE_BYTES * HARP_LINE_BYTES;
  p.path = 0;
  p.data.offset += at, p.data.line += at / HARP_LINE_BYTES;
  p.data.length = HARP_MIN(p.data.length - at, (uint32_t)UDP_BYTES);
  p.data.payload = content + p.data.offset;
  feed_packet(r, &p);
  take_done(r);
}

static void close_stream(struct reader *r) {
  harp_receiver_close(r->receiver, &r->stream);
  for (; r->done < r->posted; r->done++) free_receive(r, r->done);
  r->is_open = false;
}

/* What else may happen between two reads. */
static void disturb(struct reader *r, uint8_t what) {
  enum { KINDS = 8, CLOSE_VALUE = 31, IS_WATCHED = 8 };
  switch (what % KINDS) {
  case 0:
  case 1:
    post(r, what & IS_WATCHED);
    break;
  case 2:
    deliver_by_udp(r, (uint32_t)what / KINDS * HARP_RECORD_WHOLE_BYTES / KINDS);
    break;
  case 3:
    if (what / KINDS == CLOSE_VALUE && r->is_open) close_stream(r);
    break;
  default:
    break;
  }
}

/* Bits of the input byte that selects how a record is made. */
enum {
  TYPE_MASK = 15,  /* 0: of any type, else DATA */
  PART = 16,       /* a part of a message, from a multiple of PART_BYTES on */
  ONE_RECORD = 32, /* at most RECORD_BYTES */
  ANY_MESSAGE = 64,
  ANY_LINE = 128,
  PART_BYTES = 8 * HARP_LINE_BYTES,
  RECORD_BYTES = HARP_RECORD_WHOLE_BYTES + HARP_LINE_BYTES, /* hardly too long to be read whole */
  SIZE_STEP = 2,                                            /* a size is so many times 16 bits of the input */
  BIT_ERROR = 250,                                          /* greater input bytes: one bit is wrong */
  UNCHECKED = 240, /* greater ones that are no error: the payload has no CRC */
};

_Static_assert(UINT16_MAX *SIZE_STEP >= CAPACITY + EXCESS_BYTES, "every size can come");

static void seal(const struct reader *r, uint8_t *head, const struct harp_packet *p, const uint8_t *payload,
                 uint32_t length) {
  struct harp_mac_state state = {0};
  const struct harp_mac_key *key = &r->session.rx_mac;
  harp_mac_add(key, &state, payload, length);
  uint64_t mac = harp_mac_end(key, &state, (struct harp_mac_nonce){p->number, p->path, HARP_PACKET_DATA});
  harp_record_seal(head, key, mac, p->number, keys.rx_seed);
}

/* Makes a record as the input selects; returns its length. */
static size_t make_record(const struct reader *r, struct fuzz_input *in, uint8_t *out, uint32_t *number,
                          uint32_t *line) {
  uint8_t how = fuzz_u8(in);
  struct harp_packet p = {.type = (how & TYPE_MASK) == 0 ? (enum harp_packet_type)(fuzz_u8(in) % 6)
                                                         : HARP_PACKET_DATA,
                          .path = TCP,
                          .token = keys.rx_token,
                          .number = (*number)++};
  uint32_t size = fuzz_u16(in) * SIZE_STEP % (CAPACITY + EXCESS_BYTES), offset = 0, length = size;
  if (how & PART && size > PART_BYTES)
    offset = PART_BYTES * (fuzz_u8(in) % (size / PART_BYTES + 1)), length = size - offset;
  if (how & ONE_RECORD && length > RECORD_BYTES) length = RECORD_BYTES;
  p.data.message = how & ANY_MESSAGE ? fuzz_u8(in) % 16 : 0;
  p.data.line = *line + offset / HARP_LINE_BYTES;
  p.data.offset = offset;
  p.data.size = size;
  p.data.length = length;
  if (how & ANY_LINE) p.data.line = fuzz_u16(in), *line = p.data.line;
  if (p.type != HARP_PACKET_DATA) length = p.type == HARP_PACKET_ACK ? HARP_ACK_HEADER_BYTES : 0;
  uint8_t spoil = fuzz_u8(in);
  bool is_checked = spoil <= UNCHECKED || spoil > BIT_ERROR || p.type != HARP_PACKET_DATA;
  if (!is_checked) p.flags = HARP_FLAG_UNCHECKED;
  uint32_t crc = is_checked ? harp_crc32c(0, content + offset, length) : 0;
  harp_record_encode(out, &p, length, crc, p.number, keys.rx_seed);
  if (has_macs) seal(r, out, &p, content + offset, length);
  memcpy(out + HARP_RECORD_HEAD_BYTES, content + offset, length);
  if (spoil > BIT_ERROR) out[fuzz_u16(in) % (HARP_RECORD_HEAD_BYTES + length)] ^= 1;
  return HARP_RECORD_HEAD_BYTES + length;
}

static void run_reader(struct fuzz_input *in) {
  static uint8_t bytes[HARP_RECORD_HEAD_BYTES + CAPACITY + EXCESS_BYTES];
  struct reader r;
  uint32_t number = 0, line = 0;
  begin(&r);
  for (unsigned step = 0; step < STEPS && in->bytes && !r.is_broken; step++) {
    size_t count = make_record(&r, in, bytes, &number, &line), at = 0;
    while (at < count && !r.is_broken) {
      disturb(&r, fuzz_u8(in));
      size_t want = in->bytes ? (size_t)fuzz_u16(in) + 1 : count;
      at += read_some(&r, bytes + at, HARP_MIN(want, count - at));
    }
  }
  end(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  enum { FACTOR = 7, PERIOD = 251 }; /* so that no line is like another near it */
  for (uint32_t i = 0; !content[1] && i < sizeof content; i++)
    content[i] = (uint8_t)(i * FACTOR + i / PERIOD);
  struct fuzz_input in = {data, bytes};
  uint8_t how = fuzz_u8(&in);
  has_macs = how >= 192;
  if (how % 8 == 0)
    run_decoder(&in);
  else
    run_reader(&in);
  return 0;
}
