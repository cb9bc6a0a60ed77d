/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams: the decoder on arbitrary bytes, and a connection's halves on packets of the only kind that gets
 * past the CRC: those of a peer that knows the seed and sends any fields.
 *
 * Besides what the sanitizers see, these must hold after every step: the halves' own invariants; a placement
 * stays in the buffer posted for its message, or in its staging slot; no byte of a posted buffer is ever
 * placed twice. */
#include "proto/session.h"
#include "wire/crc32c.h"

#include "base/seq.h"
#include "fuzz/fuzz_input.h"
#include "lib/acks.h"

enum {
  PAYLOAD = 0x5a,       /* every byte of every payload, so that a second placement shows */
  CAPACITY_MAX = 20480, /* the capacity of most receives: a little more than what may come early */
};

static const struct harp_session_keys keys = {.tx_token = 1, .rx_token = 2, .tx_seed = 3, .rx_seed = 4};
static const struct harp_session_macs macs = {.is_on = true, .tx = {{5}, {6}}, .rx = {{7}, {8}}};
static bool has_macs; /* those of the peer, which knows the keys, have the right one, but for some */
static struct harp_trace_ring ring;
static const struct harp_trace trace = {.ring = &ring, .is_full = true};
static struct harp_counters counters;
static const uint8_t payload[UINT16_MAX] = {[0 ... UINT16_MAX - 1] = PAYLOAD};

/* ---- the decoder ---- */

static void run_decoder(struct fuzz_input *in) {
  struct harp_packet p;
  uint8_t *wire = malloc(in->bytes + 1); /* odd, so that nothing is aligned, and exactly as large */
  FUZZ_CHECK(wire);
  size_t bytes = fuzz_bytes(in, wire + 1, in->bytes);
  if (harp_packet_decode(wire + 1, bytes, &p) == HARP_DROP_NONE) {
    FUZZ_CHECK(harp_packet_crc_bytes(&p) + HARP_CRC_FROM_BYTE <= bytes);
    (void)harp_packet_crc_ok(wire + 1, &p, 1, 2);
    if (p.type == HARP_PACKET_ACK) {
      uint8_t again[HARP_ACK_MAX_BYTES];
      struct harp_packet q;
      size_t n = harp_packet_encode_ack(again, &p, p.number, 9);
      FUZZ_CHECK(harp_packet_decode(again, n, &q) == HARP_DROP_NONE &&
                 harp_packet_crc_ok(again, &q, 9, q.number));
      FUZZ_CHECK(q.ack.range_count == p.ack.range_count && q.ack.credit_count == p.ack.credit_count &&
                 q.ack.window_bytes == p.ack.window_bytes);
    } else if (p.type == HARP_PACKET_DATA) {
      FUZZ_CHECK(p.data.payload == wire + 1 + HARP_DATA_HEADER_BYTES);
      FUZZ_CHECK((uint64_t)p.data.offset + p.data.length <= p.data.size);
    }
  }
  free(wire);
}

/* ---- packets that pass the CRC ---- */

static uint32_t start_number(uint8_t how) {
  static const uint32_t starts[] = {0, 1, 0x7fffffc0, 0x80000000, 0xffffff00, 0xfffffff8, 0xffffffff, 1000};
  return starts[how % HARP_ARRAY_COUNT(starts)];
}

/* Writes the MAC of a packet where there is room. Returns whether it is right. */
static bool seal(struct harp_session *c, uint8_t *wire, size_t bytes, const struct harp_packet *p,
                 uint64_t number) {
  enum { WITHOUT_ONE_IN = 8 };
  uint32_t own_bytes = HARP_CRC_FROM_BYTE + (uint32_t)harp_packet_crc_bytes(p);
  if (bytes - own_bytes < HARP_MAC_BYTES || number % WITHOUT_ONE_IN == 0) return false;
  harp_mac_seal(&c->rx_mac, wire, own_bytes, number);
  return true;
}

/* Decodes bytes, makes token and CRC good and feeds them to the connection, as the engine would. */
static enum harp_drop feed(struct harp_session *c, uint8_t *wire, size_t bytes, struct harp_packet *p,
                           struct harp_placement *place, harp_ns now) {
  enum harp_drop drop = harp_packet_decode(wire, bytes, p);
  place->count = 0;
  if (drop) return drop;
  bool is_sealed = !has_macs;
  p->ce = p->number % 3 == 0;
  if (p->path < c->path_count && (p->type == HARP_PACKET_ACK) == (c->sender != NULL)) {
    uint64_t number = c->sender ? harp_sender_ack_number(c->sender, p) : harp_receiver_number(c->receiver, p);
    struct harp_be32 crc = harp_to_be32(harp_crc32c(harp_packet_seed(keys.rx_seed, number),
                                                    wire + HARP_CRC_FROM_BYTE, harp_packet_crc_bytes(p)));
    memcpy(wire, &crc, sizeof crc);
    if (has_macs) is_sealed = seal(c, wire, bytes, p, number);
  }
  drop = harp_session_on_packet(c, wire, (uint32_t)bytes, p, place, now);
  FUZZ_CHECK(is_sealed || (drop && !place->count && drop != HARP_DROP_DUPLICATE));
  return drop;
}

/* A packet whose bytes come from the input, but for the version. */
static size_t raw_packet(struct fuzz_input *in, uint8_t *wire) {
  size_t bytes = fuzz_bytes(in, wire, fuzz_u8(in));
  memset(wire + bytes, 0, 64);
  wire[offsetof(struct harp_wire_prefix, version)] = HARP_WIRE_VERSION;
  return bytes + fuzz_u8(in) % 64;
}

/* Now and then changes one aligned 32-bit word of a header; returns whether it did. */
static bool spoil(struct fuzz_input *in, uint8_t *wire, size_t header_bytes) {
  uint8_t how = fuzz_u8(in);
  if (how & 0xc0) return false;
  size_t at = 4 + how % (header_bytes / 4 - 1) * 4;
  uint32_t change = fuzz_u32(in);
  for (int i = 0; i < 4; i++) wire[at + (size_t)i] ^= (uint8_t)(change >> (24 - 8 * i));
  wire[offsetof(struct harp_wire_prefix, version)] = HARP_WIRE_VERSION;
  return change != 0;
}

/* ---- the receiver ---- */

enum { HONEST_MESSAGES = 256, STREAM = 2 /* the one that is open */ };

struct receiving {
  struct harp_receiver *receiver;
  struct harp_rx_stream stream;
  struct harp_session session;
  struct harp_placement place;
  uint8_t *staging;
  uint8_t *buffer[HARP_MESSAGES_MAX]; /* the buffer of posted receive m, at m % HARP_MESSAGES_MAX */
  uint32_t capacity[HARP_MESSAGES_MAX];
  uint32_t first_message;
  /* what an honest sender would send: size and first line of message first_message + i */
  uint32_t size[HONEST_MESSAGES], line[HONEST_MESSAGES];
  harp_ns now;
  bool honest;       /* no packet contradicted that so far */
  bool has_unplaced; /* a payload was copied in the pass that verified it, and its packet dropped */
};

/* Copies what a placement lists, as the engine would, from bytes that are all PAYLOAD. */
static void copy_placed(struct receiving *r, uint8_t *base, size_t bytes) {
  uint32_t before = 0;
  for (uint32_t i = 0; i < r->place.count; i++) {
    uint32_t from = r->place.runs[i].from, n = r->place.runs[i].bytes;
    FUZZ_CHECK(n > 0 && from >= before);
    before = from + n;
    size_t at = (size_t)(r->place.dst - base) + from;
    FUZZ_CHECK(r->place.dst >= base && at + n <= bytes);
    /* Lines that have not arrived may have been written before by packets that were dropped, as replays. */
    for (uint32_t k = 0; k < n; k++)
      FUZZ_CHECK(base[at + k] == (r->place.is_placed ? PAYLOAD : 0) ||
                 (r->has_unplaced && base[at + k] == PAYLOAD));
    memset(base + at, PAYLOAD, n);
  }
}

static void receiver_post(struct receiving *r, struct fuzz_input *in) {
  uint32_t m = r->stream.posted, slot = m % HARP_MESSAGES_MAX, index = m - r->first_message;
  const uint8_t *early;
  if (m - r->stream.done == HARP_MESSAGES_MAX) return;
  uint8_t how = fuzz_u8(in);
  uint32_t capacity = index < HONEST_MESSAGES && how < 200 ? r->size[index] : how * 64u;
  uint8_t *buffer = calloc(1, capacity ? capacity : 1);
  FUZZ_CHECK(buffer);
  r->buffer[slot] = buffer;
  r->capacity[slot] = capacity;
  FUZZ_CHECK(!harp_receiver_post(r->receiver, &r->stream, buffer, capacity, false, buffer, &r->place, &early,
                                 r->now));
  FUZZ_CHECK(!r->place.count || early);
  uint8_t *staged = r->staging + m % HARP_EARLY_MESSAGES * (size_t)HARP_EARLY_MAX_BYTES;
  for (uint32_t i = 0; i < r->place.count; i++) {
    uint32_t from = r->place.runs[i].from, n = r->place.runs[i].bytes;
    FUZZ_CHECK(early == staged && from + n <= HARP_EARLY_MAX_BYTES);
    /* Only what has arrived; one who lies about lines may make us believe that others' lines were this
     * message's. */
    for (uint32_t k = 0; r->honest && k < n; k++) FUZZ_CHECK(early[from + k] == PAYLOAD);
  }
  if (r->place.count) FUZZ_CHECK(r->place.dst == buffer);
  copy_placed(r, buffer, capacity);
  memset(staged, 0, HARP_EARLY_MAX_BYTES);
}

static void receiver_feed(struct receiving *r, uint8_t *wire, size_t bytes) {
  struct harp_packet p;
  uint8_t *exact = malloc(bytes ? bytes : 1);
  FUZZ_CHECK(exact);
  memcpy(exact, wire, bytes);
  enum harp_drop drop = feed(&r->session, exact, bytes, &p, &r->place, r->now);
  FUZZ_CHECK(drop == HARP_DROP_NONE || !r->place.count);
  r->has_unplaced |= drop && r->place.is_placed;
  if (r->place.count) {
    uint32_t m = p.data.message, slot = m % HARP_MESSAGES_MAX;
    bool posted = harp_seq_before(m, r->stream.posted);
    FUZZ_CHECK(r->place.runs[r->place.count - 1].from + r->place.runs[r->place.count - 1].bytes <=
               p.data.length);
    if (posted)
      copy_placed(r, r->buffer[slot], r->capacity[slot]);
    else
      copy_placed(r, r->staging + m % HARP_EARLY_MESSAGES * (size_t)HARP_EARLY_MAX_BYTES,
                  HARP_EARLY_MAX_BYTES);
  }
  free(exact);
}

/* Values and bits of the input byte that selects which packet is sent. */
enum {
  SKIP_PROBE = 255,        /* a PROBE */
  SKIP_OTHER_STREAM = 254, /* the skip of a stream that is not open */
  SKIP_BACK = 1,           /* its number is lower by skip / 8; it requests an acknowledgement */
  SKIP_AHEAD = 2,          /* its number is higher by skip / 4 */
};

/* A packet as an honest sender would send it, then perhaps corrupted. */
static void receiver_data(struct receiving *r, struct fuzz_input *in) {
  static uint8_t wire[HARP_PACKET_MAX_BYTES + HARP_MAC_BYTES];
  uint32_t ahead = fuzz_u8(in) % 80, index = r->stream.done - r->first_message + ahead;
  uint8_t path = fuzz_u8(in), skip = fuzz_u8(in);
  if (index >= HONEST_MESSAGES) return;
  uint32_t lines = harp_lines_of(r->size[index]), first = fuzz_u8(in) % lines;
  uint32_t count = HARP_MIN(lines - first, 1 + (uint32_t)fuzz_u8(in) % HARP_PACKET_MAX_LINES);
  uint32_t offset = first * HARP_LINE_BYTES;
  path %= (uint8_t)(r->receiver->path_count);
  struct harp_packet p = {
      .type = skip == SKIP_PROBE ? HARP_PACKET_PROBE : HARP_PACKET_DATA,
      .flags = skip & SKIP_BACK ? HARP_FLAG_ACK_SOON : 0,
      .path = path,
      .token = keys.rx_token,
      .data = {.time = (uint32_t)r->now,
               .message = r->first_message + index,
               .line = r->line[index] + first,
               .offset = offset,
               .size = r->size[index],
               .length = HARP_MIN(r->size[index] - offset, count * HARP_LINE_BYTES),
               .stream = skip == SKIP_OTHER_STREAM ? 0 : STREAM},
  };
  uint64_t number = r->receiver->paths[path].next_number + (skip & SKIP_AHEAD ? skip / 4 : 0) -
                    (skip & SKIP_BACK ? skip / 8 : 0);
  harp_packet_encode_data(wire, &p, number, keys.rx_seed, payload);
  if (spoil(in, wire, HARP_DATA_HEADER_BYTES)) r->honest = false;
  receiver_feed(r, wire, HARP_DATA_HEADER_BYTES + p.data.length + (has_macs ? HARP_MAC_BYTES : 0));
}

static void receiver_acks(struct receiving *r) {
  uint8_t wire[HARP_ACK_MAX_BYTES];
  struct harp_packet ack = {.token = keys.tx_token}, back;
  uint64_t number;
  for (unsigned count = 0; poll_ack(r->receiver, &ack, &number, r->now); count++) {
    FUZZ_CHECK(count < r->receiver->path_count);
    size_t bytes = harp_packet_encode_ack(wire, &ack, number, keys.tx_seed);
    FUZZ_CHECK(harp_packet_decode(wire, bytes, &back) == HARP_DROP_NONE);
    FUZZ_CHECK(back.ack.window_bytes == harp_receive_window_bounded(back.ack.window_bytes));
    FUZZ_CHECK(back.ack.credit_count <= 1 &&
               (!back.ack.credit_count || back.ack.credits[0].posted == r->stream.posted));
  }
}

static void receiver_done(struct receiving *r) {
  void *cookie;
  uint32_t bytes, slot = r->stream.done % HARP_MESSAGES_MAX;
  if (!harp_rx_stream_poll_done(&r->stream, &cookie, &bytes)) return;
  FUZZ_CHECK(cookie == r->buffer[slot] && bytes <= r->capacity[slot]);
  for (uint32_t k = 0; r->honest && k < bytes; k++) FUZZ_CHECK(r->buffer[slot][k] == PAYLOAD);
  free(r->buffer[slot]);
  r->buffer[slot] = NULL;
}

static void receiver_init(struct receiving *r, struct fuzz_input *in) {
  uint32_t line = start_number(fuzz_u8(in));
  r->first_message = start_number(fuzz_u8(in));
  for (uint32_t i = 0; i < HONEST_MESSAGES; i++) {
    r->size[i] = i * 977 % CAPACITY_MAX * (i % 5 != 1);
    r->line[i] = line;
    line += harp_lines_of(r->size[i]);
  }
  r->now = HARP_MS(1);
  r->honest = true;
  r->has_unplaced = false;
  r->staging = calloc(1, HARP_STAGING_BYTES);
  FUZZ_CHECK(r->staging);
  struct harp_rx_stream_config stream = {
      .id = STREAM, .first_line = r->line[0], .first_message = r->first_message, .staging = r->staging};
  struct harp_receiver_config config = {.stream_max = STREAM + 1};
  config.first_number = start_number(fuzz_u8(in));
  config.path_count = 1 + fuzz_u8(in) % 3u;
  r->receiver = malloc(harp_receiver_bytes(&config));
  FUZZ_CHECK(r->receiver);
  harp_receiver_init(r->receiver, &config, &trace, &counters);
  harp_receiver_open(r->receiver, &r->stream, &stream);
  harp_session_init(&r->session, &keys, NULL, r->receiver);
  if (has_macs) harp_session_use_macs(&r->session, &macs);
}

static void run_receiver(struct fuzz_input *in) {
  static struct receiving r;
  static uint8_t wire[512];
  receiver_init(&r, in);
  while (in->bytes) {
    switch (fuzz_u8(in) % 8) {
    case 0:
      receiver_post(&r, in);
      break;
    case 1:
      r.now += 1ull << fuzz_u8(in) % 40;
      break;
    case 2:
      receiver_acks(&r);
      break;
    case 3:
      receiver_done(&r);
      break;
    case 4:
      r.honest = false;
      receiver_feed(&r, wire, raw_packet(in, wire));
      break;
    default:
      receiver_data(&r, in);
    }
    harp_receiver_check(r.receiver);
  }
  for (uint32_t i = 0; i < HARP_MESSAGES_MAX; i++) {
    free(r.buffer[i]);
    r.buffer[i] = NULL;
  }
  free(r.staging);
  free(r.receiver);
}

/* ---- the sender ---- */

static uint8_t source[HARP_MESSAGE_MAX_BYTES / 64];

struct sending {
  struct harp_sender *sender;
  struct harp_tx_stream stream;
  struct harp_session session;
  struct harp_placement place;
  harp_ns now, deadline_ns;
};

static void sender_init(struct sending *s, struct fuzz_input *in) {
  static const uint32_t lines[] = {8, 11, 26, 69};
  struct harp_sender_config config = {.stream_max = STREAM + 1};
  struct harp_tx_stream_config stream = {.id = STREAM, .first_line = start_number(fuzz_u8(in))};
  stream.first_message = start_number(fuzz_u8(in));
  config.first_number = start_number(fuzz_u8(in));
  config.path_count = 1 + fuzz_u8(in) % 3u;
  config.window_bytes = 1u << (12 + fuzz_u8(in) % 14u);
  config.cc = fuzz_u8(in) & 1 ? &harp_cc_target : &harp_cc_reno;
  for (unsigned i = 0; i < config.path_count; i++) {
    config.paths[i].lines_max = lines[fuzz_u8(in) % HARP_ARRAY_COUNT(lines)];
    config.paths[i].local_eni = (uint8_t)(i / 2);
    config.paths[i].ecn = config.first_number & 1;
  }
  s->now = s->deadline_ns = HARP_SEC(1);
  s->sender = malloc(harp_sender_bytes(&config));
  FUZZ_CHECK(s->sender);
  harp_sender_init(s->sender, &config, &trace, &counters, s->now);
  harp_sender_open(s->sender, &s->stream, &stream);
  harp_session_init(&s->session, &keys, s->sender, NULL);
  if (has_macs) harp_session_use_macs(&s->session, &macs);
}

static void sender_post(struct sending *s, struct fuzz_input *in) {
  uint32_t bytes = fuzz_u16(in);
  bytes <<= fuzz_u8(in) % 9u;
  bool full = s->stream.tail - s->stream.done == HARP_MESSAGES_MAX;
  bytes = HARP_MIN(bytes, (uint32_t)sizeof source);
  FUZZ_CHECK((harp_sender_post(s->sender, &s->stream, source, bytes, source, true, s->now) != 0) == full);
}

/* Sends what may be sent, a few superframes at most. */
static void sender_pump(struct sending *s, struct fuzz_input *in) {
  struct harp_tx_run run;
  unsigned superframes = fuzz_u8(in) % 16u, max_packets = 1 + fuzz_u8(in) % 64u;
  while (superframes--) {
    struct harp_tx_choice choice = harp_sender_choose(s->sender, s->now);
    s->deadline_ns = choice.deadline_ns;
    if (choice.kind == HARP_TX_NOTHING) return;
    for (unsigned runs = 0; runs < 4 && choice.kind != HARP_TX_NOTHING; runs++) {
      const struct harp_path *path = &s->sender->paths[choice.path];
      harp_sender_take(s->sender, &choice, max_packets, &run, s->now);
      choice = harp_sender_choose_more(s->sender, choice.path, s->now);
      FUZZ_CHECK(run.count >= 1 && run.count <= max_packets && run.path == path->index);
      FUZZ_CHECK(run.last_bytes <= HARP_PACKET_MAX_PAYLOAD_BYTES);
      if (run.type == HARP_PACKET_PROBE) continue;
      uint64_t end =
          run.offset + (uint64_t)(run.count - 1) * run.lines_per_packet * HARP_LINE_BYTES + run.last_bytes;
      FUZZ_CHECK(end <= run.size && run.data == source + run.offset);
      FUZZ_CHECK(run.lines_per_packet <= path->size.lines_max);
      harp_sender_check(s->sender);
    }
  }
}

static void sender_feed(struct sending *s, uint8_t *wire, size_t bytes) {
  struct harp_packet p;
  uint8_t *exact = malloc(bytes ? bytes : 1);
  FUZZ_CHECK(exact);
  memcpy(exact, wire, bytes);
  feed(&s->session, exact, bytes, &p, &s->place, s->now);
  FUZZ_CHECK(!s->place.count);
  free(exact);
}

/* An acknowledgement as an honest receiver might send it, then perhaps spoiled. */
static void sender_ack(struct sending *s, struct fuzz_input *in) {
  uint8_t wire[HARP_ACK_MAX_BYTES + HARP_MAC_BYTES];
  struct harp_packet p = {.type = HARP_PACKET_ACK, .path = (uint8_t)(fuzz_u8(in) % s->sender->path_count)};
  const struct harp_path *path = &s->sender->paths[p.path];
  uint32_t edge = (uint32_t)path->next_number;
  p.token = keys.rx_token;
  p.ack.echo_time = harp_ticks_from_ns(s->now) - fuzz_u16(in);
  p.ack.echo_delay = fuzz_u8(in);
  p.ack.time = harp_ticks_from_ns(s->now) + fuzz_u16(in);
  p.ack.window_bytes = p.ack.echo_delay % 4 ? 4u << 20 : p.ack.echo_delay << 18;          /* 0 to 63 MiB */
  p.ack.ce_bytes = p.ack.echo_delay % 3 ? p.ack.echo_delay * 44 : p.ack.echo_delay << 24; /* or absurd */
  p.ack.credit_count = fuzz_u8(in) % 3u;
  for (uint32_t i = 0; i < p.ack.credit_count; i++)
    p.ack.credits[i] =
        (struct harp_credit){fuzz_u8(in) & 1 ? STREAM : fuzz_u16(in), s->stream.posted + fuzz_u8(in) % 16u};
  p.ack.range_count = fuzz_u8(in) % 5u;
  for (uint32_t i = 0; i < p.ack.range_count; i++) {
    p.ack.ranges[i].end = edge - fuzz_u8(in);
    p.ack.ranges[i].begin = edge = p.ack.ranges[i].end - 1 - fuzz_u8(in);
  }
  size_t bytes = harp_packet_encode_ack(wire, &p, path->ack_next, keys.rx_seed);
  (void)spoil(in, wire, bytes);
  sender_feed(s, wire, bytes + (has_macs ? HARP_MAC_BYTES : 0));
}

static void sender_step(struct sending *s, struct fuzz_input *in) {
  static uint8_t wire[512];
  void *cookie;
  switch (fuzz_u8(in) % 12) {
  case 0:
  case 1:
    sender_post(s, in);
    break;
  case 2:
    s->now += 1ull << fuzz_u8(in) % 34;
    break;
  case 3:
    s->now = HARP_MAX(s->now, HARP_MIN(s->deadline_ns, s->now + HARP_SEC(60)));
    break;
  case 4:
    sender_feed(s, wire, raw_packet(in, wire));
    break;
  case 5:
    harp_sender_path_down(s->sender, fuzz_u8(in) % s->sender->path_count, s->now);
    break;
  case 6:
    harp_tx_stream_on_delivered(&s->stream, s->stream.delivered + fuzz_u32(in), s->now);
    break;
  case 7:
    while (harp_tx_stream_poll_done(&s->stream, &cookie)) FUZZ_CHECK(cookie == source);
    break;
  case 8:
  case 9:
    sender_pump(s, in);
    break;
  default:
    sender_ack(s, in);
  }
  harp_sender_check(s->sender);
  harp_session_on_timeout(&s->session, s->now);
  harp_sender_check(s->sender);
  s->deadline_ns = harp_sender_choose(s->sender, s->now).deadline_ns;
}

static void run_sender(struct fuzz_input *in) {
  static struct sending s;
  sender_init(&s, in);
  while (in->bytes) sender_step(&s, in);
  free(s.sender);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct fuzz_input in = {data, bytes};
  uint8_t how = fuzz_u8(&in);
  has_macs = how / 3 % 4 == 3;
  switch (how % 3) {
  case 0:
    run_decoder(&in);
    break;
  case 1:
    run_receiver(&in);
    break;
  default:
    run_sender(&in);
  }
  return 0;
}
