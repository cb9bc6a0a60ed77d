/* SPDX-License-Identifier: Apache-2.0 */
#include "models/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "models/memory.h"

enum {
  DATAGRAM_MAX_BYTES = 65507,
  RECEIVES = 32, /* the receives that a stream has open, as NCCL does */
  MESSAGE_MAX_BYTES = 4 << 20,
  FIRST_NUMBER_STEP = 7919, /* any */
  FIRST_LINE = 5,           /* any */
  FIRST_MESSAGE = 9,        /* any */
};

#define SILENCE_NS HARP_MS(200) /* TCP's least retransmission timeout in Linux */
#define CONNECT_NS HARP_MS(10)
#define SENDING_NS HARP_MS(20) /* a record leaves each so many ns at least, where any are sent */

/* What every message is read from and written to: nothing touches it. */
static uint8_t payload[MESSAGE_MAX_BYTES];

/* ---- packets under way ---- */

/* Sends a packet on its way into `lane`, where it arrives `late_ns` later than by the route alone. Returns
 * false: it is lost at once. On a trip it may be lost later. */
static bool send_packet(struct flow *f, const struct route *r, struct lane *lane, struct parcel *p,
                        uint32_t bytes, harp_ns late_ns, harp_ns now) {
  if (r->mtu_bytes && bytes > r->mtu_bytes) return false;
  if (rng_chance(&f->rng, r->loss_ppm)) return false;
  if (r->cap && wire_pass(r->cap, bytes, now) == HARP_NEVER) return false;
  if (r->trip) {
    p->bytes = bytes;
    trip_start(r->trip, p, now);
    return true;
  }
  harp_ns at = r->wire ? wire_pass(r->wire, bytes, now) : now;
  if (at == HARP_NEVER) return false;
  p->at_ns = at + r->delay_ns + late_ns;
  lane_push(lane, p);
  return true;
}

static void send_run(struct flow *f, const struct harp_tx_run *run, harp_ns now) {
  struct flow_path *path = &f->paths[run->path];
  uint32_t full = run->lines_per_packet * HARP_LINE_BYTES;
  path->packets += run->count;
  for (uint32_t i = 0; i < run->count; i++) {
    bool is_last = i + 1 == run->count;
    uint32_t length = is_last ? run->last_bytes : full;
    bool is_marked = run->ect && path->there.wire && wire_marks(path->there.wire, now);
    struct parcel p = {.number = run->number + i,
                       .data = {.time = harp_ticks_from_ns(now),
                                .message = run->message,
                                .line = run->line + i * run->lines_per_packet,
                                .offset = run->offset + i * full,
                                .size = run->size,
                                .length = length,
                                .stream = run->stream,
                                .type = (uint8_t)run->type,
                                .ce = is_marked,
                                .flags = is_last ? run->flags : 0}};
    uint32_t bytes = FLOW_HEADERS_BYTES + length;
    if (!send_packet(f, &path->there, &path->data, &p, bytes, 0, now)) path->lost++;
  }
}

/* ---- the sending end ---- */

static void take_done(struct flow *f, harp_ns now) {
  void *cookie;
  for (unsigned k = 0; k < f->stream_count; k++) {
    while (harp_tx_stream_poll_done(&f->tx[k], &cookie)) traffic_on_done(&f->traffic[k], cookie, now);
  }
}

/* Posts what is due; returns when the next message is. */
static harp_ns post_messages(struct flow *f, harp_ns now) {
  harp_ns next = HARP_NEVER;
  for (unsigned k = 0; k < f->stream_count; k++) {
    struct traffic *t = &f->traffic[k];
    while (traffic_next_ns(t) <= now) {
      void *cookie = traffic_post(t, now);
      if (harp_sender_post(f->sender, &f->tx[k], payload, t->message_bytes, cookie, true, now)) abort();
    }
    next = HARP_MIN(next, traffic_next_ns(t));
  }
  return next;
}

/* Has nothing pass of a tcp path for a while, where that is due and records are being sent. */
static void fall_silent(struct flow_path *path, harp_ns now) {
  if (!path->silent_every_ns || now < path->silent_ns) return;
  bool is_sending = path->silent_ns && now - path->silent_ns < SENDING_NS;
  if (is_sending) wire_hold(path->there.wire, SILENCE_NS, now);
  path->silent_ns = now + host_draw_ns(&path->flow->rng, path->silent_every_ns);
}

/* Ends the connection of a tcp path that is DOWN, as an engine does, and begins the next one. */
static void review_connection(struct flow_path *path, harp_ns now) {
  bool had_ended = path->has_ended;
  path->has_ended = harp_sender_is_down(path->flow->sender, path->index);
  if (!path->has_ended || had_ended) return;
  lane_clear(&path->data, false);
  lane_clear(&path->acks, true);
  wire_clear(path->there.wire);
  path->silent_ns = 0;
  harp_sender_block(path->flow->sender, path->index, now);
  agenda_set(path->flow->agenda, &path->unblock, now + CONNECT_NS);
}

/* Blocks a tcp path until its kernel's buffer has room again. */
static void fill_kernel(struct flow_path *path, harp_ns now) {
  const struct wire *w = path->there.wire;
  harp_ns full_ns = path->kernel_bytes * w->ps_per_byte / 1000, queue_ns = wire_queue_ns(w, now);
  if (queue_ns <= full_ns) return;
  harp_sender_block(path->flow->sender, path->index, now);
  agenda_set(path->flow->agenda, &path->unblock, now + queue_ns - full_ns);
}

static void send_superframe(struct flow *f, struct harp_tx_choice c, harp_ns now) {
  struct flow_path *path = &f->paths[c.path];
  uint32_t segment = HARP_DATA_HEADER_BYTES + c.bytes;
  uint32_t room = path->is_tcp ? 1 : HARP_MAX(DATAGRAM_MAX_BYTES / segment, 1u);
  struct harp_tx_run run;
  fall_silent(path, now);
  f->superframes++;
  do {
    harp_sender_take(f->sender, &c, room, &run, now);
    send_run(f, &run, now);
    room -= run.count;
    if (run.type == HARP_PACKET_PROBE || !room) break;
    c = harp_sender_choose_more(f->sender, path->index, now);
  } while (c.kind != HARP_TX_NOTHING);
  if (path->is_lossy) (void)harp_sender_on_trouble(f->sender, now);
  if (path->is_tcp) fill_kernel(path, now);
}

static void run_sender(struct flow *f, harp_ns now) {
  if (f->is_refused) return;
  take_done(f, now);
  harp_ns next = post_messages(f, now);
  harp_sender_on_timeout(f->sender, now);
  for (unsigned i = 0; i < f->path_count; i++)
    if (f->paths[i].silent_every_ns) review_connection(&f->paths[i], now);
  struct harp_tx_choice c;
  while ((c = harp_sender_choose(f->sender, now)).kind != HARP_TX_NOTHING) send_superframe(f, c, now);
  agenda_set(f->agenda, &f->sender_timer, HARP_MIN(next, c.deadline_ns));
}

/* Returns whether the host pauses; then the source fires again when it runs. */
static bool waits_for(struct host *h, struct agenda *a, struct source *s, harp_ns now) {
  harp_ns at = host_wakes_ns(h, now);
  if (at) agenda_set(a, s, at);
  return at != 0;
}

static void on_sender_timer(struct source *s, harp_ns now) {
  struct flow *f = HARP_CONTAINER_OF(s, struct flow, sender_timer);
  if (!waits_for(&f->sender_host, f->agenda, s, now)) run_sender(f, now);
}

static void on_acks(struct source *s, harp_ns now) {
  struct flow_path *path = HARP_CONTAINER_OF(s, struct flow_path, acks.source);
  struct flow *f = path->flow;
  if (waits_for(&f->sender_host, f->agenda, s, now)) return;
  for (struct parcel p; lane_take(&path->acks, &p, now);) {
    enum harp_drop drop = harp_sender_on_ack(f->sender, p.ack, harp_sender_ack_number(f->sender, p.ack), now);
    f->is_refused |= drop == HARP_DROP_FALSE_ACK;
    lane_release(p.ack);
  }
  run_sender(f, now);
}

static void on_unblock(struct source *s, harp_ns now) {
  struct flow_path *path = HARP_CONTAINER_OF(s, struct flow_path, unblock);
  harp_sender_unblock(path->flow->sender, path->index, now);
  run_sender(path->flow, now);
}

/* ---- the receiving end ---- */

static void post_receives(struct flow *f, unsigned k, harp_ns now) {
  struct harp_placement place;
  const uint8_t *early;
  for (; f->receives[k] < RECEIVES; f->receives[k]++) {
    if (harp_receiver_post(f->receiver, &f->rx[k], payload, sizeof payload, false, NULL, &place, &early, now))
      abort();
  }
}

static harp_ns wire_queue_ns_of(const struct route *r, harp_ns now) {
  return r->wire ? wire_queue_ns(r->wire, now) : 0;
}

static uint32_t ack_bytes(const struct harp_packet *ack) {
  return HARP_ACK_HEADER_BYTES + ack->ack.range_count * HARP_ACK_RANGE_BYTES +
         ack->ack.credit_count * HARP_ACK_CREDIT_BYTES + FLOW_IP_UDP_BYTES;
}

static void run_receiver(struct flow *f, harp_ns now) {
  for (int i; (i = harp_receiver_next_ack(f->receiver, 0, now)) >= 0;) {
    struct flow_path *path = &f->paths[i];
    struct parcel p = {.ack = lane_acquire()};
    harp_receiver_take_ack(f->receiver, (unsigned)i, p.ack, &p.number, now);
    p.ack->number = (uint32_t)p.number;
    liar_falsify(f->lie, p.ack,
                 path->there.delay_ns + path->back.delay_ns + wire_queue_ns_of(&path->there, now));
    harp_ns late_ns = f->lie == LIE_LATE ? LIAR_LATE_NS : 0;
    if (!send_packet(f, &path->back, &path->acks, &p, ack_bytes(p.ack), late_ns, now)) lane_release(p.ack);
  }
  agenda_set(f->agenda, &f->receiver_timer, harp_receiver_deadline_ns(f->receiver, 0));
}

static void take_received(struct flow *f, unsigned k, harp_ns now) {
  void *cookie;
  uint32_t bytes, before = f->receives[k];
  while (harp_rx_stream_poll_done(&f->rx[k], &cookie, &bytes)) {
    f->traffic[k].received_bytes += bytes;
    f->receives[k]--;
  }
  if (f->receives[k] == before) return;
  post_receives(f, k, now);
  if (f->on_received) f->on_received(f, k, now);
}

static void feed_packet(struct flow *f, const struct flow_path *path, const struct parcel *a, harp_ns now) {
  static struct harp_packet p; /* large; only these fields are read of a packet of this type */
  static struct harp_placement place;
  p.type = a->data.type;
  p.flags = a->data.flags;
  p.path = (uint8_t)path->index;
  p.number = (uint32_t)a->number;
  p.ce = a->data.ce;
  p.data.time = a->data.time;
  p.data.message = a->data.message;
  p.data.line = a->data.line;
  p.data.offset = a->data.offset;
  p.data.size = a->data.size;
  p.data.length = a->data.length;
  p.data.stream = a->data.stream;
  harp_receiver_on_packet(f->receiver, &p, harp_receiver_number(f->receiver, &p), &place, now);
  if (p.type == HARP_PACKET_DATA) take_received(f, a->data.stream, now);
}

static void on_data(struct source *s, harp_ns now) {
  struct flow_path *path = HARP_CONTAINER_OF(s, struct flow_path, data.source);
  struct flow *f = path->flow;
  if (waits_for(&f->receiver_host, f->agenda, s, now)) return;
  for (struct parcel p; lane_take(&path->data, &p, now);) feed_packet(f, path, &p, now);
  run_receiver(f, now);
}

static void on_receiver_timer(struct source *s, harp_ns now) {
  struct flow *f = HARP_CONTAINER_OF(s, struct flow, receiver_timer);
  if (!waits_for(&f->receiver_host, f->agenda, s, now)) run_receiver(f, now);
}

/* ---- life ---- */

static void init_ends(struct flow *f, const struct flow_config *c, harp_ns now) {
  struct harp_sender_config tx = {.first_number = (uint32_t)c->seed * FIRST_NUMBER_STEP,
                                  .stream_max = FLOW_STREAMS_MAX,
                                  .path_count = c->path_count,
                                  .window_bytes = c->window_bytes,
                                  .cc = c->cc};
  memcpy(tx.paths, c->paths, c->path_count * sizeof tx.paths[0]);
  struct harp_receiver_config rx = {.first_number = tx.first_number,
                                    .path_count = c->path_count,
                                    .stream_max = FLOW_STREAMS_MAX,
                                    .window_bytes = c->window_bytes};
  f->sender = take_memory(1, harp_sender_bytes(&tx));
  f->receiver = take_memory(1, harp_receiver_bytes(&rx));
  harp_sender_init(f->sender, &tx, NULL, &f->sent, now);
  harp_receiver_init(f->receiver, &rx, NULL, &f->received);
}

static void open_streams(struct flow *f) {
  f->tx = take_memory(f->stream_count, sizeof f->tx[0]);
  f->rx = take_memory(f->stream_count, sizeof f->rx[0]);
  f->staging = take_memory(f->stream_count, HARP_STAGING_BYTES);
  for (unsigned k = 0; k < f->stream_count; k++) {
    harp_receiver_open(f->receiver, &f->rx[k],
                       &(struct harp_rx_stream_config){.id = (uint16_t)k,
                                                       .first_line = FIRST_LINE,
                                                       .first_message = FIRST_MESSAGE,
                                                       .staging = f->staging + k * HARP_STAGING_BYTES});
    harp_sender_open(f->sender, &f->tx[k],
                     &(struct harp_tx_stream_config){
                         .id = (uint16_t)k, .first_line = FIRST_LINE, .first_message = FIRST_MESSAGE});
  }
}

void flow_init(struct flow *f, struct agenda *a, const struct flow_config *c) {
  memset(f, 0, sizeof *f);
  f->agenda = a;
  f->path_count = c->path_count;
  f->stream_count = c->stream_count;
  f->rng.state = c->seed;
  init_ends(f, c, a->now);
  open_streams(f);
  for (unsigned i = 0; i < c->path_count; i++) {
    struct flow_path *path = &f->paths[i];
    path->flow = f;
    path->index = i;
    path->is_tcp = c->paths[i].is_tcp;
    lane_init(&path->data, a, on_data);
    lane_init(&path->acks, a, on_acks);
    source_init(&path->unblock, on_unblock);
  }
  source_init(&f->sender_timer, on_sender_timer);
  source_init(&f->receiver_timer, on_receiver_timer);
}

void flow_start(struct flow *f) {
  harp_ns now = f->agenda->now;
  for (unsigned k = 0; k < f->stream_count; k++) {
    traffic_init(&f->traffic[k]);
    post_receives(f, k, now);
  }
  for (unsigned i = 0; i < f->path_count; i++) {
    if (f->paths[i].is_tcp) harp_sender_unblock(f->sender, i, now);
  }
  agenda_set(f->agenda, &f->receiver_timer, now);
  agenda_set(f->agenda, &f->sender_timer, now);
}

void flow_wake(struct flow *f) {
  agenda_set(f->agenda, &f->sender_timer, f->agenda->now);
}

void flow_fini(struct flow *f) {
  for (unsigned i = 0; i < f->path_count; i++) {
    for (struct parcel p; lane_take(&f->paths[i].acks, &p, HARP_NEVER);) lane_release(p.ack);
    lane_fini(&f->paths[i].data);
    lane_fini(&f->paths[i].acks);
  }
  for (unsigned k = 0; k < f->stream_count; k++) traffic_fini(&f->traffic[k]);
  free(f->sender);
  free(f->receiver);
  free(f->tx);
  free(f->rx);
  free(f->staging);
}

uint64_t flow_received_bytes(const struct flow *f) {
  uint64_t bytes = 0;
  for (unsigned k = 0; k < f->stream_count; k++) bytes += f->traffic[k].received_bytes;
  return bytes;
}

uint64_t flow_packets(const struct flow *f) {
  uint64_t packets = 0;
  for (unsigned i = 0; i < f->path_count; i++) packets += f->paths[i].packets;
  return packets;
}

uint64_t flow_lost_packets(const struct flow *f) {
  uint64_t lost = 0;
  for (unsigned i = 0; i < f->path_count; i++) lost += f->paths[i].lost;
  return lost;
}
