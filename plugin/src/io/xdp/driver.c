/* SPDX-License-Identifier: Apache-2.0 */
/* The AF_XDP driver: packets go between UMEM frames and NIC queues and bypass the kernel's stack.
 *
 * It is a fast path over the udp driver, which it opens first, on the same ports. So an ordinary socket holds
 * every port; packets on queues of others are received through it; a route whose next hop is not resolved yet
 * sends through it, and the kernel resolves it; and when a queue fails (reset, lost completions, invalid
 * descriptors) the driver falls back to the sockets for good, without an effect on connections.
 *
 * modes.h opens the queues; the mode, and the reasons against better ones, are in info. tx_submit puts
 * packets into the tx ring, tx_flush publishes them to the kernel. A packet that spans several receive frames
 * (jumbo MTU) is copied into a slot. Health is checked in reap, every CHECK_NS; next hops by hops.h. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/shortage.h"
#include "io/ecn.h"
#include "io/ready.h"
#include "io/udp.h"
#include "io/xdp/header.h"
#include "io/xdp/health.h"
#include "io/xdp/hops.h"
#include "io/xdp/modes.h"

enum {
  SLOT_BYTES = 12288,
  REFILL_MIN = 64,        /* frames at a time, which saves transfers of the fill ring's cache line */
  INNER_FRAME = 1u << 31, /* in a frame number: the udp driver's */
  SLOT_FRAME = 1u << 30,  /* in a frame number: a slot's */
  QUEUE_SHIFT = 24,       /* in a frame number: the queue's index is above it */
};
#define CHECK_NS HARP_MS(50)
#define RETRY_NS HARP_MS(1) /* after the kernel had no memory for a queue's packets */

struct harp_io_route {
  struct harp_io_route *next;
  struct harp_io_route *inner;
  unsigned queue;                      /* index modulo the open queues: where it sends */
  struct sockaddr_storage local, peer; /* with their ports */
  int traffic_class;
  struct harp_xdp_hop *hop;
  unsigned hop_version;                      /* the version of the hop that the headers have */
  bool is_doubted;                           /* what AF_XDP sent on it reached nobody */
  bool is_fast;                              /* the headers are valid; else the udp driver sends */
  struct harp_xdp_header header, header_ect; /* the headers of packets without ECN, and with it */
};

struct xdp {
  struct harp_io io;
  struct harp_io *inner; /* the udp driver */
  struct harp_counters *counters;
  struct harp_xdp_nic nic; /* without open queues `inner` sends and receives everything */
  struct harp_io_route *routes;
  uint8_t *slots;
  struct harp_xdp_hops hops;
  unsigned next_queue; /* where the next rx starts, for fairness */
  unsigned slots_used;
  harp_ns check_ns;
  struct harp_io_ready *ready; /* the engine's; NULL: it is used alone */
  uint32_t queued;             /* queues with packets for tx_flush, a bit each */
  harp_ns retry_ns;            /* when to flush them again; 0: at each tx_flush */

  uint64_t dropped_counted; /* packets dropped by the program that `counters` includes */
  struct harp_xdp_health sends[HARP_XDP_NIC_QUEUES_MAX]; /* the sends of each queue */
  /* The receives of all queues: the program counts packets by port. */
  struct harp_xdp_health receiving;
};

static struct xdp *xdp_of(struct harp_io *io) {
  return HARP_CONTAINER_OF(io, struct xdp, io);
}

static struct harp_xdp_queue *queue_at(struct xdp *x, unsigned i) {
  return &x->nic.sockets[i].queue;
}

static bool is_open(const struct xdp *x) {
  return harp_xdp_nic_is_open(&x->nic);
}

static size_t slots_bytes(void) {
  return (size_t)HARP_RX_BATCH_MAX * SLOT_BYTES;
}

static size_t xdp_frames_bytes(const struct harp_io_config *config) {
  return harp_xdp_umem_bytes(config->xdp) + slots_bytes() + harp_io_udp.frames_bytes(config);
}

/* ---- open ---- */

static void fill_info(struct xdp *x) {
  struct harp_io_info *info = &x->io.info;
  const struct harp_io_info *inner = &x->inner->info;
  info->segments_max = HARP_XDP_RUN_FRAMES;
  info->rx_batch = HARP_RX_BATCH_MAX;
  info->gather = false;
  /* Half of the frames are for receiving, and packets do not fill them. */
  info->buffer_bytes = (uint32_t)x->nic.umem_bytes / 4;
  info->port_count = inner->port_count;
  memcpy(info->ports, inner->ports, sizeof info->ports);
}

/* Reads the program's counters of our ports; adds dropped packets to the statistics. Returns the number of
 * redirected ones. */
static uint64_t count_packets(struct xdp *x) {
  struct harp_xdp_filter_counts counts = {0};
  for (unsigned i = 0; i < x->nic.port_count; i++)
    harp_xdp_filter_count(&x->nic.filter, &x->nic.local, x->nic.ports[i], &counts);
  if (counts.dropped > x->dropped_counted) {
    x->counters->drops[HARP_DROP_TOKEN] += counts.dropped - x->dropped_counted;
    x->dropped_counted = counts.dropped;
  }
  return counts.redirected;
}

static void close_nic(struct xdp *x) {
  (void)count_packets(x);
  harp_xdp_nic_close(&x->nic);
}

static void xdp_close(struct harp_io *io) {
  struct xdp *x = xdp_of(io);
  if (is_open(x)) close_nic(x);
  harp_xdp_hops_close(&x->hops);
  if (x->inner) x->inner->ops->close(x->inner);
  free(x);
}

/* Opens the NIC's queues for the ports of the udp driver. */
static int open_nic(struct xdp *x, const struct harp_io_config *config, size_t umem_bytes) {
  const struct harp_io_info *inner = &x->inner->info;
  x->nic = (struct harp_xdp_nic){
      .ifindex = config->ifindex,
      .local = *config->addr,
      .port_count = inner->port_count,
      .token_prefix = config->xdp->token_prefix,
      .umem = config->frames,
      .umem_bytes = umem_bytes,
  };
  memcpy(x->nic.mac, config->xdp->mac, sizeof x->nic.mac);
  memcpy(x->nic.ports, inner->ports, sizeof inner->ports);
  return harp_xdp_open_best(&x->nic, config->xdp, &x->io.info);
}

/* Replaces x by the udp driver alone, with the reason in its info. Reopens it with `port_count` ports if it
 * has others: alone it receives on the first only. Closes x in every case. */
static int open_inner_alone(struct harp_io **io, struct xdp *x, struct harp_io_config *inner,
                            unsigned port_count, struct harp_error *error) {
  int err = 0;
  if (inner->port_count != port_count || port_count > 1) {
    if (x->inner) x->inner->ops->close(x->inner);
    x->inner = NULL;
    inner->port_count = port_count;
    inner->is_each_receiving = false;
    err = harp_io_udp.open(&x->inner, inner, error);
  }
  if (!err) {
    *io = x->inner;
    snprintf(x->inner->info.why_not, sizeof x->inner->info.why_not, "%s", x->io.info.why_not);
    x->inner = NULL;
  }
  xdp_close(&x->io);
  return err;
}

static int xdp_open(struct harp_io **io, const struct harp_io_config *config, struct harp_error *error) {
  HARP_ASSERT(config->frames_bytes >= xdp_frames_bytes(config));
  struct xdp *x = calloc(1, sizeof *x);
  if (!x) return harp_shortage_set(error, -ENOMEM, "cannot open the xdp driver");
  const struct harp_io_xdp_config *xdp = config->xdp;
  size_t umem_bytes = harp_xdp_umem_bytes(xdp);
  struct harp_io_config inner = *config;
  inner.frames += umem_bytes + slots_bytes();
  inner.frames_bytes -= umem_bytes + slots_bytes();
  if (xdp->sharer_count > 1 || xdp->process_count > 1) inner.port_count = xdp->shared_port_count;
  inner.is_each_receiving = true; /* traffic shows which port leads to which queue */
  x->io.ops = &harp_io_xdp;
  x->counters = config->counters;
  x->ready = config->ready;
  x->slots = config->frames + umem_bytes;
  x->hops.watch_fd = -1;
  int err = harp_io_udp.open(&x->inner, &inner, error);
  if (err)
    snprintf(x->io.info.why_not, sizeof x->io.info.why_not, "%.*s", (int)sizeof x->io.info.why_not - 1,
             error->text);
  else if ((err = open_nic(x, config, umem_bytes)))
    harp_error_set(error, err, "%s", x->io.info.why_not);
  if (err && xdp->mode == HARP_IO_XDP_AUTO && (x->inner || inner.port_count != config->port_count))
    return open_inner_alone(io, x, &inner, config->port_count, error);
  if (err) {
    xdp_close(&x->io);
    return err;
  }
  /* A lower device merges what any socket wants merged, but never IPv4 packets without a checksum. */
  if (x->nic.is_behind_gro && config->addr->ss_family == AF_INET6) harp_io_udp_stop_merging(x->inner);
  harp_xdp_hops_open(&x->hops, x->nic.ifindex, &x->nic.local, x->nic.mac);
  fill_info(x);
  *io = &x->io;
  return 0;
}

/* ---- falling back ---- */

/* Closes the queues for good; from now on the udp driver sends and receives everything. */
static void fall_back(struct xdp *x, const char *why) {
  HARP_INFO("interface %u, %s: AF_XDP disabled: %s; continuing with %s", x->nic.ifindex, x->io.info.queues,
            why, x->inner->info.mode);
  close_nic(x);
  x->counters->driver_fallbacks++;
  x->queued = 0;
  for (struct harp_io_route *r = x->routes; r; r = r->next) r->is_fast = false;
  x->io.info.mode = x->inner->info.mode;
  x->io.info.gather = x->inner->info.gather;
  x->io.info.rx_batch = x->inner->info.rx_batch;
  x->io.info.buffer_bytes = x->inner->info.buffer_bytes;
  x->io.info.segments_max = x->inner->info.segments_max;
  x->io.info.queues[0] = 0;
  snprintf(x->io.info.why_not, sizeof x->io.info.why_not, "AF_XDP disabled: %s", why);
}

/* Returns the meaning of a permanent error: ENXIO from a socket, ENODEV from netlink. */
static const char *why_lost(int err) {
  return err == -ENETDOWN                  ? "the interface went down"
         : err == -ENXIO || err == -ENODEV ? "the interface is gone"
                                           : strerror(-err);
}

/* Returns the reason to fall back, or NULL. */
static const char *check_health(struct xdp *x) {
  struct harp_xdp_progress receiving = {.redirected = count_packets(x)};
  const char *failed = NULL;
  harp_ns now = harp_clock_ns();
  for (unsigned i = 0; i < x->nic.queue_count; i++) {
    const struct harp_xdp_queue *q = queue_at(x, i);
    struct harp_xdp_progress sent = {.sent = q->tx_frames, .completed = q->tx_completed};
    const char *why = harp_xdp_health_check(&x->sends[i], &sent, now);
    if (why) failed = why;
    receiving.received += q->rx_frames_taken;
  }
  const char *why = harp_xdp_health_check(&x->receiving, &receiving, now);
  return failed ? failed : why;
}

/* ---- routes ---- */

/* Makes the headers of a route from what is known of its next hop. */
static void set_headers(struct xdp *x, struct harp_io_route *r) {
  const struct harp_xdp_hop *hop = r->hop;
  r->hop_version = hop->version;
  r->is_fast = is_open(x) && hop->is_resolved && !r->is_doubted;
  if (!r->is_fast) return;
  harp_xdp_header_init(&r->header, x->hops.mac, hop->mac, &r->local, &r->peer,
                       harp_ecn_traffic_class(r->traffic_class, false));
  harp_xdp_header_init(&r->header_ect, x->hops.mac, hop->mac, &r->local, &r->peer,
                       harp_ecn_traffic_class(r->traffic_class, true));
}

static struct harp_io_route *xdp_route_open(struct harp_io *io, unsigned port,
                                            const struct sockaddr_storage *peer, int traffic_class) {
  struct xdp *x = xdp_of(io);
  struct harp_io_route *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->inner = x->inner->ops->route_open(x->inner, port, peer, traffic_class);
  r->hop = r->inner ? harp_xdp_hops_take(&x->hops, peer) : NULL;
  if (!r->hop) {
    if (r->inner) x->inner->ops->route_close(x->inner, r->inner);
    free(r);
    return NULL;
  }
  r->local = x->nic.local;
  harp_address_set_port(&r->local, io->info.ports[port]);
  r->peer = *peer;
  r->traffic_class = traffic_class;
  r->queue = port;
  r->next = x->routes;
  x->routes = r;
  set_headers(x, r);
  return r;
}

static void xdp_route_close(struct harp_io *io, struct harp_io_route *route) {
  struct xdp *x = xdp_of(io);
  struct harp_io_route **at = &x->routes;
  while (*at != route) at = &(*at)->next;
  *at = route->next;
  x->inner->ops->route_close(x->inner, route->inner);
  harp_xdp_hops_give(&x->hops, route->hop);
  free(route);
}

static bool xdp_route_has_own_buffer(struct harp_io *io, const struct harp_io_route *route) {
  struct xdp *x = xdp_of(io);
  return !is_open(x) && x->inner->ops->route_has_own_buffer(x->inner, route->inner);
}

static bool xdp_route_doubt(struct harp_io *io, struct harp_io_route *route) {
  (void)io;
  if (!route->is_fast) return false;
  route->is_doubted = true;
  route->is_fast = false;
  return true;
}

/* ---- sending ---- */

/* Returns where a packet begins in its first frame, for a payload aligned to a cache line. */
static uint32_t lead_of(const struct harp_xdp_header *h) {
  return 2 * HARP_CACHE_LINE - (h->bytes + HARP_XDP_DATA_HEADER_BYTES);
}

static bool take_inner(struct xdp *x, struct harp_io_route *route, uint32_t segment_bytes,
                       struct harp_tx_superframe *sf) {
  if (!x->inner->ops->tx_take(x->inner, route->inner, segment_bytes, sf)) return false;
  sf->route = route;
  sf->frame |= INNER_FRAME;
  return true;
}

/* Returns the queue by which a route sends. */
static unsigned queue_of_route(const struct xdp *x, const struct harp_io_route *r) {
  return r->queue % x->nic.queue_count;
}

static uint32_t frame_name(unsigned queue, uint32_t frame) {
  return (uint32_t)queue << QUEUE_SHIFT | frame;
}

static struct harp_xdp_queue *queue_of_frame(struct xdp *x, uint32_t name, uint32_t *frame) {
  *frame = name & ((1u << QUEUE_SHIFT) - 1);
  return queue_at(x, name >> QUEUE_SHIFT);
}

static bool xdp_tx_take(struct harp_io *io, struct harp_io_route *route, uint32_t segment_bytes,
                        struct harp_tx_superframe *sf) {
  struct xdp *x = xdp_of(io);
  uint32_t run;
  if (!route->is_fast) return take_inner(x, route, segment_bytes, sf);
  unsigned queue = queue_of_route(x, route);
  if (!harp_xdp_queue_tx_take(queue_at(x, queue), &run)) return false;
  uint32_t lead = lead_of(&route->header);
  uint32_t stride = (uint32_t)harp_align_up(lead + route->header.bytes + segment_bytes, HARP_XDP_FRAME_BYTES);
  sf->route = route;
  sf->base = harp_xdp_queue_run_data(queue_at(x, queue), run) + lead + route->header.bytes;
  sf->stride = stride;
  sf->segment_bytes = segment_bytes;
  sf->last_bytes = sf->count = 0;
  sf->count_max = HARP_XDP_RUN_FRAMES * HARP_XDP_FRAME_BYTES / stride;
  sf->gather = sf->ect = false;
  sf->frame = frame_name(queue, run);
  return true;
}

/* Converts a superframe that the udp driver lent back to the udp driver's. */
static struct harp_tx_superframe *as_inner(struct harp_tx_superframe *sf) {
  sf->frame &= ~INNER_FRAME;
  sf->route = sf->route->inner;
  return sf;
}

static void xdp_tx_give_back(struct harp_io *io, struct harp_tx_superframe *sf) {
  struct xdp *x = xdp_of(io);
  if (sf->frame & INNER_FRAME)
    x->inner->ops->tx_give_back(x->inner, as_inner(sf));
  else if (is_open(x)) {
    uint32_t run;
    struct harp_xdp_queue *q = queue_of_frame(x, sf->frame, &run);
    harp_xdp_queue_tx_give_back(q, run);
  }
}

/* Sends a superframe that was built in the queue's frames through a socket, when the route has no next hop
 * any more. */
static int submit_through_inner(struct xdp *x, struct harp_tx_superframe *sf) {
  struct harp_tx_superframe copy;
  if (!x->inner->ops->tx_take(x->inner, sf->route->inner, sf->segment_bytes, &copy)) return -EAGAIN;
  copy.count = HARP_MIN(sf->count, copy.count_max);
  copy.ect = sf->ect;
  for (uint32_t i = 0; i < copy.count; i++) {
    uint32_t bytes = i + 1 == sf->count ? sf->last_bytes : sf->segment_bytes;
    memcpy(copy.base + (size_t)i * copy.stride, sf->base + (size_t)i * sf->stride, bytes);
    copy.last_bytes = bytes;
  }
  return x->inner->ops->tx_submit(x->inner, &copy);
}

static int submit_fast(struct xdp *x, struct harp_tx_superframe *sf) {
  const struct harp_xdp_header *h = sf->ect ? &sf->route->header_ect : &sf->route->header;
  uint32_t bytes[HARP_XDP_RUN_FRAMES], run;
  struct harp_xdp_queue *q = queue_of_frame(x, sf->frame, &run);
  for (uint32_t i = 0; i < sf->count; i++) {
    uint32_t payload = i + 1 == sf->count ? sf->last_bytes : sf->segment_bytes;
    harp_xdp_header_write(h, sf->base + (size_t)i * sf->stride, payload);
    bytes[i] = h->bytes + payload;
  }
  uint32_t lead = lead_of(h);
  if (!harp_xdp_queue_tx_put(q, run, sf->count, sf->stride, lead, bytes)) return -EAGAIN;
  x->queued |= 1u << (sf->frame >> QUEUE_SHIFT);
  return 0;
}

static int xdp_tx_submit(struct harp_io *io, struct harp_tx_superframe *sf) {
  struct xdp *x = xdp_of(io);
  int err;
  HARP_ASSERT(sf->count >= 1 && sf->count <= sf->count_max && sf->last_bytes <= sf->segment_bytes);
  if (sf->frame & INNER_FRAME) return x->inner->ops->tx_submit(x->inner, as_inner(sf));
  if (harp_likely(is_open(x) && sf->route->is_fast)) {
    err = submit_fast(x, sf);
  } else {
    err = submit_through_inner(x, sf);
    xdp_tx_give_back(io, sf);
  }
  if (harp_unlikely(err)) x->counters->tx_busy++;
  return err;
}

static void xdp_tx_flush(struct harp_io *io) {
  struct xdp *x = xdp_of(io);
  uint32_t bits = x->queued;
  x->inner->ops->tx_flush(x->inner);
  if (harp_unlikely(x->retry_ns) && harp_clock_ns() < x->retry_ns) return;
  x->queued = 0;
  x->retry_ns = 0;
  for (; bits && is_open(x); bits &= bits - 1) {
    unsigned queue = (unsigned)__builtin_ctz(bits);
    int err = harp_xdp_queue_tx_flush(queue_at(x, queue));
    /* The error is not permanent: the kernel continues at the next flush, or when completions make room. */
    if (err == -EAGAIN || err == -EBUSY || err == -ENOBUFS)
      x->queued |= 1u << queue;
    else if (err)
      fall_back(x, why_lost(err));
    if (harp_unlikely(err == -ENOBUFS)) x->retry_ns = harp_clock_ns() + RETRY_NS;
  }
}

static void update_hops(struct xdp *x, harp_ns now) {
  if (harp_likely(!harp_xdp_hops_on_time(&x->hops, now))) return;
  for (struct harp_io_route *r = x->routes; r; r = r->next)
    if (r->hop_version != r->hop->version) set_headers(x, r);
}

static unsigned xdp_reap(struct harp_io *io) {
  struct xdp *x = xdp_of(io);
  unsigned back = 0;
  for (unsigned i = 0; i < x->nic.queue_count; i++) {
    struct harp_xdp_queue *q = queue_at(x, i);
    back += harp_xdp_queue_reap(q);
    if (harp_unlikely(q->broken != NULL)) fall_back(x, q->broken);
  }
  if (!is_open(x)) return back;
  harp_ns now = harp_clock_ns();
  update_hops(x, now);
  if (now < x->check_ns) return back;
  x->check_ns = now + CHECK_NS;
  if (x->hops.is_gone) {
    fall_back(x, why_lost(-ENODEV));
    return back;
  }
  for (unsigned i = 0; i < x->nic.queue_count; i++) harp_xdp_queue_wake(queue_at(x, i));
  const char *failed = check_health(x);
  if (failed) fall_back(x, failed);
  return back;
}

/* ---- receiving ---- */

/* Copies the pieces of a packet into a slot; false when it is too long, or no slot is free. */
static bool gather_pieces(struct xdp *x, const struct harp_xdp_received *packet, uint8_t **data) {
  if (packet->bytes > SLOT_BYTES || x->slots_used == HARP_RX_BATCH_MAX) return false;
  uint8_t *to = *data = x->slots + (size_t)x->slots_used++ * SLOT_BYTES;
  for (uint32_t i = 0; i < packet->piece_count; i++) {
    memcpy(to, packet->data[i], packet->piece_bytes[i]);
    to += packet->piece_bytes[i];
  }
  return true;
}

static void release_pieces(struct harp_xdp_queue *q, const struct harp_xdp_received *packet) {
  for (uint32_t i = 0; i < packet->piece_count; i++) harp_xdp_queue_rx_release(q, packet->frames[i]);
}

/* Makes a superframe of one received packet; false when its headers are invalid or it fits no slot. */
static bool unwrap_packet(struct xdp *x, unsigned queue, const struct harp_xdp_received *packet,
                          struct harp_rx_superframe *out) {
  uint32_t bytes;
  uint32_t at = harp_xdp_header_read(packet->data[0], packet->piece_bytes[0], packet->bytes, &bytes);
  uint8_t *data;
  if (!at || !bytes) return false;
  *out = (struct harp_rx_superframe){
      .data = packet->data[0] + at,
      .bytes = bytes,
      .segment_bytes = bytes,
      .ce = harp_ecn_is_ce(harp_xdp_header_traffic_class(packet->data[0])),
  };
  if (packet->piece_count == 1) {
    out->frame = frame_name(queue, packet->frames[0]);
    return true;
  }
  if (!gather_pieces(x, packet, &data)) return false;
  release_pieces(queue_at(x, queue), packet);
  out->data = data + at;
  out->frame = SLOT_FRAME;
  return true;
}

static unsigned rx_queue(struct xdp *x, unsigned queue, struct harp_rx_superframe *out, unsigned max) {
  struct harp_xdp_received packets[HARP_RX_BATCH_MAX];
  unsigned got = 0, n = harp_xdp_queue_rx(queue_at(x, queue), packets, max);
  for (unsigned i = 0; i < n; i++) {
    if (unwrap_packet(x, queue, &packets[i], &out[got])) {
      got++;
    } else {
      x->counters->drops[HARP_DROP_SHORT]++;
      release_pieces(queue_at(x, queue), &packets[i]);
    }
  }
  return got;
}

static unsigned rx_fast(struct xdp *x, struct harp_rx_superframe *out, unsigned max) {
  unsigned got = 0;
  x->slots_used = 0;
  max = HARP_MIN(max, (unsigned)HARP_RX_BATCH_MAX);
  for (unsigned i = 0; i < x->nic.queue_count && got < max; i++)
    got += rx_queue(x, (x->next_queue + i) % x->nic.queue_count, out + got, max - got);
  x->next_queue = (x->next_queue + 1) % x->nic.queue_count;
  return got;
}

/* Reads the sockets that are readable. */
static unsigned rx_inner(struct xdp *x, struct harp_rx_superframe *out, unsigned max) {
  unsigned got = max ? x->inner->ops->rx(x->inner, out, max) : 0;
  for (unsigned i = 0; i < got; i++) {
    out[i].frame |= INNER_FRAME;
    out[i].detour = is_open(x);
  }
  return got;
}

static bool lacks_frames(const struct harp_xdp_queue *q) {
  return q->rx_pool_count >= REFILL_MIN && q->counts[HARP_XDP_FILL] + REFILL_MIN <= q->fill_target;
}

static void refill_queues(struct xdp *x) {
  for (unsigned i = 0; i < x->nic.queue_count; i++)
    if (lacks_frames(queue_at(x, i))) harp_xdp_queue_refill(queue_at(x, i));
}

static unsigned xdp_rx(struct harp_io *io, struct harp_rx_superframe *out, unsigned max) {
  struct xdp *x = xdp_of(io);
  unsigned got = 0;
  if (harp_likely(is_open(x))) got = rx_fast(x, out, max);
  if (got && x->ready) harp_io_ready_received(x->ready, harp_io_ready_name(HARP_READY_RINGS, 0));
  got += rx_inner(x, out + got, max - got);
  if (!got) refill_queues(x); /* no release will follow, and dropped packets have returned frames */
  return got;
}

static void xdp_rx_release(struct harp_io *io, const struct harp_rx_superframe *held, unsigned count) {
  struct xdp *x = xdp_of(io);
  for (unsigned i = 0; i < count && is_open(x); i++) {
    uint32_t frame;
    if (held[i].frame & (INNER_FRAME | SLOT_FRAME)) continue;
    struct harp_xdp_queue *q = queue_of_frame(x, held[i].frame, &frame);
    harp_xdp_queue_rx_release(q, frame);
  }
  refill_queues(x);
}

static unsigned xdp_fds(struct harp_io *io, struct pollfd *fds) {
  struct xdp *x = xdp_of(io);
  unsigned n = x->inner->ops->fds(x->inner, fds);
  for (unsigned i = 0; i < x->nic.queue_count; i++)
    fds[n++] = (struct pollfd){.fd = queue_at(x, i)->fd, .events = POLLIN};
  return n;
}

const struct harp_io_ops harp_io_xdp = {
    .name = "xdp",
    .frames_bytes = xdp_frames_bytes,
    .open = xdp_open,
    .close = xdp_close,
    .route_open = xdp_route_open,
    .route_close = xdp_route_close,
    .route_has_own_buffer = xdp_route_has_own_buffer,
    .route_doubt = xdp_route_doubt,
    .tx_take = xdp_tx_take,
    .tx_give_back = xdp_tx_give_back,
    .tx_submit = xdp_tx_submit,
    .tx_flush = xdp_tx_flush,
    .reap = xdp_reap,
    .rx = xdp_rx,
    .rx_release = xdp_rx_release,
    .fds = xdp_fds,
};
