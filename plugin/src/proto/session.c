/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/session.h"

#include "base/assert.h"

void harp_session_init(struct harp_session *c, const struct harp_session_keys *keys,
                       struct harp_sender *sender, struct harp_receiver *receiver) {
  HARP_ASSERT(sender || receiver);
  *c = (struct harp_session){
      .state = HARP_SESSION_OPEN,
      .keys = *keys,
      .path_count = sender ? sender->path_count : receiver->path_count,
      .trace = sender ? sender->trace : receiver->trace,
      .counters = sender ? sender->counters : receiver->counters,
      .sender = sender,
      .receiver = receiver,
  };
}

void harp_session_use_macs(struct harp_session *c, const struct harp_session_macs *macs) {
  HARP_ASSERT(c->state == HARP_SESSION_OPEN && macs->is_on);
  c->has_macs = true;
  harp_mac_key_init(&c->tx_mac, &macs->tx);
  harp_mac_key_init(&c->rx_mac, &macs->rx);
  if (c->receiver) c->receiver->mac_bytes = HARP_MAC_BYTES;
}

void harp_session_set_trace(struct harp_session *c, const struct harp_trace *trace) {
  c->trace = trace;
  if (c->sender) c->sender->trace = trace;
  if (c->receiver) c->receiver->trace = trace;
}

/* Returns whether the packet has the right MAC, which stands behind it, or needs none. */
static inline bool is_authentic(const struct harp_session *c, const uint8_t *wire, uint32_t bytes,
                                const struct harp_packet *p, uint64_t number) {
  if (harp_likely(!c->has_macs)) return true;
  uint32_t own_bytes = HARP_CRC_FROM_BYTE + (uint32_t)harp_packet_crc_bytes(p);
  HARP_ASSERT(own_bytes <= bytes);
  return bytes - own_bytes >= HARP_MAC_BYTES && harp_mac_ok(&c->rx_mac, wire, own_bytes, number);
}

static enum harp_drop on_ack(struct harp_session *c, const uint8_t *wire, uint32_t bytes,
                             const struct harp_packet *p, harp_ns now) {
  if (!c->sender) return HARP_DROP_DIRECTION;
  uint64_t number = harp_sender_ack_number(c->sender, p);
  if (!harp_packet_crc_ok(wire, p, c->keys.rx_seed, number)) return HARP_DROP_CRC;
  if (!is_authentic(c, wire, bytes, p, number)) return HARP_DROP_MAC;
  enum harp_drop drop = harp_sender_on_ack(c->sender, p, number, now);
  if (c->receiver && harp_receiver_is_unproved(c->receiver, p->path) && harp_sender_is_up(c->sender, p->path))
    harp_receiver_on_proved(c->receiver, p->path, now);
  return drop;
}

/* Two passes over a payload of this size cost more than to find out first where it may be copied to. */
enum { COPY_UNVERIFIED_MIN_BYTES = 3072 };

/* Returns where the packet's payload may be copied in the pass that verifies it; NULL: nowhere. Not where a
 * tcp path may be reading the same lines: their CRC was taken when they were read; nor where a MAC is checked
 * after the CRC. */
static uint8_t *target_unverified(const struct harp_session *c, const struct harp_packet *p) {
  if (p->data.length < COPY_UNVERIFIED_MIN_BYTES || p->type != HARP_PACKET_DATA || c->reading || c->has_macs)
    return NULL;
  const struct harp_rx_stream *st = harp_receiver_stream(c->receiver, p->data.stream);
  return st ? harp_rx_stream_target_unverified(st, p) : NULL;
}

static enum harp_drop on_packet(struct harp_session *c, const uint8_t *wire, uint32_t bytes,
                                const struct harp_packet *p, struct harp_placement *place, harp_ns now) {
  if (c->state != HARP_SESSION_OPEN) return HARP_DROP_CLOSED;
  if (p->path >= c->path_count) return HARP_DROP_PATH;
  if (p->type == HARP_PACKET_ACK) return on_ack(c, wire, bytes, p, now);
  if (!c->receiver) return HARP_DROP_DIRECTION;
  uint64_t number = harp_receiver_number(c->receiver, p);
  uint8_t *dst = target_unverified(c, p);
  if (dst) {
    if (!harp_packet_crc_ok_copy(wire, p, c->keys.rx_seed, number, dst)) return HARP_DROP_CRC;
    place->is_placed = true;
  } else if (!harp_packet_crc_ok(wire, p, c->keys.rx_seed, number)) {
    return HARP_DROP_CRC;
  } else if (!is_authentic(c, wire, bytes, p, number)) {
    return HARP_DROP_MAC;
  }
  return harp_receiver_on_packet(c->receiver, p, number, place, now);
}

enum harp_drop harp_session_on_packet(struct harp_session *c, const uint8_t *wire, uint32_t bytes,
                                      const struct harp_packet *p, struct harp_placement *place,
                                      harp_ns now) {
  place->count = 0;
  place->is_placed = false;
  enum harp_drop drop = on_packet(c, wire, bytes, p, place, now);
  c->counters->drops[drop]++;
  return drop;
}

enum harp_drop harp_session_on_head(struct harp_session *c, unsigned path, const uint8_t *head,
                                    const struct harp_record *record, uint64_t *number) {
  const struct harp_packet *p = &record->packet;
  if (c->state != HARP_SESSION_OPEN) return HARP_DROP_CLOSED;
  if (p->token != c->keys.rx_token) return HARP_DROP_TOKEN;
  if (p->type == HARP_PACKET_JOIN) return HARP_DROP_TYPE; /* it was the first */
  if (p->path != path || path >= c->path_count) return HARP_DROP_PATH;
  if (p->type != HARP_PACKET_ACK && !c->receiver) return HARP_DROP_DIRECTION;
  /* The acknowledgement inside has its own number and CRC. */
  *number = p->type == HARP_PACKET_ACK ? p->number : harp_receiver_number(c->receiver, p);
  if (!harp_record_head_ok(head, c->keys.rx_seed, *number)) return HARP_DROP_CRC;
  if (harp_likely(!c->has_macs)) return HARP_DROP_NONE;
  bool is_right = harp_record_is_checked(record) && harp_record_is_authentic(head, &c->rx_mac, *number);
  return is_right ? HARP_DROP_NONE : HARP_DROP_MAC;
}

enum harp_drop harp_session_on_record(struct harp_session *c, const struct harp_record *record,
                                      uint64_t number, struct harp_placement *place, harp_ns now) {
  enum harp_drop drop = HARP_DROP_CLOSED;
  if (c->state == HARP_SESSION_OPEN)
    drop = harp_receiver_on_packet(c->receiver, &record->packet, number, place, now);
  c->counters->drops[drop]++;
  return drop;
}

void harp_session_on_timeout(struct harp_session *c, harp_ns now) {
  if (c->state == HARP_SESSION_OPEN && c->sender) harp_sender_on_timeout(c->sender, now);
}

/* The one transition function: OPEN -> FAILED -> CLOSED, or OPEN -> CLOSED. */
static void move_to(struct harp_session *c, enum harp_session_state to, harp_ns now) {
  static const bool allowed[3][3] = {
      [HARP_SESSION_OPEN] = {[HARP_SESSION_FAILED] = true, [HARP_SESSION_CLOSED] = true},
      [HARP_SESSION_FAILED] = {[HARP_SESSION_CLOSED] = true},
  };
  HARP_ASSERT(allowed[c->state][to]);
  harp_trace(c->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_SESSION_STATE, .a = c->state, .b = to});
  c->state = to;
}

void harp_session_fail(struct harp_session *c, enum harp_status status, harp_ns now) {
  HARP_ASSERT(status != HARP_OK);
  if (c->state != HARP_SESSION_OPEN) return;
  c->status = status;
  move_to(c, HARP_SESSION_FAILED, now);
}

void harp_session_close(struct harp_session *c, harp_ns now) {
  if (c->state != HARP_SESSION_CLOSED) move_to(c, HARP_SESSION_CLOSED, now);
}
