/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of an interface whose paths are all TCP connections (engine/tcp/tcp.h), and of one that has no
 * address yet. It has no ports, so no route is opened on it; only open, close, info and the empty polls are
 * used. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/shortage.h"
#include "io/io.h"

static size_t none_frames_bytes(const struct harp_io_config *config) {
  (void)config;
  return 0;
}

static int none_open(struct harp_io **out, const struct harp_io_config *config, struct harp_error *error) {
  (void)config;
  struct harp_io *io = calloc(1, sizeof *io);
  if (!io) return harp_shortage_set(error, -ENOMEM, "cannot open the driver");
  io->ops = &harp_io_none;
  io->info = (struct harp_io_info){.mode = "tcp", .gather = true, .buffer_bytes = UINT32_MAX, .rx_batch = 1};
  *out = io;
  return 0;
}

static void none_close(struct harp_io *io) {
  free(io);
}

static struct harp_io_route *none_route_open(struct harp_io *io, unsigned port,
                                             const struct sockaddr_storage *peer, int traffic_class) {
  (void)io, (void)port, (void)peer, (void)traffic_class;
  HARP_ASSERT(false);
  return NULL;
}

static void none_route_close(struct harp_io *io, struct harp_io_route *route) {
  (void)io, (void)route;
  HARP_ASSERT(false);
}

static bool none_route_has_own_buffer(struct harp_io *io, const struct harp_io_route *route) {
  (void)io, (void)route;
  HARP_ASSERT(false);
  return false;
}

static bool none_route_doubt(struct harp_io *io, struct harp_io_route *route) {
  (void)io, (void)route;
  HARP_ASSERT(false);
  return false;
}

static bool none_tx_take(struct harp_io *io, struct harp_io_route *route, uint32_t segment_bytes,
                         struct harp_tx_superframe *sf) {
  (void)io, (void)route, (void)segment_bytes, (void)sf;
  HARP_ASSERT(false);
  return false;
}

static void none_tx_give_back(struct harp_io *io, struct harp_tx_superframe *sf) {
  (void)io, (void)sf;
  HARP_ASSERT(false);
}

static int none_tx_submit(struct harp_io *io, struct harp_tx_superframe *sf) {
  (void)io, (void)sf;
  HARP_ASSERT(false);
  return -ENOTSUP;
}

static void none_tx_flush(struct harp_io *io) {
  (void)io;
}

static unsigned none_reap(struct harp_io *io) {
  (void)io;
  return 0;
}

static unsigned none_rx(struct harp_io *io, struct harp_rx_superframe *out, unsigned max) {
  (void)io, (void)out, (void)max;
  return 0;
}

static void none_rx_release(struct harp_io *io, const struct harp_rx_superframe *held, unsigned count) {
  (void)io, (void)held, (void)count;
  HARP_ASSERT(false);
}

static unsigned none_fds(struct harp_io *io, struct pollfd *fds) {
  (void)io, (void)fds;
  return 0;
}

const struct harp_io_ops harp_io_none = {
    .name = "none",
    .frames_bytes = none_frames_bytes,
    .open = none_open,
    .close = none_close,
    .route_open = none_route_open,
    .route_close = none_route_close,
    .route_has_own_buffer = none_route_has_own_buffer,
    .route_doubt = none_route_doubt,
    .tx_take = none_tx_take,
    .tx_give_back = none_tx_give_back,
    .tx_submit = none_tx_submit,
    .tx_flush = none_tx_flush,
    .reap = none_reap,
    .rx = none_rx,
    .rx_release = none_rx_release,
    .fds = none_fds,
};
