/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tcp/tcp_bytes.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log_limit.h"
#include "engine/engine.h"
#include "wire/crc32c.h"

_Static_assert(HARP_TCP_OUT_BYTES >= 2 * HARP_RECORD_HEAD_BYTES + (int)HARP_ACK_MAX_BYTES +
                                         (int)HARP_MAC_BYTES + (int)HARP_TCP_COPY_MAX_BYTES,
               "an acknowledgement and a record");

static const char *name_of(const struct harp_tcp_path *p) {
  return p->peer->engine->enis[p->peer->ends[p->path].local_eni].ifname;
}

/* Has all payload of the engine copied from now on. */
static void refuse_references(struct harp_tcp_path *p, const char *what, int err) {
  struct harp_engine *e = p->peer->engine;
  e->tcp->refuses_references = true;
  e->counters.reference_refusals++;
  harp_page_pipe_close(&e->tcp->pages);
  HARP_INFO("%s%s: payload of large records is copied, not handed to TCP by reference: %s: %s", name_of(p),
            e->mark, what, strerror(-err));
}

/* Returns the least payload that goes by reference now. */
static uint32_t reference_min_bytes(struct harp_engine *e) {
  struct harp_tcp *t = e->tcp;
  uint64_t sent = e->counters.tx_bytes - t->looked_tx_bytes;
  if (harp_unlikely(sent >= HARP_TCP_DIRECTION_BYTES)) {
    t->is_both_ways = 4 * (e->counters.rx_bytes - t->looked_rx_bytes) >= sent;
    t->looked_tx_bytes = e->counters.tx_bytes;
    t->looked_rx_bytes = e->counters.rx_bytes;
  }
  return t->is_both_ways ? HARP_TCP_REFERENCE_BOTH_WAYS_MIN_BYTES : HARP_REFERENCE_MIN_BYTES;
}

/* Returns whether the payload of a record is to go by reference. Opens the pipe when the first one is. */
static bool wants_reference(struct harp_tcp_path *p, uint32_t bytes) {
  struct harp_engine *e = p->peer->engine;
  enum harp_zerocopy_mode mode = e->instance.zerocopy;
  if (mode == HARP_ZEROCOPY_MODE_OFF || e->tcp->refuses_references) return false;
  if (mode == HARP_ZEROCOPY_MODE_AUTO &&
      (bytes < reference_min_bytes(e) || !harp_reference_choice_method(&e->tcp->reference_choice, bytes)))
    return false;
  if (harp_likely(harp_page_pipe_is_open(&e->tcp->pages))) return true;
  int err = harp_page_pipe_open(&e->tcp->pages, HARP_RECORD_MAX_BYTES);
  if (err) refuse_references(p, "no pipe as large as a record", err);
  return !err;
}

/* ---- sending ---- */

bool harp_tcp_bytes_wait(const struct harp_tcp_path *p) {
  return p->out_sent < p->out_bytes || p->payload_bytes;
}

/* Takes what the kernel has got off what waits for it. */
static void drop_sent_bytes(struct harp_tcp_path *p, size_t bytes) {
  HARP_ASSERT(bytes <= p->out_bytes - p->out_sent + (size_t)p->payload_bytes);
  uint32_t head = (uint32_t)HARP_MIN(bytes, (size_t)(p->out_bytes - p->out_sent));
  p->out_sent += head;
  bytes -= head;
  if (!bytes) return;
  p->payload += bytes;
  p->payload_bytes -= (uint32_t)bytes;
}

/* Returns whether the payload that waits is the user's again: other paths have delivered its message
 * meanwhile. */
static bool is_payload_gone(const struct harp_tcp_path *p) {
  return p->payload_bytes && !harp_tx_stream_holds(p->payload_of, p->payload_message);
}

/* Sends the payload that waits by reference. Returns what sendmsg does. Payload that the kernel does not
 * take by reference is copied. */
static ssize_t give_pages(struct harp_tcp_path *p, harp_ns now) {
  struct harp_page_pipe *pages = &p->peer->engine->tcp->pages;
  if (harp_unlikely(!harp_page_pipe_is_open(pages))) { /* closed since, for another path */
    p->by_reference = false;
    return 0;
  }
  int err = harp_page_pipe_fill(pages, p, p->payload, p->payload_bytes);
  if (harp_unlikely(err && err != -EINTR)) {
    refuse_references(p, "vmsplice", err);
    p->by_reference = false;
    return 0;
  }
  ssize_t n = err ? err : harp_page_pipe_move(pages, p->fd, p->payload_bytes > pages->bytes, now);
  if (harp_unlikely(n == -EINVAL || n == -ENOSYS || n == -EPERM)) {
    refuse_references(p, "splice", (int)n);
    p->by_reference = false;
    return 0;
  }
  if (n > 0) p->referenced_to = p->sent_bytes + (uint64_t)n;
  if (n < 0) errno = (int)-n;
  return n < 0 ? -1 : n;
}

static void set_cork(struct harp_tcp_path *p, bool corked) {
  harp_tcp_socket_set_cork(p->fd, corked);
  p->is_corked = corked;
}

/* Sends what waits: heads and payload in one call, or where the payload goes by reference one after the
 * other, since `out` is written anew. Returns what sendmsg does. */
static ssize_t send_waiting(struct harp_tcp_path *p, harp_ns now) {
  uint32_t heads = p->out_bytes - p->out_sent;
  struct iovec iov[2] = {{p->out + p->out_sent, heads}, {(void *)(uintptr_t)p->payload, p->payload_bytes}};
  struct msghdr msg = {.msg_iov = iov, .msg_iovlen = p->payload_bytes ? 2 : 1};
  int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (!p->by_reference) return sendmsg(p->fd, &msg, flags);
  if (!heads) return give_pages(p, now);
  msg.msg_iovlen = 1;
  if (!p->is_corked && p->payload_bytes >= HARP_TCP_CORK_MIN_BYTES) set_cork(p, true);
  return sendmsg(p->fd, &msg, flags | MSG_MORE);
}

/* Learns that the kernel takes no more now: the path is blocked until it does. */
static void wait_for_kernel(struct harp_tcp_path *p, harp_ns now) {
  if (!p->is_waiting) p->peer->engine->counters.tx_deferred++;
  p->is_waiting = true;
  harp_sender_block(p->peer->session.sender, p->path, now);
}

/* Hands what waits to the kernel until it takes no more. Returns 0, -EAGAIN, or another -errno where the
 * connection is broken. */
static int hand_over(struct harp_tcp_path *p, harp_ns now) {
  while (harp_tcp_bytes_wait(p)) {
    ssize_t n = send_waiting(p, now);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    p->peer->engine->counters.tx_bytes += (uint64_t)n;
    p->sent_bytes += (uint64_t)n;
    drop_sent_bytes(p, (size_t)n);
  }
  if (harp_unlikely(p->is_corked)) set_cork(p, false);
  return 0;
}

static void log_cheaper_method(const struct harp_tcp_path *p) {
  unsigned k = harp_reference_choice_class(p->payload_size);
  const struct harp_reference_class *class = &p->peer->engine->tcp->reference_choice.classes[k];
  HARP_INFO("%s%s: payload from %u KiB on: a MiB costs %u us as a copy, %u us by reference: %s", name_of(p),
            p->peer->engine->mark, harp_reference_class_min_bytes(k) >> 10, class->cost[0] / 1000,
            class->cost[1] / 1000, class->by_reference ? "by reference" : "copied");
}

/* Hands over a record whose size has a choice of methods, and measures what this one costs. */
static int hand_over_measured(struct harp_tcp_path *p, harp_ns now) {
  struct harp_reference_choice *c = &p->peer->engine->tcp->reference_choice;
  uint32_t before = p->payload_bytes;
  bool by_reference = p->by_reference;
  harp_ns began_ns = harp_clock_ns();
  int err = hand_over(p, now);
  uint32_t sent = before - p->payload_bytes;
  if (sent && by_reference == p->by_reference &&
      harp_reference_choice_on_sent(c, p->payload_size, by_reference, sent, harp_clock_ns() - began_ns))
    log_cheaper_method(p);
  return err;
}

const char *harp_tcp_bytes_write(struct harp_tcp_path *p, harp_ns now) {
  HARP_ASSERT(p->fd >= 0 && !p->connecting);
  if (harp_unlikely(is_payload_gone(p))) return "its message went another way";
  bool is_measured = p->payload_bytes && p->payload_size >= HARP_REFERENCE_MIN_BYTES;
  int err = is_measured ? hand_over_measured(p, now) : hand_over(p, now);
  if (err == -EAGAIN) {
    wait_for_kernel(p, now);
    return NULL;
  }
  if (err) return strerror(-err);
  harp_tcp_bytes_drop(p);
  if (!p->is_waiting) return NULL;
  p->is_waiting = false;
  harp_sender_unblock(p->peer->session.sender, p->path, now);
  harp_peer_touch(p->peer);
  return NULL;
}

/* Returns where the next head goes. */
static uint8_t *out_end(struct harp_tcp_path *p) {
  return p->out + p->out_bytes;
}

void harp_tcp_bytes_put_join(struct harp_tcp_path *p, uint32_t attempt) {
  const struct harp_peer *peer = p->peer;
  HARP_ASSERT(!p->out_bytes); /* a connection begins with it */
  harp_record_encode_join(p->out, peer->session.keys.tx_token, p->path, attempt, peer->session.keys.tx_seed,
                          peer->monitor.keys.tx);
  p->out_bytes = HARP_RECORD_HEAD_BYTES;
}

void harp_tcp_bytes_put_ack(struct harp_tcp_path *p, const struct harp_packet *ack, uint64_t number) {
  const struct harp_session *session = &p->peer->session;
  const struct harp_session_keys *keys = &session->keys;
  HARP_ASSERT(!p->payload_bytes &&
              p->out_bytes + HARP_RECORD_HEAD_BYTES + HARP_ACK_MAX_BYTES + HARP_MAC_BYTES <= sizeof p->out);
  uint8_t *head = out_end(p), *body = head + HARP_RECORD_HEAD_BYTES;
  uint32_t bytes = (uint32_t)harp_packet_encode_ack(body, ack, number, keys->tx_seed);
  bytes = harp_session_seal(session, body, bytes, number);
  struct harp_packet fields = {.type = HARP_PACKET_ACK, .path = (uint8_t)p->path, .token = keys->tx_token};
  harp_record_encode(head, &fields, bytes, harp_crc32c(0, body, bytes), (uint32_t)number, keys->tx_seed);
  if (harp_unlikely(session->has_macs))
    harp_record_seal(head, &session->tx_mac, 0, (uint32_t)number, keys->tx_seed);
  p->out_bytes += HARP_RECORD_HEAD_BYTES + bytes;
}

/* Writes the MACs of a record's head and of its payload. */
static void seal_record(const struct harp_tcp_path *p, uint8_t *head, const struct harp_tx_run *run,
                        const uint8_t *payload, uint32_t length) {
  const struct harp_session *session = &p->peer->session;
  struct harp_mac_state mac = {0};
  if (length) harp_mac_add(&session->tx_mac, &mac, payload, length);
  struct harp_mac_nonce nonce = {run->number, run->path, HARP_PACKET_DATA};
  harp_record_seal(head, &session->tx_mac, harp_mac_end(&session->tx_mac, &mac, nonce), run->number,
                   session->keys.tx_seed);
}

void harp_tcp_bytes_put_record(struct harp_tcp_path *p, const struct harp_tx_run *run,
                               const struct harp_tx_stream *stream, harp_ns now) {
  struct harp_engine *e = p->peer->engine;
  const struct harp_session *session = &p->peer->session;
  const struct harp_session_keys *keys = &session->keys;
  bool is_data = run->type == HARP_PACKET_DATA;
  uint32_t length = is_data ? run->last_bytes : 0;
  struct harp_packet fields = {
      .type = run->type,
      .flags = run->flags,
      .path = run->path,
      .token = keys->tx_token,
      .data = {.time = harp_ticks_from_ns(now),
               .message = run->message,
               .line = run->line,
               .offset = run->offset,
               .size = run->size,
               .stream = run->stream},
  };
  uint8_t *head = out_end(p);
  bool copied = length <= HARP_TCP_COPY_MAX_BYTES;
  HARP_ASSERT(!p->payload_bytes &&
              p->out_bytes + HARP_RECORD_HEAD_BYTES + (copied ? length : 0) <= sizeof p->out);
  p->out_bytes += HARP_RECORD_HEAD_BYTES + (copied ? length : 0);
  uint32_t crc = 0;
  if (copied)
    crc = harp_crc32c_copy(0, head + HARP_RECORD_HEAD_BYTES, run->data, length);
  else if (harp_likely(e->instance.tcp_checksum == HARP_TCP_CHECKSUM_ON && !session->has_macs))
    crc = harp_crc32c(0, run->data, length);
  else if (!session->has_macs)
    fields.flags |= HARP_FLAG_UNCHECKED, e->counters.tx_unchecked++;
  harp_record_encode(head, &fields, length, crc, run->number, keys->tx_seed);
  if (harp_unlikely(session->has_macs))
    seal_record(p, head, run, copied ? head + HARP_RECORD_HEAD_BYTES : run->data, length);
  if (copied) return;
  p->payload = run->data;
  p->payload_bytes = p->payload_size = length;
  p->payload_of = stream;
  p->payload_message = run->message;
  p->by_reference = wants_reference(p, length);
  e->counters.tx_by_reference += p->by_reference;
}

/* ---- receiving ---- */

/* Has the next harp_peer_complete_news look for messages that are complete, or larger than their receives. */
static void link_of_packet_arrived(struct harp_peer *peer, const struct harp_packet *p) {
  const struct harp_rx_stream *st = harp_receiver_stream(peer->session.receiver, p->data.stream);
  if (st) harp_link_on_arrival(st->owner);
}

/* An acknowledgement comes as it would in a datagram. Returns why it is worthless. */
static enum harp_drop take_ack(struct harp_tcp_path *p, harp_ns now) {
  const uint8_t *wire = p->in.record.packet.data.payload;
  struct harp_packet ack;
  struct harp_placement where;
  enum harp_drop drop = harp_packet_decode(wire, p->in.record.length, &ack);
  if (drop) return drop;
  if (ack.type != HARP_PACKET_ACK) return HARP_DROP_TYPE;
  if (ack.token != p->peer->session.keys.rx_token) return HARP_DROP_TOKEN;
  return harp_session_on_packet(&p->peer->session, wire, p->in.record.length, &ack, &where, now);
}

/* Takes a record that came whole, or whose payload is in place. */
static void take_record(struct harp_tcp_path *p, enum harp_records_event event, harp_ns now) {
  const struct harp_record *record = &p->in.record;
  struct harp_session *session = &p->peer->session;
  p->peer->engine->counters.rx_records++;
  p->peer->last_received_ns = now;
  p->peer->is_confirmed = true;
  if (record->packet.type == HARP_PACKET_ACK) {
    harp_peer_on_drop(p->peer, take_ack(p, now));
    return;
  }
  struct harp_placement where;
  bool is_placed = event == HARP_RECORDS_PLACED;
  enum harp_drop drop = harp_session_on_record(session, record, p->in.number, is_placed ? NULL : &where, now);
  if (!drop && !is_placed) harp_placement_copy(&where, record->packet.data.payload);
  if (record->packet.type == HARP_PACKET_DATA) link_of_packet_arrived(p->peer, &record->packet);
}

/* Takes all records that are complete. Returns why the connection is worthless; NULL: it is not. */
static const char *take_records(struct harp_tcp_path *p, harp_ns now) {
  for (;;) {
    enum harp_records_event event = harp_records_next(&p->in);
    switch (event) {
    case HARP_RECORDS_MORE:
      return NULL;
    case HARP_RECORDS_BROKEN:
      p->peer->engine->counters.drops[p->in.why]++;
      return harp_drop_name(p->in.why);
    case HARP_RECORDS_SCRAP:
      p->peer->engine->counters.drops[p->in.why]++;
      link_of_packet_arrived(p->peer, &p->in.record.packet); /* it may be larger than its receive */
      break;
    default:
      take_record(p, event, now);
    }
  }
}

enum harp_tcp_read harp_tcp_bytes_read(struct harp_tcp_path *p, const char **why, harp_ns *now) {
  struct harp_engine *e = p->peer->engine;
  struct iovec room[HARP_RECORDS_PIECES_MAX + 1];
  HARP_ASSERT(p->fd >= 0 && !p->connecting);
  unsigned pieces = harp_records_room(&p->in, e->tcp->scrap, sizeof e->tcp->scrap, room);
  size_t wanted = 0;
  for (unsigned k = 0; k < pieces; k++) wanted += room[k].iov_len;
  ssize_t n = readv(p->fd, room, (int)pieces);
  if (n < 0 && errno == EINTR) return HARP_TCP_READ_MORE; /* its edge may not come again */
  if (n < 0 && errno == EAGAIN) return HARP_TCP_READ_NOTHING;
  *why = n < 0 ? strerror(errno) : "closed by the other side";
  if (n <= 0) return HARP_TCP_READ_END;
  *now = e->clock();
  e->counters.rx_bytes += (uint64_t)n;
  harp_records_on_read(&p->in, (size_t)n);
  *why = take_records(p, *now);
  if (*why) return HARP_TCP_READ_END;
  return (size_t)n < wanted && !p->is_ending ? HARP_TCP_READ_SOME : HARP_TCP_READ_MORE;
}

/* ---- beginning ---- */

void harp_tcp_bytes_drop(struct harp_tcp_path *p) {
  p->out_sent = p->out_bytes = p->payload_bytes = 0;
  p->payload_of = NULL;
  harp_page_pipe_drop(&p->peer->engine->tcp->pages, p);
  p->by_reference = false; /* or heads alone would wait for a payload (MSG_MORE) */
}

void harp_tcp_bytes_begin(struct harp_tcp_path *p) {
  harp_tcp_bytes_drop(p);
  p->acked_bytes = p->sent_bytes = p->referenced_to = 0;
  p->is_waiting = p->is_corked = p->is_ending = false;
  harp_records_init(&p->in, &p->peer->session, p->path, p->ahead);
}
