/* SPDX-License-Identifier: Apache-2.0 */
#include "io/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* The owner of a frame. */
enum owner { POOL, RX_QUEUED, RX_HELD, TX_BUILD, TX_RING, TX_DONE };

enum { SEGMENTS_FRAMED = 16 }; /* frames of one framed superframe; consecutive */

struct harp_io_route {
  struct sockaddr_storage to;
  unsigned port;
};

struct sim {
  struct harp_io io;
  struct harp_io_sim_config config;
  uint8_t owner[HARP_SIM_FRAMES];
  uint32_t frame_bytes[HARP_SIM_FRAMES]; /* the bytes of the datagram in each frame */
  struct harp_io_route *frame_route[HARP_SIM_FRAMES];
  bool frame_ecn[HARP_SIM_FRAMES]; /* to be sent: it is ECN-capable; received: it is marked as CE */
  uint32_t queue[HARP_SIM_QUEUE];  /* the queue of received frames */
  uint32_t queue_head, queue_tail;
  unsigned refuse;
  bool hold_completions;
  uint8_t *memory;
};

static struct sim *sim_of(struct harp_io *io) {
  return HARP_CONTAINER_OF(io, struct sim, io);
}

static uint8_t *frame_at(const struct sim *s, uint32_t f) {
  return s->memory + (size_t)f * HARP_SIM_FRAME_BYTES;
}

static void change_owner(struct sim *s, uint32_t f, enum owner from, enum owner to) {
  HARP_ASSERT(f < HARP_SIM_FRAMES && s->owner[f] == from);
  s->owner[f] = (uint8_t)to;
}

/* Finds `count` consecutive frames in the pool; HARP_SIM_FRAMES if there are none. */
static uint32_t find_frames(const struct sim *s, uint32_t count) {
  uint32_t run = 0;
  for (uint32_t f = 0; f < HARP_SIM_FRAMES; f++) {
    run = s->owner[f] == POOL ? run + 1 : 0;
    if (run == count) return f + 1 - count;
  }
  return HARP_SIM_FRAMES;
}

static const struct harp_io_ops sim_ops;

struct harp_io *harp_io_sim_open(const struct harp_io_sim_config *config) {
  struct sim *s = calloc(1, sizeof *s);
  HARP_ASSERT(s && !(config->framed && config->gather) && config->port_count >= 1 &&
              config->port_count <= HARP_IO_PORTS_MAX);
  s->memory = calloc(HARP_SIM_FRAMES, HARP_SIM_FRAME_BYTES);
  HARP_ASSERT(s->memory);
  s->config = *config;
  s->io.ops = &sim_ops;
  s->io.info = (struct harp_io_info){
      .mode = config->framed ? "sim framed" : "sim packed",
      .segments_max = config->framed ? SEGMENTS_FRAMED : HARP_SEGMENTS_MAX,
      .gather = config->gather,
      .rx_batch = HARP_RX_BATCH_MAX,
      .buffer_bytes = HARP_SIM_QUEUE * 1500,
      .port_count = config->port_count,
  };
  for (unsigned i = 0; i < config->port_count; i++) s->io.info.ports[i] = (uint16_t)(config->first_port + i);
  return &s->io;
}

static void sim_close(struct harp_io *io) {
  struct sim *s = sim_of(io);
  free(s->memory);
  free(s);
}

static struct harp_io_route *sim_route_open(struct harp_io *io, unsigned port,
                                            const struct sockaddr_storage *peer, int traffic_class) {
  struct harp_io_route *r = malloc(sizeof *r);
  (void)io, (void)traffic_class;
  if (r) *r = (struct harp_io_route){*peer, port};
  return r;
}

static bool sim_route_has_own_buffer(struct harp_io *io, const struct harp_io_route *route) {
  (void)io, (void)route;
  return false;
}

static bool sim_route_doubt(struct harp_io *io, struct harp_io_route *route) {
  (void)io, (void)route;
  return false;
}

static void sim_route_close(struct harp_io *io, struct harp_io_route *route) {
  struct sim *s = sim_of(io);
  for (uint32_t f = 0; f < HARP_SIM_FRAMES; f++) {
    if (s->frame_route[f] == route) s->frame_route[f] = NULL;
  }
  free(route);
}

/* ---- sending ---- */

/* A packed superframe takes as many consecutive frames as its bytes need, a framed one a frame a segment. */
static bool sim_tx_take(struct harp_io *io, struct harp_io_route *route, uint32_t segment_bytes,
                        struct harp_tx_superframe *sf) {
  struct sim *s = sim_of(io);
  uint32_t most = s->config.framed ? SEGMENTS_FRAMED : HARP_SUPERFRAME_MAX_BYTES / segment_bytes;
  most = HARP_MIN(most, io->info.segments_max);
  uint32_t frames =
      s->config.framed ? most : (most * segment_bytes + HARP_SIM_FRAME_BYTES - 1) / HARP_SIM_FRAME_BYTES;
  uint32_t first = find_frames(s, frames);
  if (first == HARP_SIM_FRAMES) return false;
  for (uint32_t i = 0; i < frames; i++) change_owner(s, first + i, POOL, TX_BUILD);
  sf->route = route;
  sf->base = frame_at(s, first);
  sf->segment_bytes = segment_bytes;
  sf->stride = s->config.framed ? HARP_SIM_FRAME_BYTES : segment_bytes;
  sf->count = sf->last_bytes = 0;
  sf->count_max = most;
  sf->gather = sf->ect = false;
  sf->frame = first << 16 | frames;
  return true;
}

static void return_frames(struct sim *s, const struct harp_tx_superframe *sf, uint32_t from) {
  uint32_t first = sf->frame >> 16, frames = sf->frame & 0xffff;
  for (uint32_t i = from; i < frames; i++) change_owner(s, first + i, TX_BUILD, POOL);
}

static void sim_tx_give_back(struct harp_io *io, struct harp_tx_superframe *sf) {
  return_frames(sim_of(io), sf, 0);
}

/* Returns segment i of a packed superframe in one piece; `room` holds it where it has to be put together. */
static const uint8_t *segment_at(const struct harp_tx_superframe *sf, uint32_t i, uint32_t bytes,
                                 uint8_t room[HARP_SIM_FRAME_BYTES]) {
  const uint8_t *at = sf->base + (size_t)i * sf->stride;
  if (!sf->gather) return at;
  HARP_ASSERT(sf->head_bytes + sf->payload_bytes[i] == bytes && bytes <= HARP_SIM_FRAME_BYTES);
  memcpy(room, at, sf->head_bytes);
  memcpy(room + sf->head_bytes, sf->payload[i], sf->payload_bytes[i]);
  return room;
}

static int sim_tx_submit(struct harp_io *io, struct harp_tx_superframe *sf) {
  struct sim *s = sim_of(io);
  HARP_ASSERT(sf->count >= 1 && sf->count <= sf->count_max && sf->last_bytes <= sf->segment_bytes);
  if (s->refuse) {
    s->refuse--;
    s->config.counters->tx_busy++;
    return_frames(s, sf, 0);
    return -EAGAIN;
  }
  uint32_t first = sf->frame >> 16;
  uint8_t room[HARP_SIM_FRAME_BYTES];
  for (uint32_t i = 0; i < sf->count; i++) {
    uint32_t bytes = i + 1 == sf->count ? sf->last_bytes : sf->segment_bytes;
    if (s->config.framed) { /* leaves with tx_flush */
      change_owner(s, first + i, TX_BUILD, TX_RING);
      s->frame_bytes[first + i] = bytes;
      s->frame_route[first + i] = sf->route;
      s->frame_ecn[first + i] = sf->ect;
    } else {
      s->config.send(s->config.wire, sf->route->port, &sf->route->to, segment_at(sf, i, bytes, room), bytes,
                     sf->ect);
    }
  }
  return_frames(s, sf, s->config.framed ? sf->count : 0);
  return 0;
}

static void sim_tx_flush(struct harp_io *io) {
  struct sim *s = sim_of(io);
  for (uint32_t f = 0; f < HARP_SIM_FRAMES; f++) {
    if (s->owner[f] != TX_RING) continue;
    if (s->frame_route[f])
      s->config.send(s->config.wire, s->frame_route[f]->port, &s->frame_route[f]->to, frame_at(s, f),
                     s->frame_bytes[f], s->frame_ecn[f]);
    change_owner(s, f, TX_RING, TX_DONE);
  }
}

static unsigned sim_reap(struct harp_io *io) {
  struct sim *s = sim_of(io);
  unsigned n = 0;
  if (s->hold_completions) return 0;
  for (uint32_t f = 0; f < HARP_SIM_FRAMES; f++) {
    if (s->owner[f] != TX_DONE) continue;
    change_owner(s, f, TX_DONE, POOL);
    n++;
  }
  return n;
}

void harp_io_sim_refuse(struct harp_io *io, unsigned count) {
  sim_of(io)->refuse = count;
}

void harp_io_sim_hold_completions(struct harp_io *io, bool hold) {
  sim_of(io)->hold_completions = hold;
}

/* ---- receiving ---- */

bool harp_io_sim_deliver(struct harp_io *io, const uint8_t *data, uint32_t bytes, bool ce) {
  struct sim *s = sim_of(io);
  uint32_t f = HARP_SIM_FRAMES;
  /* The search begins at the top, so that runs for sending stay whole at the bottom. */
  while (f-- > 0 && s->owner[f] != POOL) {
  }
  if (f == UINT32_MAX || s->queue_tail - s->queue_head == HARP_SIM_QUEUE || bytes > HARP_SIM_FRAME_BYTES)
    return false;
  memcpy(frame_at(s, f), data, bytes);
  s->frame_bytes[f] = bytes;
  s->frame_ecn[f] = ce;
  change_owner(s, f, POOL, RX_QUEUED);
  s->queue[s->queue_tail++ % HARP_SIM_QUEUE] = f;
  return true;
}

static unsigned sim_rx(struct harp_io *io, struct harp_rx_superframe *out, unsigned max) {
  struct sim *s = sim_of(io);
  unsigned n = 0;
  for (; n < max && s->queue_head != s->queue_tail; n++) {
    uint32_t f = s->queue[s->queue_head++ % HARP_SIM_QUEUE];
    change_owner(s, f, RX_QUEUED, RX_HELD);
    out[n] = (struct harp_rx_superframe){.data = frame_at(s, f),
                                         .bytes = s->frame_bytes[f],
                                         .segment_bytes = s->frame_bytes[f],
                                         .frame = f,
                                         .ce = s->frame_ecn[f]};
  }
  return n;
}

static void sim_rx_release(struct harp_io *io, const struct harp_rx_superframe *held, unsigned count) {
  for (unsigned i = 0; i < count; i++) change_owner(sim_of(io), held[i].frame, RX_HELD, POOL);
}

static unsigned sim_fds(struct harp_io *io, struct pollfd *fds) {
  (void)io, (void)fds;
  return 0;
}

static size_t sim_frames_bytes(const struct harp_io_config *config) {
  (void)config;
  return 0;
}

void harp_io_sim_check(const struct harp_io *io) {
  const struct sim *s = HARP_CONTAINER_OF(io, const struct sim, io);
  uint32_t queued = 0;
  for (uint32_t f = 0; f < HARP_SIM_FRAMES; f++) {
    queued += s->owner[f] == RX_QUEUED;
    /* Between passes the engine holds none. */
    HARP_ASSERT(s->owner[f] != RX_HELD && s->owner[f] != TX_BUILD);
  }
  HARP_ASSERT(queued == s->queue_tail - s->queue_head);
}

static const struct harp_io_ops sim_ops = {
    .name = "sim",
    .frames_bytes = sim_frames_bytes,
    .open = NULL, /* harp_io_sim_open: it needs a wire */
    .close = sim_close,
    .route_open = sim_route_open,
    .route_close = sim_route_close,
    .route_has_own_buffer = sim_route_has_own_buffer,
    .route_doubt = sim_route_doubt,
    .tx_take = sim_tx_take,
    .tx_give_back = sim_tx_give_back,
    .tx_submit = sim_tx_submit,
    .tx_flush = sim_tx_flush,
    .reap = sim_reap,
    .rx = sim_rx,
    .rx_release = sim_rx_release,
    .fds = sim_fds,
};
