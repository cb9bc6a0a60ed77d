/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/socket.h"

#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MIN_NS HARP_MS(200)
#define PROBE_MIN_NS   HARP_MS(2)   /* two ticks of a kernel with 1000 a second */
#define BELOW_NS       HARP_MS(1)   /* a socket's data in its host's queue: for so long by its rate, or */
#define HALVING_NS     HARP_US(512) /* superframes are half as long for each so much of the least RTT */
enum {
  ACK_EVERY = 2,
  ROOM_MIN = 16,
  TIMEOUT_SHIFT_MAX = 6,
  SUPERFRAME_BYTES = 64 << 10,
  SUPERFRAMES_BELOW = 2
};

/* ---- rings ---- */

static void *grown(void *ring, uint32_t *room, uint32_t *head, uint32_t count, size_t bytes) {
  uint32_t larger_room = *room ? 2 * *room : ROOM_MIN;
  char *larger = malloc(larger_room * bytes);
  if (!larger) abort();
  for (uint32_t i = 0; i < count; i++)
    memcpy(larger + i * bytes, (char *)ring + ((*head + i) & (*room - 1)) * bytes, bytes);
  free(ring);
  *room = larger_room;
  *head = 0;
  return larger;
}

static void push_flight(struct socket *s, const struct segment *one) {
  if (s->flight_count == s->flight_room)
    s->flight = grown(s->flight, &s->flight_room, &s->flight_head, s->flight_count, sizeof *one);
  s->flight[(s->flight_head + s->flight_count++) & (s->flight_room - 1)] = *one;
}

static struct segment *flight_at(const struct socket *s, uint32_t i) {
  return &s->flight[(s->flight_head + i) & (s->flight_room - 1)];
}

static void push_again(struct socket *s, uint64_t segment) {
  if (s->again_count == s->again_room)
    s->again = grown(s->again, &s->again_room, &s->again_head, s->again_count, sizeof segment);
  s->again[(s->again_head + s->again_count++) & (s->again_room - 1)] = segment;
}

/* ---- the sending end ---- */

static harp_ns wait_ns(const struct socket *s) {
  harp_ns probe_ns = HARP_MAX(2 * s->window.srtt_ns, PROBE_MIN_NS);
  if (s->timeouts == 0 && s->window.srtt_ns) return probe_ns;
  unsigned shift = HARP_MIN(s->timeouts ? s->timeouts - 1 : 0, (unsigned)TIMEOUT_SHIFT_MAX);
  return HARP_MAX(probe_ns, TIMEOUT_MIN_NS << shift);
}

static void set_timer(struct socket *s, harp_ns now) {
  agenda_set(s->agenda, &s->timer, s->flight_count ? now + wait_ns(s) : HARP_NEVER);
}

/* Returns how many segments may be in the host's queue (tcp_small_queue_check, tcp_tso_autosize of Linux). */
static uint32_t below_max(const struct socket *s) {
  const struct cubic_window *w = &s->window;
  double gain = w->cwnd < w->ssthresh / 2 ? 2 : 1.2;
  double at_rate = w->srtt_ns ? gain * w->cwnd * BELOW_NS / (double)w->srtt_ns : 0;
  unsigned shift = (unsigned)HARP_MIN(s->rtt_min_ns / HALVING_NS, (harp_ns)31);
  double most = (double)(SUPERFRAME_BYTES / s->segment_bytes);
  double superframe = HARP_MIN(at_rate + (double)((SUPERFRAME_BYTES >> shift) / s->segment_bytes), most);
  return (uint32_t)HARP_MAX(at_rate, SUPERFRAMES_BELOW * HARP_MAX(superframe, 2.0));
}

/* Returns when the host's queue takes another segment; a time that has come: now. */
static harp_ns room_ns(const struct socket *s) {
  uint32_t most = below_max(s);
  return s->flight_count < most ? 0 : flight_at(s, s->flight_count - most)->left_ns;
}

static void send_segment(struct socket *s, uint64_t number, harp_ns now) {
  struct segment one = {.number = number, .order = s->order++, .sent_ns = now};
  push_flight(s, &one);
  s->sent++;
  struct parcel p = {.number = number, .bytes = s->segment_bytes + CUBIC_HEADERS_BYTES, .order = one.order};
  trip_start(&s->there.trip, &p, now);
  flight_at(s, s->flight_count - 1)->left_ns = p.at_ns;
}

static void send_what_fits(struct socket *s, harp_ns now) {
  bool was_idle = !s->flight_count;
  while ((double)(s->flight_count + 1) <= s->window.cwnd) {
    harp_ns at = room_ns(s);
    if (at > now) {
      agenda_set(s->agenda, &s->room, at);
      break;
    }
    if (s->again_count) {
      uint64_t number = s->again[s->again_head & (s->again_room - 1)];
      s->again_head++;
      s->again_count--;
      send_segment(s, number, now);
    } else if (s->next < s->end && s->next < s->received + SOCKET_WINDOW_SEGMENTS_MAX) {
      send_segment(s, s->next++, now);
    } else {
      break;
    }
  }
  if (was_idle) set_timer(s, now);
}

/* Returns whether the window is in use. */
static bool is_limited(const struct socket *s) {
  double flight = (double)s->flight_count, cwnd = s->window.cwnd;
  return cwnd < s->window.ssthresh ? cwnd < 2 * flight : cwnd < flight + 1;
}

/* All sendings up to `order` have been settled: the route keeps their order. */
static void settle_flight(struct socket *s, uint64_t order, harp_ns now) {
  bool may_grow = is_limited(s);
  while (s->flight_count && flight_at(s, 0)->order <= order) {
    struct segment one = *flight_at(s, 0);
    s->flight_head++;
    s->flight_count--;
    if (one.is_dropped) {
      cubic_window_on_loss(&s->window, one.sent_ns, now);
      push_again(s, one.number);
    } else {
      harp_ns rtt_ns = now - one.sent_ns;
      s->rtt_min_ns = s->rtt_min_ns ? HARP_MIN(s->rtt_min_ns, rtt_ns) : rtt_ns;
      cubic_window_on_ack(&s->window, rtt_ns, may_grow, now);
    }
  }
}

static void on_acks(struct source *source, harp_ns now) {
  struct socket *s = HARP_CONTAINER_OF(source, struct socket, acks.source);
  for (struct parcel p; lane_take(&s->acks, &p, now);) {
    s->timeouts = 0;
    settle_flight(s, p.order, now);
  }
  send_what_fits(s, now);
  set_timer(s, now);
}

static void on_room(struct source *source, harp_ns now) {
  send_what_fits(HARP_CONTAINER_OF(source, struct socket, room), now);
}

/* First the last segment once more, so that its acknowledgement tells what is lost; then all that is under
 * way counts as lost and the window begins anew. */
static void on_timer(struct source *source, harp_ns now) {
  struct socket *s = HARP_CONTAINER_OF(source, struct socket, timer);
  if (s->timeouts++ == 0 && s->window.srtt_ns) {
    send_segment(s, flight_at(s, s->flight_count - 1)->number, now);
  } else {
    uint32_t count = s->flight_count;
    cubic_window_on_loss(&s->window, now, now);
    s->window.cwnd = 1;
    for (uint32_t i = 0; i < count; i++) push_again(s, flight_at(s, i)->number);
    s->flight_count = 0;
    send_what_fits(s, now);
  }
  set_timer(s, now);
}

static void lose_segment(struct trip *t, const struct parcel *p) {
  struct socket *s = HARP_CONTAINER_OF(t, struct socket_trip, trip)->socket;
  s->lost++;
  if (!s->flight_count || p->order < flight_at(s, 0)->order) return; /* given up by a timeout */
  flight_at(s, (uint32_t)(p->order - flight_at(s, 0)->order))->is_dropped = true;
}

static void lose_ack(struct trip *t, const struct parcel *p) {
  (void)t;
  (void)p;
}

/* ---- the receiving end ---- */

static bool take_bit(struct socket *s, uint64_t number) {
  uint64_t *word = &s->bits[number % SOCKET_WINDOW_SEGMENTS_MAX / 64], bit = 1ull << number % 64;
  bool was = *word & bit;
  *word &= ~bit;
  return was;
}

static void set_bit(struct socket *s, uint64_t number) {
  s->bits[number % SOCKET_WINDOW_SEGMENTS_MAX / 64] |= 1ull << number % 64;
}

static void acknowledge(struct socket *s, harp_ns now) {
  struct parcel p = {.bytes = CUBIC_HEADERS_BYTES, .order = s->last_order};
  s->unacked = 0;
  trip_start(&s->back.trip, &p, now);
}

static void on_data(struct source *source, harp_ns now) {
  struct socket *s = HARP_CONTAINER_OF(source, struct socket, data.source);
  uint64_t before = s->received;
  bool is_urgent = false;
  for (struct parcel p; lane_take(&s->data, &p, now);) {
    s->last_order = p.order;
    s->unacked++;
    is_urgent |= p.number != s->received || p.number + 1 == s->end;
    if (p.number >= s->received) set_bit(s, p.number);
    while (take_bit(s, s->received)) s->received++;
  }
  is_urgent |= s->window.cwnd < 2 * ACK_EVERY; /* a small window waits for no second segment */
  if (is_urgent || s->unacked >= ACK_EVERY) acknowledge(s, now);
  if (s->received != before) s->on_progress(s, now);
}

/* ---- life ---- */

void socket_init(struct socket *s, struct agenda *a, uint32_t segment_bytes, uint64_t seed) {
  *s = (struct socket){.agenda = a, .segment_bytes = segment_bytes, .seed = seed};
  cubic_window_init(&s->window, false);
  lane_init(&s->data, a, on_data);
  lane_init(&s->acks, a, on_acks);
  source_init(&s->timer, on_timer);
  source_init(&s->room, on_room);
  s->there = (struct socket_trip){.trip = {.to = &s->data, .lose = lose_segment}, .socket = s};
  s->back = (struct socket_trip){.trip = {.to = &s->acks, .lose = lose_ack}, .socket = s};
}

void socket_fini(struct socket *s) {
  lane_fini(&s->data);
  lane_fini(&s->acks);
  free(s->flight);
  free(s->again);
}

void socket_write(struct socket *s, uint64_t segments, harp_ns now) {
  s->end += segments;
  send_what_fits(s, now);
}
