/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/acks.h"
#include "lib/bring_up.h"
#include "proto/session.h"
#include "wire/crc32c.h"

enum {
  MESSAGES = 128,
  MESSAGE_BYTES = 512 * 1024, /* NCCL's slice of a default buffer */
  IN_FLIGHT = 8,
  SUPERFRAME_BYTES = 64000,
};
#define SUPERFRAME_NS HARP_US(8) /* what 64 KB take on a link of 64 Gbit/s */

struct transfer {
  struct harp_session tx, rx;
  struct harp_sender *sender;
  struct harp_tx_stream tx_stream;
  struct harp_receiver *receiver;
  struct harp_rx_stream rx_stream;
  struct harp_counters counters;
  struct harp_trace trace; /* as in the product: what it costs counts */
  uint8_t *from, *to, *staging, *frame;
  harp_ns now;
  uint32_t stride;
  uint32_t sent, received, posted_sends, posted_receives;
  uint64_t packets;
};

static void set_up(struct transfer *t, uint32_t lines, unsigned paths, unsigned enis) {
  /* As much may be in flight over many ENIs as over one. */
  struct harp_sender_config sc = {.path_count = paths,
                                  .stream_max = 1,
                                  .window_bytes = (8u << 20) / enis,
                                  .cc = &harp_cc_target,
                                  .first_number = 0};
  for (unsigned i = 0; i < paths; i++)
    sc.paths[i] = (struct harp_path_config){
        .lines_max = lines, .local_eni = (uint8_t)(i % enis), .remote_eni = (uint8_t)(i % enis)};
  struct harp_session_keys tx = {1, 2, 3, 4}, rx = {2, 1, 4, 3};
  t->from = malloc(MESSAGE_BYTES);
  t->to = malloc((size_t)IN_FLIGHT * MESSAGE_BYTES);
  t->staging = malloc(HARP_STAGING_BYTES);
  t->frame = malloc(SUPERFRAME_BYTES + HARP_PACKET_MAX_BYTES);
  t->sender = malloc(harp_sender_bytes(&sc));
  if (!t->from || !t->to || !t->staging || !t->frame || !t->sender) abort();
  for (uint32_t i = 0; i < MESSAGE_BYTES; i++) t->from[i] = (uint8_t)(i * 31 >> 3);
  struct harp_receiver_config rc = {
      .path_count = paths, .first_number = 1, .stream_max = 1, .window_bytes = sc.window_bytes};
  struct harp_tx_stream_config ts = {.id = 0};
  struct harp_rx_stream_config rs = {.staging = t->staging};
  t->receiver = malloc(harp_receiver_bytes(&rc));
  if (!t->receiver) abort();
  t->now = HARP_MS(1);
  t->trace = (struct harp_trace){.ring = malloc(sizeof *t->trace.ring),
                                 .message_min_bytes = HARP_TRACE_MESSAGE_BYTES};
  if (!t->trace.ring) abort();
  harp_trace_init(t->trace.ring);
  t->stride = HARP_DATA_HEADER_BYTES + lines * HARP_LINE_BYTES;
  harp_sender_init(t->sender, &sc, &t->trace, &t->counters, t->now);
  harp_sender_open(t->sender, &t->tx_stream, &ts);
  bring_up(t->sender, t->now);
  harp_receiver_init(t->receiver, &rc, &t->trace, &t->counters);
  harp_receiver_open(t->receiver, &t->rx_stream, &rs);
  harp_session_init(&t->tx, &tx, t->sender, NULL);
  harp_session_init(&t->rx, &rx, NULL, t->receiver);
}

static void tear_down(struct transfer *t) {
  free(t->from), free(t->to), free(t->staging), free(t->trace.ring), free(t->frame), free(t->sender),
      free(t->receiver);
}

static void post(struct transfer *t) {
  struct harp_placement place;
  const uint8_t *early;
  while (t->posted_receives < MESSAGES && t->posted_receives - t->received < IN_FLIGHT) {
    uint8_t *to = t->to + (size_t)(t->posted_receives % IN_FLIGHT) * MESSAGE_BYTES;
    if (harp_receiver_post(t->receiver, &t->rx_stream, to, MESSAGE_BYTES, false, to, &place, &early, t->now))
      abort();
    t->posted_receives++;
  }
  while (t->posted_sends < MESSAGES && t->posted_sends - t->sent < IN_FLIGHT) {
    if (harp_sender_post(t->sender, &t->tx_stream, t->from, MESSAGE_BYTES, t->from, true, t->now)) abort();
    t->posted_sends++;
  }
}

/* Encodes one superframe; returns its packets, and through *tail the length of the last. */
static uint32_t build(struct transfer *t, uint32_t *tail) {
  struct harp_tx_choice choice = harp_sender_choose(t->sender, t->now);
  uint32_t packets = 0, room = SUPERFRAME_BYTES / t->stride;
  struct harp_tx_run run;
  while (choice.kind != HARP_TX_NOTHING && room) {
    harp_sender_take(t->sender, &choice, room, &run, t->now);
    uint32_t full = run.lines_per_packet * HARP_LINE_BYTES;
    for (uint32_t i = 0; i < run.count; i++, packets++) {
      bool last = i + 1 == run.count;
      struct harp_packet f = {.type = run.type,
                              .flags = last ? run.flags : 0,
                              .path = run.path,
                              .token = t->tx.keys.tx_token,
                              .data = {.time = harp_ticks_from_ns(t->now),
                                       .message = run.message,
                                       .line = run.line + i * run.lines_per_packet,
                                       .offset = run.offset + i * full,
                                       .size = run.size,
                                       .length = last ? run.last_bytes : full}};
      harp_packet_encode_data(t->frame + packets * t->stride, &f, run.number + i, t->tx.keys.tx_seed,
                              run.data + (size_t)i * full);
      *tail = HARP_DATA_HEADER_BYTES + f.data.length;
    }
    room -= run.count;
    if (*tail < t->stride) break;
    choice = harp_sender_choose_more(t->sender, choice.path, t->now);
  }
  return packets;
}

static void receive(struct transfer *t, uint32_t packets, uint32_t tail) {
  struct harp_placement place;
  struct harp_packet p;
  for (uint32_t i = 0; i < packets; i++) {
    const uint8_t *wire = t->frame + i * t->stride;
    uint32_t bytes = i + 1 == packets ? tail : t->stride;
    if (harp_packet_decode(wire, bytes, &p)) abort();
    if (harp_session_on_packet(&t->rx, wire, bytes, &p, &place, t->now)) abort();
    for (uint32_t k = 0; !place.is_placed && k < place.count; k++)
      memcpy(place.dst + place.runs[k].from, p.data.payload + place.runs[k].from, place.runs[k].bytes);
  }
}

static void complete(struct transfer *t) {
  uint32_t bytes;
  void *cookie;
  while (harp_rx_stream_poll_done(&t->rx_stream, &cookie, &bytes)) {
    if (memcmp(cookie, t->from, MESSAGE_BYTES)) abort();
    t->received++;
  }
  while (harp_tx_stream_poll_done(&t->tx_stream, &cookie)) t->sent++;
}

static void acknowledge(struct transfer *t) {
  uint8_t wire[HARP_ACK_MAX_BYTES];
  struct harp_placement place;
  struct harp_packet ack, p;
  uint64_t number;
  while (poll_ack(t->receiver, &ack, &number, t->now)) {
    ack.token = t->rx.keys.tx_token;
    size_t bytes = harp_packet_encode_ack(wire, &ack, number, t->rx.keys.tx_seed);
    if (harp_packet_decode(wire, bytes, &p)) abort();
    if (harp_session_on_packet(&t->tx, wire, (uint32_t)bytes, &p, &place, t->now)) abort();
  }
}

__attribute__((noinline)) static void move(struct transfer *t) {
  while (t->received < MESSAGES || t->sent < MESSAGES) {
    uint32_t tail = 0;
    post(t);
    harp_session_on_timeout(&t->tx, t->now);
    uint32_t packets = build(t, &tail);
    t->packets += packets;
    t->now += SUPERFRAME_NS;
    receive(t, packets, tail);
    complete(t);
    acknowledge(t);
  }
}

uint64_t transfer_run(uint32_t lines, unsigned paths, unsigned enis) {
  struct transfer t = {0};
  harp_crc32c_init(0);
  set_up(&t, lines, paths, enis);
  move(&t);
  uint64_t lost = t.counters.lost_packets;
  tear_down(&t);
  return lost ? 0 : t.packets;
}
