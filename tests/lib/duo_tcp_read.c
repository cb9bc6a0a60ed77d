/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/duo_tcp_read.h"

#include <string.h>

#include "lib/duo_stream.h"
#include "lib/duo_window.h"

/* The stream that the record under way is of, if it is open here. */
static struct duo_stream *stream_of(const struct duo_end *e, const struct harp_packet *p) {
  return p->data.stream < DUO_IDS_MAX ? e->receives[p->data.stream] : NULL;
}

/* Checks where the next read would write, before it does. */
static void check_room(struct duo *d, const struct duo_end *e, const struct duo_tcp_end *p,
                       const struct iovec *room) {
  const struct harp_packet *packet = &p->in.record.packet;
  uint32_t at = packet->data.offset + p->in.done;
  for (unsigned i = 0; i < p->in.piece_count; at += (uint32_t)room[i++].iov_len) {
    if (room[i].iov_base == d->tcp->scrap) continue;
    struct duo_stream *s = stream_of(e, packet);
    if (!s) duo_fail(d, "%s: payload is read for a stream that is not open", e->name);
    duo_stream_check_read(d, s, packet->data.message, at, room[i].iov_base, (uint32_t)room[i].iov_len);
  }
}

/* Returns whether a byte that a middlebox changed is part of what was taken. */
static bool is_spoiled(const struct duo_end *e, const struct duo_tcp_end *p) {
  return p->conn->net.ways[1 - e->index].spoiled_at < p->came - (p->in.to - p->in.from);
}

/* The record of which nothing was taken may have been changed. */
static void forget_spoiled(const struct duo_end *e, const struct duo_tcp_end *p) {
  if (is_spoiled(e, p)) p->conn->net.ways[1 - e->index].spoiled_at = UINT64_MAX;
}

static void take_ack(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  const uint8_t *wire = p->in.record.packet.data.payload;
  struct harp_packet ack;
  struct harp_placement where;
  enum harp_drop drop = harp_packet_decode(wire, p->in.record.length, &ack);
  if (drop || ack.type != HARP_PACKET_ACK || ack.token != e->session.keys.rx_token)
    duo_fail(d, "%s: no acknowledgement in a record", e->name);
  drop = harp_session_on_packet(&e->session, wire, p->in.record.length, &ack, &where, d->now);
  if (drop && drop != HARP_DROP_WINDOW && !d->forged)
    duo_fail(d, "%s: a good acknowledgement was dropped: %s", e->name, harp_drop_name(drop));
  if (!drop) duo_window_on_ack(e, &ack);
}

static void take_record(struct duo *d, struct duo_end *e, struct duo_tcp_end *p,
                        enum harp_records_event event) {
  const struct harp_packet *packet = &p->in.record.packet;
  bool is_placed = event == HARP_RECORDS_PLACED;
  struct harp_placement where = {0};
  bool spoiled = is_spoiled(e, p);
  if (packet->type == HARP_PACKET_ACK) {
    if (spoiled) duo_fail(d, "%s: an acknowledgement that was changed on the way is taken", e->name);
    take_ack(d, e, p);
    return;
  }
  struct duo_stream *s = packet->type == HARP_PACKET_DATA ? stream_of(e, packet) : NULL;
  enum harp_drop drop =
      harp_session_on_record(&e->session, &p->in.record, p->in.number, is_placed ? NULL : &where, d->now);
  if (drop)
    forget_spoiled(e, p);
  else if (spoiled)
    duo_fail(d, "%s: a record that was changed on the way is taken", e->name);
  if (packet->type != HARP_PACKET_DATA) return;
  if (drop && drop != HARP_DROP_DUPLICATE && !duo_stream_expects_drop(d, s, packet, drop))
    duo_fail(d, "%s: a good record was dropped: %s", e->name, harp_drop_name(drop));
  if (drop) return;
  if (!s) duo_fail(d, "a record of no stream was taken");
  if (is_placed)
    duo_stream_note_read(d, s, packet);
  else
    duo_stream_place(d, s, packet, &where);
  d->tcp->tally.in_place += is_placed;
}

/* Takes all records that are complete; ends the connection over what is none. */
static void take_records(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  for (;;) {
    enum harp_records_event event = harp_records_next(&p->in);
    switch (event) {
    case HARP_RECORDS_MORE:
      return;
    case HARP_RECORDS_BROKEN:
      if (p->conn->net.ways[1 - e->index].spoiled_at >= p->came && !d->forged)
        duo_fail(d, "%s: a good record breaks its connection: %s", e->name, harp_drop_name(p->in.why));
      d->tcp->tally.broken++;
      duo_tcp_end_path(d, e, p);
      return;
    case HARP_RECORDS_SCRAP:
      d->tcp->tally.scrapped++;
      forget_spoiled(e, p);
      break;
    default:
      take_record(d, e, p, event);
    }
  }
}

void duo_tcp_read(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  struct iovec room[HARP_RECORDS_PIECES_MAX + 1];
  uint32_t scrap_bytes = 1 + (uint32_t)rng_below(&d->tcp->rng, sizeof d->tcp->scrap);
  unsigned pieces = harp_records_room(&p->in, d->tcp->scrap, scrap_bytes, room);
  check_room(d, e, p, room);
  long n = tcpnet_read(&p->conn->net, e->index, room, pieces, d->now);
  if (n == TCPNET_AGAIN) duo_fail(d, "%s: nothing to read on path %u", e->name, p->path);
  if (n <= 0) {
    duo_tcp_end_path(d, e, p);
    return;
  }
  p->came += (uint64_t)n;
  p->read_ns = d->now + 1 + rng_below(&d->tcp->rng, HARP_US(2));
  harp_records_on_read(&p->in, (size_t)n);
  take_records(d, e, p);
}
