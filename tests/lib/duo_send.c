/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/duo_send.h"

#include <string.h>

#include "lib/duo_attack.h"
#include "lib/duo_stream.h"
#include "lib/duo_tcp.h"
#include "lib/duo_window.h"

enum {
  POLLS_MAX = 100000, /* superframes out of one pass */
  DATAGRAM_MAX = 65507,
  CHECK_TAKES = 4, /* steps, of which one checks between the packets of a superframe */
};

/* ---- drivers ---- */

/* Returns whether the driver has no frame for what was chosen to be sent: nothing leaves, and the choice is
 * forgotten. */
static bool lacks_frame(struct duo *d, struct duo_end *e) {
  if (e->no_frame_until_ns > d->now) return true;
  if (!d->faults || !rng_chance(&d->rng, d->config.no_frame_ppm)) return false;
  e->no_frame_until_ns = d->now + 1 + rng_below(&d->rng, d->config.no_frame_ns + 1);
  return true;
}

/* A superframe under way to the driver. All its packets but the last have the same length. */
struct superframe {
  unsigned path;
  bool ect;
  uint32_t segment_bytes, last_bytes;
  uint32_t count, count_max;
  uint8_t frame[DATAGRAM_MAX + HARP_PACKET_MAX_BYTES + HARP_MAC_BYTES];
};

static uint8_t *next_segment(struct superframe *sf) {
  if (sf->count && sf->last_bytes < sf->segment_bytes)
    memset(sf->frame + (sf->count - 1) * sf->segment_bytes + sf->last_bytes, 0xA5,
           sf->segment_bytes - sf->last_bytes); /* padding */
  return sf->frame + sf->count++ * sf->segment_bytes;
}

/* Returns whether a packet of so many bytes may follow. */
static bool may_follow(const struct duo *d, const struct superframe *sf, uint32_t bytes) {
  if (sf->count == sf->count_max || bytes > sf->segment_bytes) return false;
  return sf->last_bytes == sf->segment_bytes || d->config.pad;
}

static void submit(struct duo *d, struct duo_end *e, const struct superframe *sf) {
  if (d->faults && rng_chance(&d->rng, d->config.refuse_ppm)) return; /* the driver was busy */
  d->path_packets[sf->path] += sf->count;
  e->superframes++;
  for (uint32_t i = 0; i < sf->count; i++) {
    const uint8_t *at = sf->frame + i * sf->segment_bytes;
    uint32_t bytes = i + 1 == sf->count ? sf->last_bytes : sf->segment_bytes;
    simnet_send(&d->net, (enum simnet_way)e->index, sf->path, at, bytes, sf->ect, d->now);
    duo_attack_packet(d, e, sf->path, at, bytes);
  }
}

/* ---- what an end sends ---- */

/* Adds the credit of a stream that is not open, or nonsense about one that is misused. */
static void stray(struct duo *d, struct duo_end *e, struct harp_packet *ack) {
  if (ack->ack.credit_count == HARP_ACK_CREDITS_MAX || !rng_chance(&d->rng, d->config.stray_ppm)) return;
  uint16_t id = (uint16_t)rng_below(&d->rng, rng_below(&d->rng, 2) ? d->config.stream_max : 65536);
  const struct duo_stream *s = id < DUO_IDS_MAX ? d->ends[1 - e->index].sends[id] : NULL;
  if (s && !s->forged) return;
  ack->ack.credits[ack->ack.credit_count++] = (struct harp_credit){id, (uint32_t)rng_next(&d->rng)};
}

static void add_ack(struct duo *d, struct duo_end *e, struct superframe *sf, struct harp_packet *ack,
                    uint64_t number) {
  if (sf->count == 0) stray(d, e, ack);
  duo_window_maybe_spoil(d, ack);
  ack->token = e->session.keys.tx_token;
  uint8_t *at = next_segment(sf);
  uint32_t bytes = (uint32_t)harp_packet_encode_ack(at, ack, number, e->session.keys.tx_seed);
  sf->last_bytes = harp_session_seal(&e->session, at, bytes, number);
  d->ack_packets++;
}

static void check_run(struct duo *d, struct duo_end *e, const struct harp_tx_run *run,
                      const struct harp_path *p, bool probing) {
  if (!run->count || run->count > HARP_BURST_MAX_PACKETS) duo_fail(d, "run of %u packets", run->count);
  if (run->path != p->index) duo_fail(d, "run for another path");
  if (run->type == HARP_PACKET_PROBE) return;
  const struct duo_stream *s = run->stream < DUO_IDS_MAX ? e->sends[run->stream] : NULL;
  if (!s) duo_fail(d, "run of stream %u, which is not open", run->stream);
  duo_stream_check_run(d, s, run);
  e->exceeds |= probing;
  /* a window of few packets is rounded up (harp_path_room) */
  uint32_t window = p->cc.window_bytes, packet = p->cc.packet_bytes;
  if (!probing && p->inflight_bytes > window + (window < HARP_PACE_EXACT_PACKETS * packet ? packet : 0))
    duo_fail(d, "path %u: %u bytes in flight, window %u", run->path, p->inflight_bytes, p->cc.window_bytes);
}

/* Adds the run's packets. */
static void add_run(struct duo *d, struct duo_end *e, struct superframe *sf, const struct harp_tx_run *run) {
  const struct harp_session_keys *keys = &e->session.keys;
  struct duo_stream *s = run->type == HARP_PACKET_DATA ? e->sends[run->stream] : NULL;
  uint32_t full = run->lines_per_packet * HARP_LINE_BYTES;
  for (uint32_t i = 0; i < run->count; i++) {
    bool last = i + 1 == run->count;
    uint8_t *at = next_segment(sf);
    struct harp_packet f = {
        .type = run->type,
        .flags = last ? run->flags : 0,
        .path = run->path,
        .token = keys->tx_token,
        .data = {.time = harp_ticks_from_ns(d->now),
                 .message = run->message,
                 .line = run->line + i * run->lines_per_packet,
                 .offset = run->offset + i * full,
                 .size = run->size,
                 .length = last ? run->last_bytes : full,
                 .stream = run->stream},
    };
    if (s && rng_chance(&d->rng, s->config.forge_ppm)) duo_stream_forge(d, s, &f);
    if (run->type == HARP_PACKET_PROBE)
      harp_packet_encode_probe(at, &f, run->number + i, keys->tx_seed);
    else
      harp_packet_encode_data(at, &f, run->number + i, keys->tx_seed, run->data + (size_t)i * full);
    sf->last_bytes =
        harp_session_seal(&e->session, at, HARP_DATA_HEADER_BYTES + f.data.length, run->number + i);
  }
  if (run->type == HARP_PACKET_PROBE)
    d->probe_packets++;
  else
    d->data_packets += run->count;
}

/* Returns whether an acknowledgement that waits may go at the end of the superframe. */
static bool may_ride(const struct duo *d, const struct duo_end *e, const struct superframe *sf) {
  return d->config.ride && e->receiver && sf->count_max > 1 && e->receiver->waiting >> sf->path & 1;
}

static void let_ride(struct duo *d, struct duo_end *e, struct superframe *sf) {
  struct harp_packet ack;
  uint64_t number;
  uint32_t room = may_follow(d, sf, 0) ? sf->segment_bytes : 0;
  if (!harp_receiver_ride_ack(e->receiver, sf->path, room, &ack, &number, d->now)) return;
  if (ack.path != sf->path) duo_fail(d, "an acknowledgement of another path rides");
  add_ack(d, e, sf, &ack, number);
  if (sf->last_bytes > room) duo_fail(d, "an acknowledgement of %u bytes, room for %u", sf->last_bytes, room);
  e->rides++;
}

/* Builds one superframe of what was chosen and hands it to the network. */
static void send_superframe(struct duo *d, struct duo_end *e, struct harp_tx_choice choice) {
  static struct superframe sf;
  const struct harp_path *p = &e->sender->paths[choice.path];
  struct harp_tx_run run;
  sf.path = choice.path;
  uint32_t headers = HARP_DATA_HEADER_BYTES + harp_session_mac_bytes(&e->session);
  sf.segment_bytes = sf.last_bytes = headers + choice.bytes;
  sf.count = 0;
  sf.count_max = HARP_MIN(d->config.superframe_packets, DATAGRAM_MAX / sf.segment_bytes);
  bool rides = may_ride(d, e, &sf), fills = false;
  sf.count_max -= rides;
  do {
    bool probing = choice.kind == HARP_TX_PROBE;
    uint32_t lines = p->size.lines, room = sf.count_max - sf.count;
    harp_sender_take(e->sender, &choice, room, &run, d->now);
    uint32_t largest = run.count > 1 ? run.lines_per_packet * HARP_LINE_BYTES : run.last_bytes;
    if (choice.bytes != largest) duo_fail(d, "%u bytes were chosen, %u taken", choice.bytes, largest);
    if (!(d->steps % HARP_MAX(CHECK_TAKES, d->check_steps))) harp_sender_check(e->sender);
    check_run(d, e, &run, p, probing);
    if (p->size.lines != lines) duo_fail(d, "the packet size changed within a superframe");
    if (run.type == HARP_PACKET_PROBE && sf.count) duo_fail(d, "a probe in mid-superframe");
    if (sf.count && run.ect != sf.ect) duo_fail(d, "a superframe of packets with and without ECT");
    sf.ect = run.ect;
    if (run.count > room) duo_fail(d, "%u packets where %u were requested", run.count, room);
    add_run(d, e, &sf, &run);
    if (run.type == HARP_PACKET_PROBE) break;
    fills = !probing;
    choice = harp_sender_choose_more(e->sender, choice.path, d->now);
  } while (choice.kind != HARP_TX_NOTHING && may_follow(d, &sf, headers + choice.bytes));
  if (fills) duo_window_check(d, e, p); /* what is in flight only grew since the first run */
  sf.count_max += rides;
  if (rides) let_ride(d, e, &sf);
  submit(d, e, &sf);
}

harp_ns duo_send_data(struct duo *d, struct duo_end *e) {
  for (unsigned polls = 0;; polls++) {
    struct harp_tx_choice choice = harp_sender_choose(e->sender, d->now);
    if (choice.kind == HARP_TX_NOTHING) {
      if (choice.deadline_ns <= d->now) duo_fail(d, "%s: the sender's deadline stays due", e->name);
      return choice.deadline_ns;
    }
    if (polls > POLLS_MAX) duo_fail(d, "endless sending");
    if (duo_tcp_is(d, choice.path)) {
      duo_tcp_send(d, e, &choice);
      continue;
    }
    if (lacks_frame(d, e)) return d->now;
    send_superframe(d, e, choice);
  }
}

/* Answers requests at once, or not, as drawn: an inline engine does when NCCL waits for nothing. */
static void maybe_answer(struct duo *d, struct duo_end *e) {
  if (!rng_chance(&d->rng, d->config.prompt_ppm)) return;
  e->prompts += e->receiver->is_requested;
  harp_receiver_ack_requested(e->receiver, d->now);
}

harp_ns duo_send_acks(struct duo *d, struct duo_end *e) {
  static struct superframe sf;
  struct harp_packet ack;
  uint64_t number, held = 0; /* paths whose acknowledgements nothing takes now */
  int path;
  maybe_answer(d, e);
  harp_ns repeat_ns = duo_tcp_repeat_acks(d, e);
  for (unsigned polls = 0; (path = harp_receiver_next_ack(e->receiver, held, d->now)) >= 0; polls++) {
    int over = duo_tcp_path_of_ack(d, e, (unsigned)path);
    if (over < 0) {
      held |= 1ull << path;
      continue;
    }
    bool is_tcp = duo_tcp_is(d, (unsigned)over);
    if (!is_tcp && lacks_frame(d, e)) return d->now;
    harp_receiver_take_ack(e->receiver, (unsigned)path, &ack, &number, d->now);
    if (ack.path != path) duo_fail(d, "an acknowledgement of another path");
    if (over != path) harp_receiver_on_ack_elsewhere(e->receiver, (unsigned)path);
    if (polls > d->config.path_count + d->config.stream_max / HARP_ACK_CREDITS_MAX)
      duo_fail(d, "endless acknowledgements");
    if (is_tcp) {
      ack.token = e->session.keys.tx_token;
      duo_tcp_send_ack(d, e, (unsigned)over, &ack, number);
      continue;
    }
    sf.path = (unsigned)over;
    sf.ect = false;
    sf.count = 0;
    sf.count_max = 1;
    sf.segment_bytes = HARP_ACK_MAX_BYTES + HARP_MAC_BYTES;
    add_ack(d, e, &sf, &ack, number);
    e->acks_alone++;
    submit(d, e, &sf);
  }
  harp_ns deadline_ns = harp_receiver_deadline_ns(e->receiver, held);
  if (deadline_ns <= d->now) duo_fail(d, "%s: the receiver's deadline stays due", e->name);
  return HARP_MIN(deadline_ns, repeat_ns);
}
