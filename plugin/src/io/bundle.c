/* SPDX-License-Identifier: Apache-2.0 */
#include "io/bundle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/shortage.h"

struct harp_io_route {
  struct harp_io *member;
  struct harp_io_route *inner; /* the member's own */
};

struct bundle {
  struct harp_io io;
  unsigned count;
  unsigned next;            /* member where the next rx starts, for fairness */
  struct harp_io *received; /* member whose superframes rx has lent */
  struct harp_io *members[HARP_BUNDLE_MAX];
};

static struct bundle *bundle_of(struct harp_io *io) {
  return HARP_CONTAINER_OF(io, struct bundle, io);
}

/* ---- open and close ---- */

/* The engine may use on any route what all members support. */
static void take_in_info(struct harp_io_info *info, const struct harp_io_info *member) {
  info->gather = info->gather && member->gather;
  info->buffer_bytes = HARP_MIN(info->buffer_bytes, member->buffer_bytes);
  info->segments_max = HARP_MAX(info->segments_max, member->segments_max);
}

void harp_io_bundle_take(struct harp_io *io, struct harp_io *member) {
  struct bundle *b = bundle_of(io);
  HARP_ASSERT(b->count < HARP_BUNDLE_MAX);
  b->members[b->count++] = member;
  take_in_info(&io->info, &member->info);
}

static int open_member(const struct harp_io_ops *driver, const struct harp_io_config *config,
                       struct harp_io **member, struct harp_error *error) {
  struct harp_io_config own = *config;
  own.is_one_of_many = true;
  return driver->open(member, &own, error);
}

int harp_io_bundle_add(struct harp_io *io, const struct harp_io_ops *driver,
                       const struct harp_io_config *config, struct harp_error *error) {
  struct harp_io *member;
  int err = open_member(driver, config, &member, error);
  if (!err) harp_io_bundle_take(io, member);
  return err;
}

int harp_io_bundle_replace(struct harp_io *io, unsigned i, const struct harp_io_ops *driver,
                           const struct harp_io_config *config, struct harp_error *error) {
  struct bundle *b = bundle_of(io);
  struct harp_io *member;
  HARP_ASSERT(i < b->count);
  int err = open_member(driver, config, &member, error);
  if (err) return err;
  b->members[i]->ops->close(b->members[i]);
  b->members[i] = member;
  take_in_info(&io->info, &member->info);
  return 0;
}

struct harp_io *harp_io_bundle_member(struct harp_io *io, unsigned i) {
  struct bundle *b = bundle_of(io);
  HARP_ASSERT(i < b->count);
  return b->members[i];
}

static void bundle_close(struct harp_io *io) {
  struct bundle *b = bundle_of(io);
  for (unsigned i = 0; i < b->count; i++) b->members[i]->ops->close(b->members[i]);
  free(b);
}

/* ---- routes ---- */

static struct harp_io_route *bundle_route_open(struct harp_io *io, unsigned port,
                                               const struct sockaddr_storage *peer, int traffic_class) {
  struct harp_io *member = harp_io_bundle_member(io, port / HARP_IO_PORTS_MAX);
  struct harp_io_route *r = malloc(sizeof *r);
  if (!r) return NULL;
  r->member = member;
  r->inner = member->ops->route_open(member, port % HARP_IO_PORTS_MAX, peer, traffic_class);
  if (r->inner) return r;
  free(r);
  return NULL;
}

static void bundle_route_close(struct harp_io *io, struct harp_io_route *route) {
  (void)io;
  route->member->ops->route_close(route->member, route->inner);
  free(route);
}

static bool bundle_route_has_own_buffer(struct harp_io *io, const struct harp_io_route *route) {
  (void)io;
  return route->member->ops->route_has_own_buffer(route->member, route->inner);
}

static bool bundle_route_doubt(struct harp_io *io, struct harp_io_route *route) {
  (void)io;
  return route->member->ops->route_doubt(route->member, route->inner);
}

/* ---- sending ---- */

/* Converts a superframe back to that of its member; returns the member. */
static struct harp_io *unwrap_superframe(struct harp_tx_superframe *sf) {
  struct harp_io *member = sf->route->member;
  sf->route = sf->route->inner;
  return member;
}

static bool bundle_tx_take(struct harp_io *io, struct harp_io_route *route, uint32_t segment_bytes,
                           struct harp_tx_superframe *sf) {
  (void)io;
  if (!route->member->ops->tx_take(route->member, route->inner, segment_bytes, sf)) return false;
  sf->route = route;
  return true;
}

static void bundle_tx_give_back(struct harp_io *io, struct harp_tx_superframe *sf) {
  (void)io;
  struct harp_io *member = unwrap_superframe(sf);
  member->ops->tx_give_back(member, sf);
}

static int bundle_tx_submit(struct harp_io *io, struct harp_tx_superframe *sf) {
  (void)io;
  struct harp_io *member = unwrap_superframe(sf);
  return member->ops->tx_submit(member, sf);
}

static void bundle_tx_flush(struct harp_io *io) {
  struct bundle *b = bundle_of(io);
  for (unsigned i = 0; i < b->count; i++) b->members[i]->ops->tx_flush(b->members[i]);
}

static unsigned bundle_reap(struct harp_io *io) {
  struct bundle *b = bundle_of(io);
  unsigned back = 0;
  for (unsigned i = 0; i < b->count; i++) back += b->members[i]->ops->reap(b->members[i]);
  return back;
}

/* ---- receiving ---- */

static unsigned bundle_rx(struct harp_io *io, struct harp_rx_superframe *out, unsigned max) {
  struct bundle *b = bundle_of(io);
  for (unsigned i = 0; i < b->count; i++) {
    struct harp_io *member = b->members[b->next];
    b->next = b->next + 1 == b->count ? 0 : b->next + 1;
    unsigned n = member->ops->rx(member, out, HARP_MIN(max, member->info.rx_batch));
    b->received = member;
    if (n) return n;
  }
  return 0;
}

static void bundle_rx_release(struct harp_io *io, const struct harp_rx_superframe *held, unsigned count) {
  struct harp_io *member = bundle_of(io)->received;
  member->ops->rx_release(member, held, count);
}

static unsigned bundle_fds(struct harp_io *io, struct pollfd *fds) {
  struct bundle *b = bundle_of(io);
  unsigned n = 0;
  for (unsigned i = 0; i < b->count; i++) n += b->members[i]->ops->fds(b->members[i], fds + n);
  return n;
}

static const struct harp_io_ops bundle_ops = {
    .name = "bundle",
    .close = bundle_close,
    .route_open = bundle_route_open,
    .route_close = bundle_route_close,
    .route_has_own_buffer = bundle_route_has_own_buffer,
    .route_doubt = bundle_route_doubt,
    .tx_take = bundle_tx_take,
    .tx_give_back = bundle_tx_give_back,
    .tx_submit = bundle_tx_submit,
    .tx_flush = bundle_tx_flush,
    .reap = bundle_reap,
    .rx = bundle_rx,
    .rx_release = bundle_rx_release,
    .fds = bundle_fds,
};

struct harp_io *harp_io_bundle_make(struct harp_error *error) {
  struct bundle *b = calloc(1, sizeof *b);
  if (!b) {
    harp_shortage_set(error, -ENOMEM, "cannot open several interfaces as one");
    return NULL;
  }
  b->io.ops = &bundle_ops;
  b->io.info = (struct harp_io_info){
      .mode = "bundle", .gather = true, .buffer_bytes = UINT32_MAX, .rx_batch = HARP_RX_BATCH_MAX};
  return &b->io;
}
