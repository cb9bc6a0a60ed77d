/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_open.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/control/listener.h"
#include "engine/pass.h"
#include "engine/peer.h"
#include "engine/peer_life.h"
#include "engine/watch/summary.h"
#include "host/random.h"
#include "io/xdp/config.h"

enum {
  DRIVER_BYTES = 640, /* the bytes of a line: the driver, and a sentence for each mode that was refused */
};

/* Between two passes of who waits for copies to be delivered. */
#define REST_NS HARP_US(50)

static harp_ns host_clock(void) {
  return harp_clock_ns();
}

static int open_fds(struct harp_engine *e, struct harp_error *error) {
  e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  e->spare_fd = e->wake_fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC);
  int err = e->spare_fd < 0 ? -errno : harp_io_ready_open(&e->ready);
  return err ? harp_shortage_set(error, err, "cannot open an eventfd or epoll") : 0;
}

/* The first ENI's configuration stands for the engine, but one that is to have a thread gives all a
 * thread. */
static void join_instances(struct harp_engine *e, const struct harp_engine_enis *enis) {
  size_t length = 0;
  HARP_ASSERT(enis->count >= 1 && enis->count <= HARP_ENGINE_ENIS_MAX);
  e->eni_count = enis->count;
  e->instance = *enis->at[0];
  for (unsigned i = 0; i < enis->count; i++) {
    const struct harp_instance *eni = e->enis + i;
    e->enis[i] = *enis->at[i];
    if (length < sizeof e->enis_name)
      length += (size_t)snprintf(e->enis_name + length, sizeof e->enis_name - length, "%s%s", i ? "+" : "",
                                 eni->ifname);
    if (eni->mode == HARP_ENGINE_THREAD) e->instance.mode = HARP_ENGINE_THREAD;
  }
}

static void set_place(struct harp_engine *e, const struct harp_engine_place *place) {
  e->number = place->number;
  e->number_count = place->count;
  e->core = place->core;
  if (place->count > 1)
    snprintf(e->mark, sizeof e->mark, " engine %u (core %d)", place->number + 1, place->core);
  snprintf(e->name, sizeof e->name, "%s%s", e->enis_name, e->mark);
  e->memory = place->memory;
  e->pages = place->pages;
  e->block_count = place->memory_bytes / HARP_BLOCK_BYTES;
}

static struct harp_engine *allocate_engine(const struct harp_engine_enis *enis,
                                           const struct harp_engine_place *place) {
  struct harp_engine *e = aligned_alloc(HARP_CACHE_LINE, harp_align_up(sizeof *e, HARP_CACHE_LINE));
  if (!e) return NULL;
  memset(e, 0, sizeof *e);
  join_instances(e, enis);
  set_place(e, place);
  e->cc = harp_cc_find(harp_setting_word(HARP_SETTING_CONGESTION, e->instance.congestion));
  HARP_ASSERT(e->cc); /* test_setting.c holds the words against proto/ */
  e->wake_fd = e->ready.fd = e->spare_fd = -1;
  harp_log_limit_init(&e->strangers_log, &e->counters.log_left_out);
  harp_log_limit_init(&e->outages.log, &e->counters.log_left_out);
  return e;
}

static void release_engine(struct harp_engine *e) {
  harp_tcp_close(e);
  if (e->wake_fd >= 0) close(e->wake_fd);
  harp_io_ready_close(&e->ready);
  if (e->spare_fd >= 0) close(e->spare_fd);
  free(e);
}

/* Makes an engine without drivers. */
static int make_engine(struct harp_engine **out, const struct harp_engine_enis *enis,
                       const struct harp_engine_place *place, struct harp_error *error) {
  struct harp_engine *e = allocate_engine(enis, place);
  if (!e) return harp_shortage_set(error, -ENOMEM, "cannot open an engine");
  int err = harp_random_fill(&e->token_prefix, sizeof e->token_prefix);
  if (err) {
    harp_error_set(error, err, "cannot get random bytes: %s", strerror(-err));
    goto fail;
  }
  err = open_fds(e, error);
  if (err) goto fail;
  *out = e;
  return 0;
fail:
  release_engine(e);
  return err;
}

/* An interface that is absent has no queues that xdp could use. */
static const struct harp_io_ops *choose_driver(const struct harp_instance *instance) {
  if (instance->driver == HARP_DRIVER_TCP) return &harp_io_none;
  if (instance->is_absent) return &harp_io_udp;
  if (instance->driver == HARP_DRIVER_UDP || instance->driver == HARP_DRIVER_UDP_TCP) return &harp_io_udp;
  if (instance->driver == HARP_DRIVER_AUTO && !harp_io_xdp_has_zero_copy_driver((unsigned)instance->index))
    return &harp_io_udp;
  return &harp_io_xdp;
}

/* Each engine's of an amount that the conf names for all. */
static size_t share_of(size_t bytes, unsigned count) {
  return bytes ? HARP_MAX(bytes / count, (size_t)HARP_ENGINE_MEMORY_BYTES_MIN) : 0;
}

/* Returns how many ports an engine requests: as many as are configured, or as are wanted and its part of
 * the range has. */
static unsigned ports_of(const struct harp_instance *instance, unsigned wanted, unsigned count) {
  unsigned range = instance->ports.low ? instance->ports.high - instance->ports.low + 1u : UINT16_MAX;
  return harp_setting_is_set(&instance->settings, HARP_SETTING_PATHS)
             ? instance->paths
             : HARP_MIN(wanted, HARP_MAX(range / count, 1u));
}

/* Returns what drivers are told of an interface, and fills `xdp`, which the result points to. */
static struct harp_io_config io_config(const struct harp_instance *instance, unsigned number, unsigned count,
                                       struct harp_io_xdp_config *xdp) {
  static const enum harp_io_xdp_mode modes[] = {
      [HARP_DRIVER_AUTO] = HARP_IO_XDP_AUTO,        [HARP_DRIVER_XDP] = HARP_IO_XDP_ANY,
      [HARP_DRIVER_XDP_ZC] = HARP_IO_XDP_ZERO_COPY, [HARP_DRIVER_XDP_COPY] = HARP_IO_XDP_COPY,
      [HARP_DRIVER_UDP] = HARP_IO_XDP_AUTO,         [HARP_DRIVER_UDP_TCP] = HARP_IO_XDP_AUTO,
      [HARP_DRIVER_TCP] = HARP_IO_XDP_AUTO,
  };
  const struct harp_local *local = &instance->local;
  *xdp = (struct harp_io_xdp_config){
      .mode = modes[instance->driver],
      .mtu = instance->mtu,
      .speed_mbps = instance->speed_mbps,
      .queues = instance->queues,
      .process = local->has_rank ? local->rank % HARP_MAX(local->sharers, 1u) : UINT_MAX,
      .process_count = local->sharers,
      .sharer = number,
      .sharer_count = count,
      .shared_port_count = ports_of(instance, HARP_PAIR_PATHS_MAX, count),
      .memory_bytes = share_of(instance->memory_bytes, count),
  };
  memcpy(xdp->mac, instance->mac, sizeof xdp->mac);
  return (struct harp_io_config){
      .addr = &instance->addr,
      .port_low = instance->ports.low,
      .port_high = instance->ports.high,
      .port_count = ports_of(instance, instance->paths, count),
      .ecn = instance->ecn == HARP_ECN_ON,
      .ifname = instance->ifname,
      .ifindex = (unsigned)instance->index,
      .xdp = xdp,
  };
}

static int check_mtu(const struct harp_instance *instance, struct harp_error *error) {
  if (instance->mtu >= HARP_ENDPOINT_MTU_MIN_BYTES) return 0;
  return harp_error_set(error, -EMSGSIZE,
                        "%s: MTU %d is too small, HARP needs %d: raise it with `ip link set %s mtu 1500`",
                        instance->ifname, instance->mtu, HARP_ENDPOINT_MTU_MIN_BYTES, instance->ifname);
}

static size_t frames_bytes_of(const struct harp_io_ops *driver, const struct harp_io_config *config) {
  return harp_align_up(driver->frames_bytes(config), HARP_BLOCK_BYTES);
}

size_t harp_engine_memory_bytes(const struct harp_engine_enis *enis, unsigned count) {
  size_t frames_bytes = 0, conf_bytes = 0;
  for (unsigned i = 0; i < enis->count; i++) {
    struct harp_io_xdp_config xdp;
    struct harp_io_config config = io_config(enis->at[i], 0, count, &xdp);
    frames_bytes += frames_bytes_of(choose_driver(enis->at[i]), &config);
    conf_bytes += enis->at[i]->memory_bytes;
  }
  size_t bytes = conf_bytes
                     ? share_of(conf_bytes, count)
                     : HARP_MAX((size_t)HARP_ENGINE_MEMORY_BYTES, frames_bytes + HARP_ENGINE_BLOCKS_BYTES);
  return harp_align_up(HARP_MAX(bytes, frames_bytes), HARP_BLOCK_BYTES);
}

/* Writes an interface's driver, its queues, and why no better driver was opened; returns `text`. */
static const char *describe_driver(const struct harp_io_info *info, char *text, size_t bytes) {
  snprintf(text, bytes, "driver %s%s%s%s%s%s", info->mode, info->queues[0] ? " (" : "", info->queues,
           info->queues[0] ? ")" : "", info->why_not[0] ? ": " : "", info->why_not);
  return text;
}

/* Returns the same with what this engine has. */
static struct harp_io_config config_of(struct harp_engine *e, const struct harp_instance *instance,
                                       uint8_t *frames, struct harp_io_xdp_config *xdp) {
  struct harp_io_config config = io_config(instance, e->number, e->number_count, xdp);
  config.counters = &e->counters;
  config.ready = &e->ready;
  xdp->token_prefix = e->token_prefix;
  config.frames = frames;
  config.frames_bytes = frames_bytes_of(choose_driver(instance), &config);
  return config;
}

static void log_driver(const struct harp_engine *e, unsigned i) {
  const struct harp_instance *instance = &e->enis[i];
  const struct harp_io_info *info = &harp_engine_io(e, i)->info;
  char text[DRIVER_BYTES], ports[80] = "";
  if (info->port_count)
    snprintf(ports, sizeof ports, ", %u path(s) from UDP port %u, %u KiB socket buffer", info->port_count,
             info->ports[0], info->buffer_bytes >> 10);
  HARP_INFO("%s%s: %s%s, memory in %s pages, engine %s", instance->ifname, e->mark,
            describe_driver(info, text, sizeof text), ports, harp_page_size_name(e->pages),
            harp_setting_word(HARP_SETTING_MODE, e->instance.mode));
}

/* Opens the driver of one ENI on the frames at *frames, and moves past them. While it has no address these
 * are kept for it, and it has no ports. */
static int open_eni(struct harp_engine *e, unsigned i, uint8_t **frames, struct harp_error *error) {
  const struct harp_instance *instance = &e->enis[i];
  const struct harp_io_ops *driver = instance->is_unnumbered ? &harp_io_none : choose_driver(instance);
  struct harp_io_xdp_config xdp;
  struct harp_io_config config = config_of(e, instance, *frames, &xdp);
  struct harp_error cause = {0};
  HARP_ASSERT(e->eni_count > 1 || !instance->is_unnumbered);
  e->late[i].frames = *frames;
  if (choose_driver(instance) != &harp_io_none) e->late[i].port_count = (uint8_t)config.port_count;
  *frames += config.frames_bytes;
  int err = e->eni_count > 1 ? harp_io_bundle_add(e->io, driver, &config, &cause)
                             : driver->open(&e->io, &config, &cause);
  if (err) return harp_error_set(error, err, "%s: %s", instance->ifname, cause.text);
  if (!instance->is_unnumbered) log_driver(e, i);
  return 0;
}

int harp_engine_number(struct harp_engine *e, unsigned eni, const struct harp_instance *numbered,
                       struct harp_error *error) {
  struct harp_instance *own = &e->enis[eni];
  struct harp_io_xdp_config xdp;
  struct harp_io_config config = config_of(e, numbered, e->late[eni].frames, &xdp);
  HARP_ASSERT(own->is_unnumbered && own->is_absent && !numbered->is_unnumbered && numbered->is_absent);
  if (choose_driver(numbered) != &harp_io_none) {
    int err = harp_io_bundle_replace(e->io, eni, choose_driver(numbered), &config, error);
    if (err) return err;
  }
  const struct harp_instance before = *own;
  *own = *numbered;
  int err = harp_tcp_open_late(e, eni, error);
  if (err) { /* the interface has TCP alone, so that no driver was opened */
    *own = before;
    return err;
  }
  log_driver(e, eni);
  return 0;
}

/* Opens the drivers of all ENIs; their frames lie before the blocks. */
static int open_io(struct harp_engine *e, struct harp_error *error) {
  uint8_t *frames = e->memory;
  int err = 0;
  for (unsigned i = 0; i < e->eni_count && !err; i++) err = check_mtu(&e->enis[i], error);
  if (err) return err;
  if (e->eni_count > 1 && !(e->io = harp_io_bundle_make(error))) return -ENOMEM;
  for (unsigned i = 0; i < e->eni_count && !err; i++) err = open_eni(e, i, &frames, error);
  if (!err) err = harp_tcp_open(e, error);
  e->blocks_used = (size_t)(frames - e->memory) / HARP_BLOCK_BYTES;
  HARP_ASSERT(e->blocks_used <= e->block_count);
  return err;
}

int harp_engine_open(struct harp_engine **out, const struct harp_engine_enis *enis,
                     const struct harp_engine_place *place, struct harp_error *error) {
  struct harp_engine *e;
  int err = make_engine(&e, enis, place, error);
  if (err) return err;
  err = open_io(e, error);
  if (err) goto fail;
  e->clock = host_clock;
  for (unsigned i = 0; i < e->eni_count; i++)
    if (e->enis[i].is_absent) harp_outages_expect(e, i, e->clock());
  harp_stats_join(e);
  *out = e;
  return 0;
fail:
  if (e->io) e->io->ops->close(e->io);
  release_engine(e);
  return err;
}

int harp_engine_open_with(struct harp_engine **out, const struct harp_engine_enis *enis, struct harp_io *io,
                          harp_ns (*clock)(void), struct harp_error *error) {
  static const struct harp_engine_place alone = {.count = 1, .core = -1};
  int err = make_engine(out, enis, &alone, error);
  if (err) return err;
  (*out)->clock = clock;
  (*out)->io = io;
  return 0;
}

void harp_engine_await_closing(struct harp_engine *e) {
  const struct timespec rest = {.tv_nsec = (long)REST_NS};
  harp_ns end_ns = e->clock() + HARP_CLOSING_AT_ONCE_NS;
  for (;;) {
    harp_engine_lock(e);
    if (e->closing) harp_engine_pass(e);
    bool over = !e->closing;
    harp_engine_unlock(e);
    if (over || e->clock() >= end_ns) return;
    nanosleep(&rest, NULL);
  }
}

static void log_drivers(const struct harp_engine *e) {
  char driver[DRIVER_BYTES];
  for (unsigned i = 0; e->io && i < e->eni_count; i++)
    HARP_INFO("%s%s: closing %s", e->enis[i].ifname, e->mark,
              describe_driver(&harp_engine_io(e, i)->info, driver, sizeof driver));
}

void harp_engine_close(struct harp_engine *e) {
  HARP_ASSERT(e->link_count == 0 && !e->closing && !e->running);
  harp_listeners_end(e);
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));) harp_peer_destroy(peer);
  harp_stats_leave(e);
  log_drivers(e);
  harp_outages_forget(&e->outages);
  if (e->io) e->io->ops->close(e->io); /* it may count something yet */
  harp_summary_of_engine(e);
  release_engine(e);
}
